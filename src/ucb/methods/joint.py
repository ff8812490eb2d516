"""Joint training: at every step from scratch, on all tasks so far together. The bound that continual learning is under.

With several heads the net answers with all of them side by side, and an example's loss sees its own head's outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ucb.methods.base import Method, Settings, TaskInfo
from ucb.nets import HeadedNet
from ucb.nets.heads import TaskBatchNorm2d


@dataclass(frozen=True)
class JointSettings(Settings):
    """When to train."""

    final_only: bool = False
    """Train once, on all tasks, instead of anew at each: ACC is the same, and there is no BWT."""


class Joint(Method):
    """Mix it in before a method that fine-tunes."""

    paper = "the usual upper bound; Caruana 1997 for learning tasks together"
    memory = "all data of all tasks"
    is_joint = True
    settings: JointSettings
    remembered: ClassVar[tuple[str, ...]] = ("first",)

    def __init__(self, net: HeadedNet, settings: Any, generator: torch.Generator) -> None:
        if len(net.heads) > 1 and any(isinstance(module, TaskBatchNorm2d) for module in net.modules()):
            raise ValueError(
                f"{self.name} mixes tasks in a batch, and norm=task-batch has one task: choose another norm"
            )
        super().__init__(net, settings, generator)
        self.first = {name: value.clone() for name, value in self.net.state_dict().items()}
        sizes = [head.out_features for head in net.heads]
        self.head_of = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))

    def learns_when(self, index: int, tasks: int) -> bool:
        """Learn at every task, or at the last one only."""
        return index == tasks - 1 or not self.settings.final_only

    def begin_task(self, task: TaskInfo) -> None:
        """Start from scratch."""
        super().begin_task(task)
        self.optimizer.state.clear()
        self.net.load_state_dict(self.first)

    def resume_task(self, task: TaskInfo) -> None:
        """Let all heads answer."""
        super().resume_task(task)
        self.net.current = None if len(self.net.heads) > 1 else 0

    def nll(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean NLL of mixed examples; with several heads each one's own head alone counts."""
        if len(self.net.heads) == 1:
            return F.cross_entropy(logits, y)
        self.head_of = self.head_of.to(y.device)
        foreign = self.head_of[y].unsqueeze(1) != self.head_of
        return F.cross_entropy(logits.masked_fill(foreign, -torch.inf), y)
