"""What the methods share that compare the net with itself as it was when the task began (LwF, LFL)."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ucb.methods.base import Settings, TaskInfo
from ucb.methods.ordinary import OrdinaryMethod
from ucb.nets import HeadedNet
from ucb.nets.norms import TaskBatchNorm2d


class ComparesWithOldNet(OrdinaryMethod):
    """Adds a penalty on leaving the old net to the NLL; in the first task there is no old net and no penalty."""

    def __init__(self, net: HeadedNet, settings: Settings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.old: nn.Module | None = None
        """The old net or what is needed of it: in eval mode, and it never learns."""
        self.old_outputs = 0
        """With one head: how many of its outputs earlier tasks had."""

    @abstractmethod
    def remembered(self) -> nn.Module:
        """Return the part of the net that is copied when a task begins."""

    @abstractmethod
    def penalty(self, x: Tensor, features: Tensor, logits: Tensor) -> Tensor:
        """Return what is added to the NLL of a batch, given what the present net makes of it."""

    def begin_task(self, task: TaskInfo) -> None:
        """Copy the net as the task finds it."""
        if self.task is not None:
            self.old_outputs = max(self.old_outputs, self.task.outputs.stop)
        super().begin_task(task)
        self._set_old(self.remembered().state_dict() if task.index > 0 else None)

    def add_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the gradient of NLL and penalty, for which the trunk runs once."""
        assert self.task is not None
        features = self.net.trunk(x)
        logits = self.net.heads[self.task.head](features)
        nll = self.nll(logits, y)
        (nll if self.old is None else nll + self.penalty(x, features, logits)).backward()
        return nll.detach()

    def state_dict(self) -> dict[str, Any]:
        """Add the old net."""
        old = None if self.old is None else dict(self.old.state_dict())
        return {**super().state_dict(), "old": old, "old_outputs": self.old_outputs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        self._set_old(state["old"])
        self.old_outputs = state["old_outputs"]

    def _set_old(self, weights: dict[str, Any] | None) -> None:
        if weights is None:
            self.old = None
            return
        if self.old is None:
            self.old = copy.deepcopy(self.remembered()).requires_grad_(False).eval()
        self.old.load_state_dict(weights)
        assert self.task is not None
        for module in self.old.modules():
            if isinstance(module, TaskBatchNorm2d):
                module.current = max(0, self.task.head - 1)  # the present task's own knows nothing yet
