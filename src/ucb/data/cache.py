"""Where data sets are kept as array files, the hashes that are recorded beside them, and how they are loaded."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from pathlib import Path

from ucb.data.catalogue import CATALOGUE, DataSet, find
from ucb.data.readers.arrays import Arrays, read_arrays
from ucb.storage import ceilings, open_checked, read_json, write_atomically

VARIABLE = "UCB_DATA"
HASHES = "hashes.json"


def folder() -> Path:
    """Return the folder of the array files: ``$UCB_DATA``, or ``ucb/data`` in the user's cache folder."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a path which is not absolute is to be ignored.
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "ucb" / "data"


def array_file(name: str) -> Path:
    """Return where the arrays of a data set are, or would be."""
    return folder() / f"{find(name).name}.npz"


def present() -> list[str]:
    """Return the names of the data sets whose array files are there."""
    return [name for name in CATALOGUE if array_file(name).is_file()]


def load(name: str) -> Arrays:
    """Return the arrays of a data set; if they are not there, say in one sentence what to do."""
    path = array_file(name)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: {how_to_get(find(name))}")
    return read_arrays(path)


def how_to_get(known: DataSet) -> str:
    """Say how to come by a data set, with and without a network."""
    by_hand = f"or put an array file {known.name}.npz there"
    if not known.files:
        return f"run `ucb data import {known.name} FOLDER` with a folder of images for each class, {by_hand}"
    files = ", ".join(file.urls[0] for file in known.files)
    renamed = [file.name for file in known.files if not file.urls[0].endswith(f"/{file.name}")]
    saved_as = f" (saved as {', '.join(renamed)})" if renamed else ""  # where an address does not end in the name
    return (
        f"run `ucb data get {known.name}`, or fetch {files}{saved_as} elsewhere "
        f"and run `ucb data import {known.name} FILES`, {by_hand}"
    )


def verify(name: str) -> str:
    """Return what an array file holds; if anything is wrong with it, say so in one sentence."""
    known, path = find(name), array_file(name)
    arrays = load(name)
    if len(arrays.class_names) != known.n_classes or arrays.x_train.shape[1:] != known.shape:
        shape = "x".join(str(side) for side in known.shape)
        raise ValueError(f"{path} holds {arrays}; {known.title} has {known.n_classes} classes and images {shape}")
    for part, x, count in (("train", arrays.x_train, known.train), ("test", arrays.x_test, known.test)):
        if count is not None and len(x) != count:
            raise ValueError(f"{path} holds {len(x):,} images to {part}; {known.title} has {count:,}")
    recorded = RecordedHashes(path.parent).get(path.name)
    if recorded is None:
        return f"{arrays}; no hash of it is recorded"
    if wrong := differs(path, recorded):
        raise ValueError(f"{wrong} as recorded when it was made")
    return f"{arrays}; its hash is the recorded one"


class RecordedHashes:
    """Hashes of files without a published one, recorded when they were first used: ``name -> algorithm:hex``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / HASHES

    def get(self, name: str) -> str | None:
        """Return the recorded hash of that name, if there is one."""
        return self._read().get(name)

    def put(self, name: str, digest: str) -> None:
        """Record a hash."""
        known = self._read() | {name: digest}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (json.dumps(known, indent=2, sort_keys=True) + "\n").encode())

    def _read(self) -> dict[str, str]:
        try:
            known = read_json(self.path)
        except FileNotFoundError:
            return {}
        except ValueError:
            known = None
        if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
            raise ValueError(f"{self.path} is damaged: remove it, and hashes will be recorded anew")
        return known


def digest_of(path: Path, algorithm: str = "sha256") -> str:
    """Return ``algorithm:hex`` of a file, or of a folder's file names and contents."""
    if path.is_dir():
        whole = hashlib.new(algorithm, usedforsecurity=False)
        for inside in sorted(each for each in path.rglob("*") if each.is_file()):
            whole.update(f"{inside.relative_to(path).as_posix()}\0{digest_of(inside, algorithm)}\n".encode())
        return f"{algorithm}:{whole.hexdigest()}"
    with open_checked(path, ceilings.OFFICIAL) as file:
        # MD5 is all that is published for some files; it finds damage, which is what it is for here.
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{found.hexdigest()}"


def digest_of_unzipped(path: Path, like: str | None) -> str | None:
    """Return the hash of what is in a gzipped file, by the algorithm of another hash; None if it cannot be read."""
    whole = hashlib.new((like or "sha256").partition(":")[0], usedforsecurity=False)
    try:
        with open_checked(path, ceilings.OFFICIAL) as packed, gzip.open(packed) as file:
            while (chunk := file.read(1 << 20)) and file.tell() <= ceilings.MEMBER:
                whole.update(chunk)
    except (OSError, EOFError, zlib.error):
        return None
    return f"{whole.name}:{whole.hexdigest()}"


def differs(path: Path, expected: str) -> str | None:
    """Return a sentence that names file, expected and found hash, or None where they agree."""
    found = digest_of(path, expected.partition(":")[0])
    return None if found == expected else f"{path} is not the expected file: its hash is {found}, not {expected}"
