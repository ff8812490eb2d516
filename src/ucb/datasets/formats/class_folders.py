"""Images in a folder for each class, in an archive or on disk, without an official split."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from ucb.datasets.arrays import Arrays, Images
from ucb.datasets.formats.images import decoded, is_image
from ucb.datasets.formats.members import members, names
from ucb.datasets.formats.parsed import Parsed
from ucb.storage import ceilings

SEED = 0
FACE = 2.2  # LFW's images show 2.2 times as much, in both directions, as the box in which a face was found


def read_folders(
    files: Sequence[Path],
    classes: tuple[str, ...] | None,
    shape: tuple[int, ...],
    most: int | None = None,
    enlarged: float = 1.0,
) -> Parsed:
    """Read the folders of the given classes, or of the ``most`` classes that have most images.

    Images that cannot be read are counted. A tenth of each class, chosen by the hash of seed and name, is for testing:
    the same in an archive and in a folder, whatever the order of the files.
    """
    (path,) = files
    if classes is None:
        classes = _largest(path, most)
    label = {name: number for number, name in enumerate(classes)}
    found: dict[str, Images] = {}
    unreadable = 0
    for name, content in members(path, lambda name: is_image(name) and _class(name) in label):
        if _short(name) in found:
            raise ValueError(f"{path} has more than one {_short(name)}: give one folder of class folders")
        image = decoded(content, shape, enlarged)
        if image is None:
            unreadable += 1
        else:
            found[_short(name)] = image
            if image.nbytes * len(found) > ceilings.UNPACKED:
                raise ValueError(f"{path}: its images take more than {ceilings.UNPACKED:,} bytes: give fewer of them")
    train, test = split(path, found, classes)
    parts = [
        (np.stack([found[name] for name in part]), np.array([label[_class(name)] for name in part], np.int64))
        for part in (train, test)
    ]
    return Parsed(Arrays(*parts[0], *parts[1], classes), unreadable)


def split(path: Path, found: dict[str, Images], classes: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the names of the images for training and for testing, each in an order that mixes the classes."""
    ordered = sorted(found, key=lambda name: hashlib.sha256(f"{SEED}/{name}".encode()).digest())
    total = Counter(_class(name) for name in ordered)
    taken: Counter[str] = Counter()
    train, test = [], []
    for label in classes:
        if total[label] < 2:
            raise ValueError(f"{path}: class {label} has {total[label]} readable images; it takes 2 at least")
    for name in ordered:
        label = _class(name)
        if taken[label] < max(1, (total[label] + 5) // 10):
            taken[label] += 1
            test.append(name)
        else:
            train.append(name)
    return train, test


def _largest(path: Path, most: int | None) -> tuple[str, ...]:
    """Return the classes that have most images, sorted by name; among equals the first in the alphabet are taken."""
    sizes = Counter(_class(name) for name in names(path) if is_image(name) and _class(name))
    if most is not None and len(sizes) < most:
        raise ValueError(f"{path} has images in {len(sizes)} class folders; {most} are needed")
    return tuple(sorted(sorted(sizes, key=lambda name: (-sizes[name], name))[:most]))


def _class(name: str) -> str:
    """Return the name of the folder that an image is in."""
    return PurePosixPath(name).parent.name


def _short(name: str) -> str:
    return "/".join(PurePosixPath(name).parts[-2:])
