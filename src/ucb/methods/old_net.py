"""What the methods share that compare the net with itself as it was when the task began (LwF, LFL)."""

from __future__ import annotations

import copy
from abc import abstractmethod

import torch
from torch import Tensor, nn

from ucb.methods.base import Settings, TaskInfo
from ucb.methods.ordinary import OrdinaryMethod
from ucb.nets import HeadedNet
from ucb.nets.heads import TaskBatchNorm2d


class ComparesWithOldNet(OrdinaryMethod):
    """Adds a penalty on leaving the old net to the NLL; in the first task there is no old net and no penalty."""

    remembered = ("old", "old_outputs")

    def __init__(self, net: HeadedNet, settings: Settings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.old: nn.Module | None = None
        """The old net or what is needed of it: in eval mode, and it never learns."""
        self.old_outputs = 0
        """With one head: how many of its outputs earlier tasks had."""

    @abstractmethod
    def part_to_compare(self) -> nn.Module:
        """Return the part of the net of which a copy is kept when a task begins."""

    @abstractmethod
    def penalty(self, x: Tensor, features: Tensor, logits: Tensor) -> Tensor:
        """Return what is added to the NLL of a batch, given what the present net makes of it."""

    def begin_task(self, task: TaskInfo) -> None:
        """Note which outputs are old."""
        if self.task is not None:
            self.old_outputs = max(self.old_outputs, self.task.outputs.stop)
        super().begin_task(task)

    def resume_task(self, task: TaskInfo) -> None:
        """Copy the net: as the task finds it or, if that is some time ago, for a state to be loaded."""
        super().resume_task(task)
        self.old = None
        if task.index > 0:
            self.old = copy.deepcopy(self.part_to_compare()).requires_grad_(False).eval()
            for module in self.old.modules():
                if isinstance(module, TaskBatchNorm2d):
                    module.current = max(0, task.head - 1)  # the present task's own knows nothing yet

    def add_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the gradient of NLL and penalty, for which the trunk runs once."""
        assert self.task is not None
        features = self.net.trunk(x)
        logits = self.net.heads[self.task.head](features)
        nll = self.nll(logits, y)
        (nll if self.old is None else nll + self.penalty(x, features, logits)).backward()
        return nll.detach()
