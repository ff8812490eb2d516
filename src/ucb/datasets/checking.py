"""Whether an array file is what it should be."""

from __future__ import annotations

from pathlib import Path

from ucb.datasets import cache
from ucb.datasets.catalogue import CATALOGUE, find
from ucb.datasets.hashes import Record, differs


def present(where: Path | None = None) -> list[str]:
    """Return the names of the data sets whose array files are there."""
    return [name for name in CATALOGUE if cache.array_file(name, where).is_file()]


def verify(name: str, where: Path | None = None) -> str:
    """Return what an array file holds; if anything is wrong with it, say so in one sentence."""
    known, path = find(name), cache.array_file(name, where)
    arrays = cache.load(name, where)
    if len(arrays.class_names) != known.n_classes or arrays.x_train.shape[1:] != known.shape:
        shape = "x".join(str(side) for side in known.shape)
        raise ValueError(f"{path} holds {arrays}; {known.title} has {known.n_classes} classes and images {shape}")
    for part, x, count in (("train", arrays.x_train, known.train), ("test", arrays.x_test, known.test)):
        if count is not None and len(x) != count:
            raise ValueError(f"{path} holds {len(x):,} images to {part}; {known.title} has {count:,}")
    recorded = Record(path.parent).get(path.name)
    if recorded is None:
        return f"{arrays}; no hash of it is recorded"
    if wrong := differs(path, recorded):
        raise ValueError(f"{wrong} as recorded when it was made")
    return f"{arrays}; its hash is the recorded one"
