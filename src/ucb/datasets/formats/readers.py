"""Which parser reads which data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ucb.datasets.catalogue import DataSet
from ucb.datasets.formats.cifar import read_cifar
from ucb.datasets.formats.class_folders import FACE, read_folders
from ucb.datasets.formats.gtsrb import read_gtsrb
from ucb.datasets.formats.idx import read_idx
from ucb.datasets.formats.parsed import Parsed
from ucb.datasets.formats.svhn import read_svhn

FIXED_CLASSES: dict[str, Callable[[Sequence[Path], tuple[str, ...]], Parsed]] = {
    "mnist": read_idx,
    "fashion_mnist": read_idx,
    "cifar10": read_cifar,
    "cifar100": read_cifar,
    "svhn": read_svhn,
    "traffic_signs": read_gtsrb,
}


def parse(known: DataSet, files: Sequence[Path]) -> Parsed:
    """Read the official files of a data set, in the order of the catalogue, or the one folder given instead."""
    if known.name in FIXED_CLASSES:
        assert known.classes is not None
        return FIXED_CLASSES[known.name](files, known.classes)
    enlarged = FACE if known.name == "lfw100" else 1.0
    return read_folders(files, known.classes, known.shape, known.n_classes, enlarged)
