"""A folder of class folders: the name of a folder is the class of all images below it, at any depth."""

from __future__ import annotations

import os
from pathlib import Path

from ucb.datasets.formats.images import is_image
from ucb.waves.sources.examples import Shape
from ucb.waves.sources.image_files import ImageFiles, shape_of_files
from ucb.waves.sources.walking import Identity, Walk, entries, identity
from ucb.waves.sources.words import counted, lonely, one_form, shown

PARTS = {"train", "training", "test", "testing", "val", "valid", "validation"}
EXPECTED = "expected is a folder for each class with its images inside, as in"


def read_class_folders(path: Path, like: Shape | None) -> ImageFiles:
    """Read a folder of class folders. Hidden files and folders are not seen; other files are counted in a remark."""
    root = os.fspath(path)
    where = shown(root)
    inside = [entry.path for entry in entries(root)]
    folders = [entry for entry in inside if os.path.isdir(entry)]
    _check(where, folders, any(is_image(os.path.basename(entry)) for entry in inside))
    closed = _closed(path, folders)
    loose = Walk(root=root)
    for entry in inside:
        if entry not in folders:
            loose.take(entry)
    paths, labels, skipped, remarks = [], [], list(loose.skipped), _outside(len(loose.images))
    others, empty = loose.others, []
    for folder in folders:
        walk = Walk(closed, root)
        walk.below(folder)
        name = one_form(os.path.basename(folder))
        paths += walk.images
        labels += [name] * len(walk.images)
        skipped += walk.skipped
        others += walk.others
        if not walk.images:
            empty.append(name)
    if not paths:
        raise ValueError(f"{where}: its class folders hold no images; {EXPECTED} {where}/cat/1.png")
    loose.others = others
    remarks += loose.remarks() + [f"class folder {name!r} holds no images" for name in empty] + lonely(labels)
    shape = shape_of_files(where, paths) if like is None else like
    examples = ImageFiles(paths, [loose.name(file) for file in paths], labels, shape, remarks)
    examples.skipped += skipped
    return examples


def _check(where: str, folders: list[str], has_images: bool) -> None:
    """Say in a sentence what is expected where a folder is something else."""
    if not folders:
        what = "holds images, but no class folders" if has_images else "holds no class folders"
        raise ValueError(f"{where} {what}: {EXPECTED} {where}/cat/1.png")
    names = [os.path.basename(folder) for folder in folders]
    if len(names) > 1 and {name.lower() for name in names} <= PARTS:
        raise ValueError(f"{where} holds {' and '.join(names)}, which are no classes: give one of them")


def _closed(path: Path, folders: list[str]) -> set[Identity]:
    """Return the folders that no link may lead to: the classes, and what lies around them."""
    whole = path.resolve()
    return {identity(folder) for folder in (str(whole), *map(str, whole.parents), *folders)}


def _outside(number: int) -> list[str]:
    if not number:
        return []
    return [
        counted(number, "image lies in no class folder and is", "images lie in no class folder and are") + " left out"
    ]
