"""PNN, progressive neural networks (Rusu et al., 2016): a new column a task, fed by all columns before, which stay.

With it stands what it shares with PathNet: nets that have a part of their own for each task, its output layer at least.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ucb import checks
from ucb.bayes.passes import Batch
from ucb.methods.base import EvalContext, Settings, TaskInfo, method, setting
from ucb.methods.ordinary import OrdinaryMethod
from ucb.nets import HeadedNet
from ucb.nets.stages import ColumnNet, Stage, Staged, split_for


@dataclass(frozen=True)
class OwnHeadSettings(Settings):
    """For how many tasks there is room."""

    tasks: int = setting(5, check=checks.count)
    """Where the given net has one head: how many tasks get a copy of it. Several heads say it themselves."""

    def heads_of(self, staged: Staged) -> Sequence[Stage]:
        """Return a head for each task."""
        return staged.heads if len(staged.heads) > 1 else staged.heads * self.tasks


class OwnHeadMethod(OrdinaryMethod):
    """Task i has head i of the method's own net, also where the given net has one head for all."""

    needs_task = True
    can_grow = False  # all tasks share the given net's number of weights
    settings: OwnHeadSettings

    def resume_task(self, task: TaskInfo) -> None:
        """Answer with the task's own head."""
        super().resume_task(task)
        self.net.current = self.place(task.index)

    def logits(self, x: Batch, context: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Answer with the head of the task that is asked about."""
        place = self.place(context.index)
        return super().logits(x, EvalContext(place, place), samples, generator)

    def place(self, index: int) -> int:
        """Return a task's index, if there is room for it. The engine asks about every task before it trains on any."""
        room = len(self.net.heads)
        if index >= room:
            raise ValueError(f"{self.name} was built for {room} tasks, and there are more: set tasks to their number")
        return index


@method
class PNN(OwnHeadMethod):
    """All columns are there from the start and together have no more weights than the given net."""

    name = "pnn"
    summary = "a column of layers for each task, with connections from all before it (2016)"
    paper = "Rusu et al., 2016"
    memory = "nothing: all columns together have as many weights as the given net"
    net: ColumnNet

    def __init__(self, net: HeadedNet, settings: OwnHeadSettings, generator: torch.Generator) -> None:
        staged = split_for(self.name, net)
        super().__init__(ColumnNet.within(staged, settings.heads_of(staged), generator), settings, generator)

    def resume_task(self, task: TaskInfo) -> None:
        """Let only the task's own column learn, its connections and its head."""
        super().resume_task(task)
        self.net.requires_grad_(False)
        self.net.trunk[task.index].requires_grad_(True)  # type: ignore[index]
        self.net.heads[task.index].requires_grad_(True)
