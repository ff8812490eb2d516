"""Where data sets are kept, and how they are loaded."""

from __future__ import annotations

import os
from pathlib import Path

from ucb.datasets.arrays import Arrays, read_arrays
from ucb.datasets.catalogue import DataSet, find

VARIABLE = "UCB_DATA"


def folder() -> Path:
    """Return the folder of the array files: ``$UCB_DATA``, or ``ucb/data`` in the user's cache folder."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a path which is not absolute is to be ignored.
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "ucb" / "data"


def array_file(name: str, where: Path | None = None) -> Path:
    """Return where the arrays of a data set are, or would be."""
    return (where or folder()) / f"{find(name).name}.npz"


def downloads(name: str, where: Path | None = None) -> Path:
    """Return the folder of a data set's official files."""
    return (where or folder()) / "downloads" / find(name).name


def load(name: str, where: Path | None = None) -> Arrays:
    """Return the arrays of a data set; if they are not there, say in one sentence what to do."""
    path = array_file(name, where)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: {how_to_get(find(name))}")
    return read_arrays(path)


def how_to_get(known: DataSet) -> str:
    """Say how to come by a data set, with and without a network."""
    by_hand = f"or put an array file {known.name}.npz there"
    if known.fetched_by_hand():
        return f"run `ucb data import {known.name} FOLDER` with a folder of images for each class, {by_hand}"
    files = ", ".join(file.urls[0] for file in known.files)
    return (
        f"run `ucb data get {known.name}`, or fetch {files}{_saved_as(known)} elsewhere "
        f"and run `ucb data import {known.name} FILES`, {by_hand}"
    )


def _saved_as(known: DataSet) -> str:
    """Say what to call a file whose address does not end in its name."""
    renamed = [file.name for file in known.files if not file.urls[0].endswith(f"/{file.name}")]
    return f" (saved as {', '.join(renamed)})" if renamed else ""
