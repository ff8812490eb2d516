"""Your own images as tasks: one folder a task, in it one folder a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ucb.bayes.checks import count
from ucb.datasets.formats.images import decoded, is_image
from ucb.seeds import generator_for
from ucb.storage import ceilings, read_bytes
from ucb.stream.builders import VALIDATION, from_arrays, from_datasets, hold_out
from ucb.stream.images import SIDE, measured
from ucb.stream.preparation import Preparation
from ucb.stream.task import Scenario, Stream

FITS = 1 << 31
"""Bytes of pixels up to which a stream's images are kept in memory; more are read from disk again and again."""


class FolderImages(Dataset[tuple[Tensor, int]]):
    """Images of one size from files, read when they are asked for; EXIF rotation is obeyed."""

    def __init__(self, files: Sequence[tuple[Path, int]], classes: Sequence[str], side: int) -> None:
        self.files, self.classes, self.side = list(files), list(classes), side

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.files[index]
        image = decoded(read_bytes(path, ceilings.IMAGE), (self.side, self.side, 3))
        if image is None:
            raise ValueError(f"{path} cannot be read as an image: remove it")
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), label

    def arrays(self) -> tuple[Tensor, Tensor]:
        """Return all images and their labels."""
        x = torch.stack([self[index][0] for index in range(len(self))])
        return x, torch.tensor([label for _, label in self.files])


def folders(
    name: str,
    paths: Sequence[Path],
    *,
    side: int = SIDE,
    seed: int = 0,
    validation: float = VALIDATION,
    scenario: Scenario | None = None,
    workers: int = 2,
    fits: int = FITS,
) -> Stream:
    """Make a task of each folder: of its folders ``train`` and ``test``; without them 15 % of each class is to test.

    All images are resized to ``side`` x ``side`` in colour. They are kept in memory if all fit into ``fits`` bytes;
    otherwise ``workers`` processes read them while the net learns.
    """
    count("side", side)
    if not paths:
        raise ValueError("a task needs a folder")
    parts = {title: _parts(path, side, seed) for title, path in _titles(paths).items()}
    pixels = 3 * side**2 * sum(len(part) for pair in parts.values() for part in pair)
    common: dict[str, Any] = {"seed": seed, "validation": validation, "scenario": scenario}
    if pixels > fits:
        constants = Preparation(mean=(0.5,), std=(0.25,))
        return from_datasets(name, parts, prepare=constants, workers=workers, **common)
    arrays = {title: (*train.arrays(), *test.arrays()) for title, (train, test) in parts.items()}
    stream = from_arrays(name, arrays, **common)
    tasks = []
    for task, (train, _) in zip(stream.tasks, parts.values(), strict=True):
        prepare = measured(arrays[task.name][0])
        tasks.append(replace(task, classes=tuple(train.classes), prepare=prepare))
    return replace(stream, tasks=tuple(tasks))


def _titles(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the folders by what they are called; two of one name are told apart by where they are."""
    names = [path.resolve().name for path in paths]
    titles = [name if names.count(name) == 1 else str(path) for name, path in zip(names, paths, strict=True)]
    if len(set(titles)) < len(titles):
        raise ValueError("a folder is given twice")
    return dict(zip(titles, paths, strict=True))


def _parts(path: Path, side: int, seed: int) -> tuple[FolderImages, FolderImages]:
    """Return a folder's images for training and for testing."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder of class folders")
    if (path / "train").is_dir() and (path / "test").is_dir():
        classes = _classes(path / "train")
        train, test = (_files(path / part, classes) for part in ("train", "test"))
    else:
        classes = _classes(path)
        train, test = [], []
        for label, name in enumerate(classes):
            files = _files(path, [name], label)
            random = generator_for("test", seed, [file.name for file, _ in files])
            kept, held_out = hold_out(len(files), 0.15, random, f"{path.name}/{name}")
            train += [files[i] for i in kept.tolist()]
            test += [files[i] for i in held_out.tolist()]
    for part, files in (("train", train), ("test", test)):
        if missing := [name for number, name in enumerate(classes) if all(number != label for _, label in files)]:
            raise ValueError(f"{path}: class {missing[0]!r} has too few images: none is left to {part}")
    return FolderImages(train, classes, side), FolderImages(test, classes, side)


def _classes(path: Path) -> list[str]:
    classes = sorted(inside.name for inside in path.iterdir() if inside.is_dir() and not inside.name.startswith("."))
    if len(classes) < 2:
        raise ValueError(f"{path} must hold a folder for each of at least two classes, and it holds {len(classes)}")
    return classes


def _files(path: Path, classes: Sequence[str], first: int = 0) -> list[tuple[Path, int]]:
    """Return all images below a folder's class folders, in an order that does not depend on the disk."""
    found = []
    for label, name in enumerate(classes, start=first):
        images = sorted(file for file in (path / name).rglob("*") if is_image(file.name) and file.is_file())
        found += [(image, label) for image in images]
    return found
