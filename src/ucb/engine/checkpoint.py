"""Checkpoints that survive anything: a kill inside a write, a full disk, a flipped bit.

A checkpoint is one safetensors file whose name carries the hash of its content. It is written beside, flushed to disk
and renamed; the one before stays until the new one is whole. So whatever happens, some valid checkpoint is there, and
an invalid one is known by its name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import safetensors.torch

from ucb.storage import (
    State,
    ceilings,
    compress,
    decompress,
    flatten,
    read_bytes,
    rename_old_keys,
    unflatten,
    write_atomically,
)

FORMAT = 2
READ = ("1", "2")
"""The formats that are read. In the first, the tree of names and numbers lay in the header, as text."""
TREE = "tree"
"""The tensor that holds the tree now: others begin with a slash."""
MOST_TEXT = 1 << 26
"""Of the tree: the few bytes that a file takes for it could else become any number."""
_BLANK = "0" * 64
_NAME = re.compile(r"checkpoint-(\d{6})-([0-9a-f]{16})\.safetensors")


class OtherFormatError(ValueError):
    """A file that another version of ucb wrote."""


class Found(NamedTuple):
    """A checkpoint that was read, and the damaged ones that were passed over."""

    state: State
    path: Path
    damaged: list[Path]


class Checkpoints(Protocol):
    """Where a run keeps its state while it learns, to go on from there in another process."""

    path: Path
    """Where the state is that was loaded."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to save inside a task, as far as the place is concerned."""

    def save(self, state: State) -> None:
        """Keep a state, in the place of earlier ones."""

    def load(self) -> State | None:
        """Return the state that was kept last, or None where there is none."""


class FolderCheckpoints:
    """The checkpoints in a run's folder."""

    is_due = True

    def __init__(self, folder: Path, note: Callable[[str], None] = lambda sentence: None) -> None:
        self.path = self.folder = folder
        self._note = note
        self._damaged: list[Path] = []

    def save(self, state: State) -> None:
        """Write a new checkpoint."""
        for path in self._damaged:  # else the new one would take the place of the whole one
            path.unlink(missing_ok=True)
        self._damaged = []
        save(self.folder, state)

    def load(self) -> State | None:
        """Return the newest state that is whole, and say which are damaged."""
        found = load(self.folder)
        if found is None:
            return None
        self.path, self._damaged = found.path, found.damaged
        for path in found.damaged:
            self._note(f"{path.name} is damaged; the one before it is used")
        return found.state


def save(folder: Path, state: State) -> Path:
    """Write a new checkpoint into ``folder``; keep the last one beside it and remove what is older."""
    data = pack(state)
    before = _list(folder)
    number = before[-1][0] + 1 if before else 1
    path = folder / f"checkpoint-{number:06d}-{_digest(data)}.safetensors"
    write_atomically(path, data)
    for old in [*(old for _, old in before[:-1]), *folder.glob("checkpoint-*.part")]:  # a kill leaves parts behind
        old.unlink(missing_ok=True)
    return path


def load(folder: Path) -> Found | None:
    """Return the newest checkpoint that is whole, or None where there is none."""
    damaged: list[Path] = []
    for _, path in reversed(_list(folder)):
        data = read_bytes(path, ceilings.CHECKPOINT)
        if _NAME.fullmatch(path.name)[2] == _digest(data):  # type: ignore[index]
            return Found(_unpack_file(path, data), path, damaged)
        damaged.append(path)
    if damaged:
        names = ", ".join(path.name for path in damaged)
        raise OSError(f"every checkpoint in {folder} is damaged: {names}")
    return None


def pack(state: State, *, sealed: bool = False) -> bytes:
    """Return a state as the bytes of a safetensors file; ``sealed``, they hold their own hash."""
    tree, tensors = flatten(state)
    packed = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(tree).encode()
    if len(text) > MOST_TEXT:
        raise ValueError(f"names and numbers of a state take {len(text)} bytes, and may take {MOST_TEXT}")
    packed[TREE] = compress(text)
    facts = {"format": str(FORMAT)}
    if not sealed:
        return safetensors.torch.save(packed, facts)
    blank = safetensors.torch.save(packed, facts | {"sha256": _BLANK})
    return blank.replace(_seal(_BLANK), _seal(hashlib.sha256(blank).hexdigest()), 1)


def unpack(data: bytes) -> State:
    """Undo ``pack``; bytes that are sealed must be those that were written."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])["__metadata__"]
    if "sha256" in header:
        blank = data.replace(_seal(header["sha256"]), _seal(_BLANK), 1)
        if hashlib.sha256(blank).hexdigest() != header["sha256"]:
            raise ValueError("the content is not what was written")
    if header["format"] not in READ:
        raise OtherFormatError(f"the checkpoint has format {header['format']}, and this version reads up to {FORMAT}")
    tensors = safetensors.torch.load(data)
    text = header["state"] if header["format"] == "1" else decompress(tensors.pop(TREE), MOST_TEXT)
    if len(text) > MOST_TEXT:
        raise ValueError("names and numbers of the state take too much memory")
    return unflatten(json.loads(text), tensors)


def _unpack_file(path: Path, data: bytes) -> State:
    try:
        return unpack(data)
    except OtherFormatError:
        raise
    except Exception as error:  # whoever writes a file can give it the hash in its name, and broken bytes any error
        raise OSError(f"{path} is no checkpoint: {type(error).__name__}: {error}") from None


def _seal(digest: str) -> bytes:
    """Return how a header has the hash. The hash is that of the same bytes with zeros in its place."""
    return f'"sha256":"{digest}"'.encode()


def _list(folder: Path) -> list[tuple[int, Path]]:
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted(found)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def refuse_other(saved: dict[str, Any], present: dict[str, Any]) -> None:
    """Refuse a state that another configuration made, and say what differs."""
    saved, present = rename_old_keys(saved), rename_old_keys(present)
    different = [
        f"{name} was {saved.get(name)!r} and is {present.get(name)!r}"
        for name in sorted({*saved, *present})
        if saved.get(name) != present.get(name)
    ]
    if different:
        raise ValueError(f"the checkpoint is from another configuration: {'; '.join(different)}")
