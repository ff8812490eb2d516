"""Which task each weight belongs to (PackNet, UCB-P): one index a weight instead of one mask a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ucb.bayes.checks import count, fitting_mask


class Owners:
    """An index for every weight: 0 is free, t belongs to task number t (the first is 1) for good.

    Task t answers with the weights of tasks 1 .. t. In the state, n tasks take ceil(log2(n + 1)) bits a weight.
    """

    MOST = 255

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.of = {name: torch.zeros_like(weight, dtype=torch.uint8) for name, weight in weights.items()}
        self.tasks = 0
        """The last task that claimed weights."""

    def claim(self, masks: Mapping[str, Tensor], task: int) -> None:
        """Give the free weights where a mask is True to a task."""
        if count("a task's number", task) > self.MOST:
            raise ValueError(f"weights can belong to {self.MOST} tasks, and this is task {task}")
        claims = {name: fitting_mask(mask, self.of[name]) for name, mask in masks.items()}
        for name, claimed in claims.items():
            if bool((claimed & ~self.free(name)).any()):
                raise ValueError(f"task {task} claims weights of {name} that belong to an earlier task")
        for name, claimed in claims.items():
            self.of[name].masked_fill_(claimed, task)
        self.tasks = max(self.tasks, task)

    def free(self, name: str) -> Tensor:
        """Mark the weights that belong to no task."""
        return self.of[name] == 0

    def used_by(self, name: str, task: int) -> Tensor:
        """Mark the weights that a task answers with: its own and those of the tasks before it."""
        return (self.of[name] > 0) & (self.of[name] <= task)

    def state_dict(self) -> dict[str, Any]:
        """Return the indices of all weights, one after the other, in as few bits as they need."""
        flat = torch.cat([owner.flatten() for owner in self.of.values()])
        return {"tasks": self.tasks, "packed": pack(flat, self.tasks.bit_length())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo ``state_dict``."""
        self.tasks = state["tasks"]
        sizes = [owner.numel() for owner in self.of.values()]
        parts = unpack(state["packed"], self.tasks.bit_length(), sum(sizes)).split(sizes)
        for owner, part in zip(self.of.values(), parts, strict=True):
            owner.copy_(part.view(owner.shape))


def pack(values: Tensor, bits: int) -> Tensor:
    """Return whole numbers below 2^bits as bytes, with no bit between one and the next."""
    single = (values.unsqueeze(1) >> torch.arange(bits, dtype=torch.uint8, device=values.device)) & 1
    stream = torch.nn.functional.pad(single.flatten(), (0, -single.numel() % 8)).view(-1, 8)
    return (stream << torch.arange(8, dtype=torch.uint8, device=values.device)).sum(1, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int, number: int) -> Tensor:
    """Undo ``pack`` for so many values."""
    stream = (packed.unsqueeze(1) >> torch.arange(8, dtype=torch.uint8, device=packed.device)) & 1
    single = stream.flatten()[: number * bits].view(number, bits)
    return (single << torch.arange(bits, dtype=torch.uint8, device=packed.device)).sum(1, dtype=torch.uint8)
