"""PNN, progressive neural networks (Rusu et al., 2016): a new column a task, fed by all columns before, which stay."""

from __future__ import annotations

import torch

from ucb.methods.base import TaskInfo, method
from ucb.methods.own_heads import OwnHeadMethod, OwnHeadSettings
from ucb.nets import HeadedNet
from ucb.nets.stages import ColumnNet, split_for


@method
class PNN(OwnHeadMethod):
    """All columns are there from the start and together have no more weights than the given net."""

    name = "pnn"
    summary = "a column of layers for each task, with connections from all before it (2016)"
    paper = "Rusu et al., 2016"
    memory = "nothing: all columns together have as many weights as the given net"
    settings_type = OwnHeadSettings
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
