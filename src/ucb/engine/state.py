"""Nested state (dicts and lists of tensors, numbers and words) as flat tensors and JSON, and back, exactly.

Nothing is pickled: a file that came from somebody else can run no code.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import torch
from torch import Tensor

State = Any
"""A tree of dicts (with str or int keys), lists, tuples, tensors, numbers, words, truth values and None."""

_PLAIN = (bool, int, float, str, type(None))
"""What JSON takes as it is."""


def flatten(state: State) -> tuple[State, dict[str, Tensor]]:
    """Return a JSON tree that refers to tensors by name, and the tensors."""
    tensors: dict[str, Tensor] = {}
    return _to_json(state, "", tensors), tensors


def unflatten(tree: State, tensors: dict[str, Tensor]) -> State:
    """Undo ``flatten``."""
    if isinstance(tree, list):
        return [unflatten(value, tensors) for value in tree]
    if not isinstance(tree, dict):
        return tree
    (kind, value), *rest = tree.items()
    assert not rest
    if kind == "tensor":
        return tensors[value]
    if kind == "number":  # what JSON has no word for: infinity and NaN
        return float(value)
    if kind == "tuple":
        return tuple(unflatten(v, tensors) for v in value)
    return {(key if is_word else int(key)): unflatten(v, tensors) for key, is_word, v in value}


def compress(data: bytes) -> Tensor:
    """Return bytes as a tensor of fewer: names, and accuracies of many tasks, are much alike."""
    return torch.frombuffer(bytearray(zlib.compress(data)), dtype=torch.uint8)


def decompress(compressed: Tensor, most: int) -> bytes:
    """Undo ``compress``; more than ``most`` bytes come back as one too many: few bytes could become any number."""
    return zlib.decompressobj().decompress(compressed.numpy().tobytes(), most + 1)


class Copy:
    """A copy of a state. A later one of the same tensors goes into its memory, at one go."""

    def __init__(self, state: State) -> None:
        self.tree: State = None
        self.tensors: dict[str, Tensor] = {}
        self._alike: list[list[str]] = []
        """The names of tensors that are copied together: of one type, on one device."""
        self.renew(state)

    @torch.no_grad()
    def renew(self, state: State) -> None:
        """Become a copy of another state."""
        self.tree, tensors = flatten(state)
        if self._has_room_for(tensors):
            for names in self._alike:
                torch._foreach_copy_([self.tensors[name] for name in names], [tensors[name] for name in names])
            return
        self.tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        alike: dict[object, list[str]] = {}
        for name, tensor in tensors.items():
            alike.setdefault((tensor.dtype, tensor.device), []).append(name)
        self._alike = list(alike.values())

    def _has_room_for(self, tensors: dict[str, Tensor]) -> bool:
        mine = self.tensors
        return mine.keys() == tensors.keys() and all(mine[name].shape == tensors[name].shape for name in mine)

    @property
    def state(self) -> State:
        """The state, in this copy's memory."""
        return unflatten(self.tree, self.tensors)


def brought_to(device: torch.device, state: State) -> State:
    """Return a method's state with its tensors on a device, but for that of a generator, which is kept on the CPU."""
    if isinstance(state, Tensor):
        return state.to(device)
    if isinstance(state, dict):
        return {k: v if k == "generator" else brought_to(device, v) for k, v in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(brought_to(device, value) for value in state)
    return state


def _to_json(state: State, name: str, tensors: dict[str, Tensor]) -> State:
    if isinstance(state, Tensor):
        tensors[name] = state.detach() if state.requires_grad else state
        return {"tensor": name}
    if isinstance(state, dict):
        return {"dict": [[str(k), isinstance(k, str), _to_json(v, f"{name}/{k}", tensors)] for k, v in state.items()]}
    if isinstance(state, tuple):
        return {"tuple": [_to_json(v, f"{name}/{i}", tensors) for i, v in enumerate(state)]}
    if isinstance(state, list):
        return [_to_json(v, f"{name}/{i}", tensors) for i, v in enumerate(state)]
    if isinstance(state, float) and not math.isfinite(state):
        return {"number": repr(state)}
    if isinstance(state, _PLAIN):
        return state
    raise TypeError(f"a state cannot hold a {type(state).__name__} (at {name or 'its root'})")
