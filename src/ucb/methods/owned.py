"""What the methods share whose weights belong to tasks (PackNet, UCB-P): what is owned never changes again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ucb.methods.base import Asked, Method, TaskInfo
from ucb.nets import HeadedNet
from ucb.nets.norms import is_of_one_task
from ucb.optim.owners import Owners


class OwnedWeights(Method):
    """Mix it in before a method that learns by gradient descent.

    The trunk's weights have owners, and the head's too where all tasks share one. What they share besides, and running
    statistics, is learnt in the first task only. So a task that is over is answered alike, to the bit, ever after.
    """

    memory = "an owner's index a weight: ceil(log2(tasks + 1)) bits"
    needs_task = True

    def __init__(self, net: HeadedNet, settings: Any, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.ownable = self.numbers_of_weights()
        self.owners = Owners({name: numbers[0] for name, numbers in self.ownable.items()})
        self.movable: dict[str, Tensor] = {}
        """1 for the weights that may move now and 0 for those that may not, of tensors that have any of the latter.

        Numbers, because a product with them takes a small part of the time that a boolean mask does."""
        ownable = {id(p) for numbers in self.ownable.values() for p in numbers}
        shared = self.net if len(net.heads) == 1 else self.net.trunk
        own = {id(each) for each in self._own_normalisation()}
        self.unowned = [p for p in shared.parameters() if p.requires_grad and id(p) not in ownable | own]
        normalising = [m for m in self.net.modules() if getattr(m, "running_mean", None) is not None]
        self.with_statistics = [m for m in normalising if id(m) not in own]

    @abstractmethod
    def numbers_of_weights(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters that make up each weight tensor that tasks can own, by name."""

    def is_shared(self, name: str) -> bool:
        """Whether tasks share a weight of this name."""
        return len(self.net.heads) == 1 or (name.startswith("trunk.") and not is_of_one_task(name))

    def _own_normalisation(self) -> Iterator[nn.Module | nn.Parameter]:
        """Yield the modules and parameters with which single tasks normalise, where they have heads of their own."""
        if len(self.net.heads) > 1:
            yield from (module for name, module in self.net.named_modules() if is_of_one_task(name))
            yield from (parameter for name, parameter in self.net.named_parameters() if is_of_one_task(name))

    def resume_task(self, task: TaskInfo) -> None:
        """Hold what has no owner after the first task."""
        super().resume_task(task)
        for parameter in self.unowned:
            parameter.requires_grad_(task.index == 0)

    def begin_task(self, task: TaskInfo) -> None:
        """Let the free weights learn, and no others."""
        super().begin_task(task)
        self.hold()

    def hold(self) -> None:
        """Find out which weights may move: the free ones, or the task's own once it has claimed some."""
        number = 0 if self.task is None else self.task.index + 1
        learning = number if self.owners.tasks >= number else 0
        masks = {name: owner == learning for name, owner in self.owners.of.items()}
        self.movable = {n: mask.to(self.ownable[n][0].dtype) for n, mask in masks.items() if not bool(mask.all())}

    def add_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the batch's gradient; running statistics rest after the first task."""
        assert self.task is not None
        if self.task.index > 0:
            for module in self.with_statistics:
                module.eval()
        return super().add_gradients(x, y)  # type: ignore[safe-super]  # the next kind of method in line says how

    def adjust_gradients(self) -> None:
        """Leave all weights alone that may not move."""
        for name, movable in self.movable.items():
            for parameter in self.ownable[name]:
                if parameter.grad is not None:
                    parameter.grad.mul_(movable)  # a step of 0 changes no bit

    def answering(self, asked: Asked) -> int | None:
        """Return the last task (from 1) whose weights answer, all of them for a task to come; None is the whole net."""
        claimed = self.owners.tasks
        is_under_way = self.task is not None and asked.index == self.task.index >= claimed
        return None if claimed == 0 or is_under_way else min(asked.index + 1, claimed)

    def state_dict(self) -> dict[str, Any]:
        """Add the owners."""
        return {**super().state_dict(), "owners": self.owners.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        self.owners.load_state_dict(state["owners"])
        self.hold()
