"""Several tasks' examples as one: for joint training, and for streams whose tasks fade into each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ucb.bayes.checks import count
from ucb.stream.examples import Examples, checked_indices
from ucb.stream.preparation import Preparation


@dataclass(frozen=True)
class Part:
    """One task's examples, how its pixels become inputs, and where its outputs begin."""

    examples: Examples
    prepare: Preparation
    first_output: int


class MixedExamples(Examples):
    """The examples of all parts, numbered one part after the other, and served as inputs that are ready for the net.

    With ``rows``, example i is number ``rows[i]`` of these.
    """

    def __init__(self, parts: Sequence[Part], rows: Tensor | None = None) -> None:
        self.parts = tuple(parts)
        self.is_fixed = all(part.examples.is_fixed for part in parts)
        self.ends = torch.tensor([len(part.examples) for part in parts]).cumsum(0)
        whole = int(self.ends[-1])
        self.rows = torch.arange(whole) if rows is None else checked_indices("rows", rows, whole)

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y); each batch is gathered part by part and put in the order asked for."""
        checked_indices("order", order, len(self))
        count("batch_size", batch_size)
        return (self._batch(rows, device) for rows in self.rows[order.cpu()].split(batch_size) if len(rows))

    def _batch(self, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        owner = torch.bucketize(rows, self.ends, right=True)
        xs, ys, places = [], [], []
        for index in owner.unique().tolist():
            part, place = self.parts[index], (owner == index).nonzero().squeeze(1)
            own = rows[place] - (self.ends[index] - len(part.examples))
            for x, y in part.examples.batches(own, len(own), device):
                xs.append(part.prepare(x))
                ys.append(y + part.first_output)
            places.append(place)
        back = torch.cat(places).argsort().to(device)
        return torch.cat(xs)[back], torch.cat(ys)[back]
