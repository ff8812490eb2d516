"""Your own images as tasks: one folder a task, in it one folder a class. An image that cannot be read is left out."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ucb.checks import count
from ucb.data.readers.folders import ClassFolders, ImageFiles
from ucb.data.readers.images import quiet
from ucb.data.readers.reader import MOST_NAMES, count_words
from ucb.data.streams.benchmarks import VALIDATION, from_arrays, from_datasets, hold_out
from ucb.data.streams.sources import SIDE, measure_pixels
from ucb.data.streams.tasks import Preparation, Scenario, Stream
from ucb.seeds import generator_for

FITS = 1 << 31
"""Bytes of pixels up to which a stream's images are kept in memory; more are read from disk again and again."""
BATCH = 512


class FolderImages(Dataset[tuple[Tensor, int]]):
    """Images of one size from files, each with the number of its class.

    All are read at the start. Those that cannot be read are left out; with ``keep`` the others stay in memory, else
    they are read again when they are asked for.
    """

    def __init__(self, images: ImageFiles, classes: Sequence[str], keep: bool) -> None:
        self.images, self.classes = images, list(classes)
        everything = images.batches(torch.arange(len(images)), BATCH)
        read = [(positions, x if keep else None) for positions, x in everything]
        self.positions = [position for positions, _ in read for position in positions.tolist()]
        self.pixels = torch.cat([x for _, x in read if x is not None]) if keep and read else None
        assert images.labels is not None
        number = {name: label for label, name in enumerate(classes)}
        self.labels = [number[images.labels[position]] for position in self.positions]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with quiet():
            image = self.images.read(self.positions[index])
        if isinstance(image, str):
            path = self.images.paths[self.positions[index]]
            raise ValueError(f"{path} could be read when the run began, and cannot be read now: {image}")
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), self.labels[index]

    def pick(self, rows: Sequence[int]) -> FolderImages:
        """Return some of the images."""
        some = copy(self)
        some.positions, some.labels = [self.positions[row] for row in rows], [self.labels[row] for row in rows]
        some.pixels = None if self.pixels is None else self.pixels[rows]
        return some

    def arrays(self) -> tuple[Tensor, Tensor]:
        """Return all images that are kept, and their labels."""
        assert self.pixels is not None
        return self.pixels, torch.tensor(self.labels)


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
    otherwise ``workers`` processes read them while the net learns. An image that cannot be read is left out and named
    in the stream's remarks: the tasks are as if it were not there.
    """
    count("side", side)
    if not paths:
        raise ValueError("a task needs a folder")
    found = {title: _find(path, side) for title, path in _titles(paths).items()}
    keep = 3 * side**2 * sum(len(images) for _, given in found.values() for images in given.values()) <= fits
    parts = {title: _split(title, classes, given, seed, keep) for title, (classes, given) in found.items()}
    remarks = tuple(line for _, given in found.values() for folder in given.items() for line in _remarks(*folder))
    common: dict[str, Any] = {"seed": seed, "validation": validation, "scenario": scenario}
    if not keep:
        constants = Preparation(mean=(0.5,), std=(0.25,))
        return replace(from_datasets(name, parts, prepare=constants, workers=workers, **common), remarks=remarks)
    arrays = {title: (*train.arrays(), *test.arrays()) for title, (train, test) in parts.items()}
    stream = from_arrays(name, arrays, **common)
    tasks = []
    for task, (train, _) in zip(stream.tasks, parts.values(), strict=True):
        prepare = measure_pixels(arrays[task.name][0])
        tasks.append(replace(task, classes=tuple(train.classes), prepare=prepare))
    return replace(stream, tasks=tuple(tasks), remarks=remarks)


def _titles(paths: Sequence[Path]) -> dict[str, Path]:
    """Return the folders by what they are called; two of one name are told apart by where they are."""
    names = [path.resolve().name for path in paths]
    titles = [name if names.count(name) == 1 else str(path) for name, path in zip(names, paths, strict=True)]
    if len(set(titles)) < len(titles):
        raise ValueError("a folder is given twice")
    return dict(zip(titles, paths, strict=True))


def _find(path: Path, side: int) -> tuple[list[str], dict[str, ImageFiles]]:
    """Return a task's classes, and its images by where they are: in one folder, or in those to train and to test."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder of class folders")
    halves = [path / part for part in ("train", "test") if (path / part).is_dir()]
    given = [ClassFolders(each) for each in (halves if len(halves) == 2 else [path])]
    classes = given[0].classes
    if len(classes) < 2:
        what = f"must hold a folder for each of at least two classes, and it holds {len(classes)}"
        raise ValueError(f"{given[0].where} {what}")
    number = {name: label for label, name in enumerate(classes)}
    found = {}
    for folder in given:
        files = zip(folder.paths, folder.names, folder.labels, strict=True)
        known = [each for each in files if each[2] in number]
        known.sort(key=lambda each: (number[each[2]], Path(each[0])))
        paths, names, labels = ([each[place] for each in known] for place in range(3))
        found[folder.where] = ImageFiles(
            paths, names, labels, (3, side, side), folder.remarks, folder.skipped, exact=True
        )
    return classes, found


def _split(
    title: str, classes: list[str], given: dict[str, ImageFiles], seed: int, keep: bool
) -> tuple[FolderImages, FolderImages]:
    """Return a task's images for training and for testing."""
    parts = [FolderImages(images, classes, keep) for images in given.values()]
    for where, part in zip(given, parts, strict=True):
        if missing := sorted(set(range(len(classes))) - set(part.labels)):
            name = classes[missing[0]]
            why = "can be read: mend or remove it" if name in (part.images.labels or ()) else "is there"
            raise ValueError(f"{where}: no image of the class {name!r} {why}")
    if len(parts) == 2:
        return parts[0], parts[1]
    (whole,) = parts
    rows_of: list[list[int]] = [[] for _ in classes]
    for row, label in enumerate(whole.labels):
        rows_of[label].append(row)
    train, test = list[int](), list[int]()
    for name, rows in zip(classes, rows_of, strict=True):
        random = generator_for("test", seed, [Path(whole.images.paths[whole.positions[row]]).name for row in rows])
        kept, held_out = hold_out(len(rows), 0.15, random, f"{title}/{name}")
        train += [rows[place] for place in kept.tolist()]
        test += [rows[place] for place in held_out.tolist()]
    return whole.pick(train), whole.pick(test)


def _remarks(where: str, images: ImageFiles) -> list[str]:
    """Say what of a folder is left out."""
    remarks = list(images.remarks)
    if skipped := images.skipped:
        named = [f"{each.name} ({each.why})" for each in skipped[:MOST_NAMES]]
        more = f" and {len(skipped) - MOST_NAMES} more" if len(skipped) > MOST_NAMES else ""
        words = count_words(len(skipped), "image cannot be read and is", "images cannot be read and are")
        remarks.append(f"{words} left out: {', '.join(named)}{more}")
    return [f"{where}: {remark}" for remark in remarks]
