"""ORD: an ordinary net by fine-tuning (ORD-FT), feature extraction (ORD-FE) or joint training (ORD-JT).

Feature extraction and joint training stand here as parts that Bayesian nets share (BBB-FE, BBB-JT). Joint training
begins from scratch at every task and learns all tasks so far together: the bound that continual learning is under. With
several heads the net answers with all of them side by side, and an example's loss sees its own head's outputs.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ucb.methods.base import Method, Settings, TaskInfo, method
from ucb.methods.ordinary import OrdinaryMethod
from ucb.nets.heads import HeadedNet, TaskBatchNorm2d


class TrunkStays(Method):
    """Mix it in before a method that fine-tunes: the trunk learns the first task only, later tasks learn a head."""

    needs_boundaries = True

    def __init__(self, net: HeadedNet, settings: Any, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.learning = [p for p in self.net.trunk.parameters() if p.requires_grad]  # what is frozen stays so

    def resume_task(self, task: TaskInfo) -> None:
        """Let the trunk learn in the first task only."""
        super().resume_task(task)
        for parameter in self.learning:
            parameter.requires_grad_(task.index == 0)


@dataclass(frozen=True)
class JointSettings(Settings):
    """When to train."""

    final_only: bool = False
    """Train once, on all tasks, instead of anew at each: ACC is the same, and there is no BWT."""


class Joint(Method):
    """Mix it in before a method that fine-tunes."""

    paper = "the usual upper bound; Caruana 1997 for learning tasks together"
    memory = "all data of all tasks"
    needs_classes = True
    needs_boundaries = True
    is_joint = True
    settings: JointSettings
    remembered: ClassVar[tuple[str, ...]] = ("first",)

    def __init__(self, net: HeadedNet, settings: Any, generator: torch.Generator) -> None:
        if len(net.heads) > 1 and any(isinstance(module, TaskBatchNorm2d) for module in net.modules()):
            raise ValueError(f"{self.name} mixes tasks in a batch, which norm=task-batch cannot: choose another norm")
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


@method
class OrdinaryFineTuning(OrdinaryMethod):
    """Plain stochastic gradient descent, task after task, with nothing to stop it forgetting."""

    name = "ord-ft"
    summary = "ordinary fine-tuning: nothing is done against forgetting"
    needs_boundaries = False


@method
class OrdinaryFeatureExtraction(TrunkStays, OrdinaryMethod):
    """The trunk learns the first task and then stays: nothing can be forgotten, and nothing new is learnt but heads."""

    name = "ord-fe"
    summary = "ordinary feature extraction: the trunk stays after the first task"


@method
class OrdinaryJoint(Joint, OrdinaryMethod):
    """Plain stochastic gradient descent on all tasks so far, from scratch at each."""

    name = "ord-jt"
    summary = "ordinary joint training on all tasks so far: a bound"
