"""Going through examples in portions, and whatever form data come in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from ucb.data.readers import ExampleReader as Examples
from ucb.data.readers import Shape, labelled
from ucb.waves.arrays import Array, ArrayExamples, Labels
from ucb.waves.fields import LONGEST, checked_text

ROWS = 256
"""Examples that are read and learnt together."""
PORTION = 8 * ROWS
"""Examples between two places where work can be taken up again."""

Data = str | Path | Examples | tuple[Array, Labels]
"""A folder or a file, examples, or a pair of inputs and labels."""


def as_examples(
    data: Data, like: Shape | None = None, label: str | None = None, columns: list[str] | None = None
) -> Examples:
    """Return labelled examples, of the shape ``like`` where one is settled."""
    if isinstance(data, str | Path):
        examples = labelled(Path(data), like, label=label, columns=columns)
    elif isinstance(data, Examples):
        examples = data
    elif isinstance(data, tuple) and len(data) == 2:
        examples = ArrayExamples(*data)
    else:
        raise ValueError(f"data must be a folder, a file, or a pair of inputs and labels, not {type(data).__name__}")
    if examples.labels is None:
        raise ValueError("the examples have no labels to learn from")
    if like is not None and tuple(examples.shape) != tuple(like):
        raise ValueError(f"the examples have shape {tuple(examples.shape)}, and the model knows {tuple(like)}")
    if len(examples) == 0:
        raise ValueError("there are no examples")
    for name in set(examples.labels):
        if not 0 < len(name) <= LONGEST:  # the model's file could not be read again
            raise ValueError(f"the name of a class must have 1 to {LONGEST} characters, not {len(name)}: {name[:30]!r}")
        checked_text(f"the name {name[:30]!r} of a class", name)
    return examples


def portions(examples: Examples, rows: Tensor, done: int = 0) -> Iterator[tuple[int, Iterator[tuple[Tensor, Tensor]]]]:
    """Yield portions of the examples ``rows``, each as batches, with how many are done once it has been read."""
    for some in rows[done:].split(PORTION):
        if len(some):
            done += len(some)
            yield done, examples.batches(some, ROWS)
