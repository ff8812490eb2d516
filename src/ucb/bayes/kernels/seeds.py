"""Seeds of noise on a device: one at a time, or all that several generators would draw next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from ucb.bayes.kernels.launch import available, launch


def new_seed(device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Draw a seed on the device, out of so many that those of two steps do not come near each other."""
    return torch.randint(1 << 62, (1,), device=device, generator=generator)


def seeds_ahead(generators: Sequence[torch.Generator], count: int, device: torch.device) -> Tensor:
    """Return the next seeds of each run's generator, [count, runs], without moving it.

    ``new_seed`` would give the same ones, each in a launch of its own.
    """
    states = [generator.get_state() for generator in generators]
    if device.type == "cuda" and _draws_as_known(device):
        return _ahead(states, count, device)
    return _one_by_one(states, count, device)


def move_on(generator: torch.Generator, state: Tensor, draws: int) -> None:
    """Bring a generator to where ``new_seed`` would have brought it from ``state`` with so many draws."""
    device = generator.device
    if device.type == "cuda" and _draws_as_known(device):
        moved = state.clone()
        moved.view(torch.int64)[1] += STEP * draws
        generator.set_state(moved)
        return
    generator.set_state(state)
    for _ in range(draws):
        new_seed(device, generator)


STEP = 4
"""How far a draw moves PyTorch's generator of a GPU, which is Philox too: a counter has four numbers."""


@cache
def _draws_as_known(device: torch.device) -> bool:
    """Say whether this version of PyTorch draws a seed as ``ahead_kernel`` does."""
    if not available(device):
        return False
    generator = torch.Generator(device).manual_seed(2**40 + 12345)
    for _ in range(3):
        new_seed(device, generator)
    states = [generator.get_state()]
    is_same = torch.equal(_ahead(states, 5, device), _one_by_one(states, 5, device))
    for _ in range(5):
        new_seed(device, generator)
    moved = states[0].view(torch.int64)
    return is_same and generator.get_state().view(torch.int64).tolist() == [int(moved[0]), int(moved[1]) + 5 * STEP]


def _ahead(states: list[Tensor], count: int, device: torch.device) -> Tensor:
    from_host = torch.stack(states).view(torch.int64).to(device)
    seeds = torch.empty((count, len(states)), dtype=torch.int64, device=device)
    n = seeds.numel()
    launch("ahead_kernel", n, from_host, seeds, n, len(states))
    return seeds


def _one_by_one(states: list[Tensor], count: int, device: torch.device) -> Tensor:
    columns = []
    for state in states:
        generator = torch.Generator(device)
        generator.set_state(state)
        seeds = [new_seed(device, generator) for _ in range(count)]
        columns.append(torch.cat([torch.empty(0, dtype=torch.int64, device=device), *seeds]))
    return torch.stack(columns, 1)
