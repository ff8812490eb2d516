"""Files: read within limits, written whole or not at all, held by one process at a time; and state as what they hold.

A user's file is read within the ceilings below, and only if it is a plain file: a pipe may block for ever, a device
such as /dev/zero has no end, and a sparse file takes more memory than disk. Its kind and size are checked after it was
opened, so that it cannot be exchanged between check and use.

A file is written whole or not at all: under a temporary name that ends in .part, flushed to the disk and renamed.
What a killed process left under that name is removed. A link there is removed too, and never followed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import shutil
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import torch
    from torch import Tensor


CHUNK = 1 << 20
State = Any
"""A tree of dicts (with str or int keys), lists, tuples, tensors, numbers, words, truth values and None."""


@dataclass
class Ceilings:
    """How much of each kind of file is read, in bytes unless it says otherwise; docs/learn-from-your-data.md has them.

    Each is far above what real work needs. What is larger is refused before it is read, and so is what has no room in
    the memory of this machine.
    """

    JSON: int = 1 << 26
    """A configuration, a result, a recipe, the trials of a search: Python takes twenty times as much for it."""
    CHECKPOINT: int = 1 << 34
    """A run's or a learner's state, or progress of a `learn`."""
    MODEL: int = 1 << 33
    HEADER: int = 64 << 20
    """Of a model file: all that it holds beside tensors."""
    IMAGE: int = 1 << 29
    PIXELS: int = 1 << 26
    """Of one image as it is decoded; a JPEG may be decoded smaller than it is."""
    TABLE: int = 1 << 36
    LINE: int = 1 << 24
    """Characters of a row of a text table."""
    COLUMNS: int = 100_000
    UNUSABLE: int = 1_000_000
    """Rows or images of one wave that cannot be read: they are listed."""
    OFFICIAL: int = 1 << 33
    """A data set's official file, on disk."""
    MEMBER: int = 1 << 28
    """One file of an archive, unpacked; the largest official one, CIFAR-100's train.bin, has 154 million."""
    MEMBERS: int = 2_000_000
    """Files of an archive or a folder."""
    NAME: int = 1 << 20
    """What a tar archive says of one member's name and times."""
    UNPACKED: int = 1 << 30
    RATIO: int = 20

    def unpacked(self, packed: int) -> int:
        """Return what a compressed file of that many bytes may hold: 1 GiB, or twenty times its own size."""
        return max(self.UNPACKED, self.RATIO * packed)

    def memory(self) -> int:
        """Return the bytes of memory that this process may still take, as far as the system tells."""
        found = [sys.maxsize]
        for path, first, unit in (("/proc/meminfo", "MemAvailable:", 1 << 10), ("/sys/fs/cgroup/memory.max", "", 1)):
            try:
                lines = Path(path).read_text().splitlines()
                found += [int(line.split()[bool(first)]) * unit for line in lines if line.startswith(first)][:1]
            except (OSError, ValueError):  # no such system, no container, or "max"
                continue
        return min(found)


ceilings = Ceilings()


class RefusedFileError(OSError):
    """A file that is not read: it is no plain one, or larger than its kind may be."""


class HeldError(BlockingIOError):
    """Another process holds the lock."""


def open_checked(path: str | Path, most: int) -> BufferedReader:
    """Open a plain file of at most ``most`` bytes for reading."""

    def harmless(name: str, flags: int) -> int:  # a pipe that nobody writes to would block
        return _refuse_odd(path, os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY), most)

    return open(path, "rb", opener=harmless)


def open_for_append(path: Path) -> BinaryIO:
    """Open a file of our own to write at its end; it is made if there is none, and nothing in it is lost.

    It is opened where it lies: no link is followed, and no pipe waited for.
    """

    def own(name: str, flags: int) -> int:
        try:
            number = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a pipe that nobody reads
                said = f"{path} is a link or a pipe, and ucb writes to neither there: remove it"
                raise RefusedFileError(said) from None
            raise
        return _refuse_odd(path, number)

    return open(path, "ab", opener=own)


def _refuse_odd(path: str | Path, number: int, most: int | None = None) -> int:
    """Return an open file, if it is a plain one of at most ``most`` bytes; else close it."""
    try:
        status = os.fstat(number)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise RefusedFileError(f"{path} is a pipe or a device, no plain file")
        if most is not None and status.st_size > most:
            raise RefusedFileError(
                f"{path} has {status.st_size:,} bytes, and ucb reads {most:,} of such a file at most"
            )
    except BaseException:
        os.close(number)
        raise
    return number


def read_bytes(path: str | Path, most: int) -> bytes:
    """Return what a plain file of at most ``most`` bytes holds."""
    with open_checked(path, most) as file:
        size = os.fstat(file.fileno()).st_size
        refuse_without_room(path, size)
        content = file.read(size)
        while len(content) <= most and (more := file.read(CHUNK)):  # files of the system say that they have nothing
            content += more
    if len(content) > most:
        raise RefusedFileError(f"{path} is larger than {most:,} bytes, the most that ucb reads of such a file")
    return content


def refuse_without_room(path: str | Path, size: int) -> None:
    """Refuse a file for which this machine has too little memory."""
    if size > (room := ceilings.memory()):
        raise RefusedFileError(f"{path} has {size:,} bytes, and this machine has memory for {room:,} more")


def read_json(path: str | Path) -> Any:
    """Return the JSON of a file. A ValueError says why it holds none, and leaves naming the file to whoever asks."""
    try:
        return json.loads(read_bytes(path, ceilings.JSON))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class FileObject(dict[str, Any]):
    """The JSON object of a file. Whoever asks it for a name that it does not have is told which file to mend."""

    def __init__(self, values: dict[str, Any], path: Path) -> None:
        super().__init__(values)
        self.path = path

    def __missing__(self, name: str) -> Any:
        raise OSError(f"{self.path} is damaged: it has no {name}; mend or remove it")


def read_object(path: Path, *needed: str) -> FileObject:
    """Return the JSON object in a file, if it has all names that are needed; a damaged file is named."""
    try:
        values = read_json(path)
        if not isinstance(values, dict):
            raise ValueError("it holds no JSON object")
        if missing := [name for name in needed if name not in values]:
            raise ValueError(f"it has no {' and no '.join(missing)}")
    except ValueError as error:
        raise OSError(f"{path} is damaged: {error}; mend or remove it") from None
    return FileObject(values, path)


def write_atomically(path: Path, data: bytes, private: bool = False) -> None:
    """Put ``data`` at ``path`` whole or not at all, and let it reach the disk before anything else happens."""
    with replace_atomically(path, private) as file:
        file.write(data)


@contextmanager
def replace_atomically(path: Path, private: bool = False) -> Iterator[BinaryIO]:
    """Open a new file, which takes the place of ``path`` once all is written.

    An old file keeps its permissions, and nobody else reads the new one before; where there is no old one, the new one
    is its owner's alone if ``private``.
    """
    scratch = scratch_path(path)
    try:
        scratch.unlink(missing_ok=True)
        mode = 0o600 if private or path.exists() else 0o666
        with open(scratch, "xb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, mode)) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if not os.path.samestat(os.fstat(file.fileno()), scratch.lstat()):
                    raise OSError(f"{scratch} is not what was written: another process writes there at this moment")
                if path.exists():
                    shutil.copymode(path, scratch)  # who may read it does not change
                scratch.replace(path)
            except BaseException:  # Ctrl-C too
                scratch.unlink(missing_ok=True)
                raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)  # the new name, too, reaches the disk
        finally:
            os.close(folder)
    except OSError as error:  # a full disk does not say which file it had no room for
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def scratch_path(path: Path) -> Path:
    """Return where a file is written before it is renamed."""
    return path.with_name(path.name + ".part")


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock at ``path`` for this process alone. The file stays, unless the holder removes it."""
    while True:
        file = open_for_append(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have removed it when they left: a lock without a name holds nobody back.
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                break
        except BlockingIOError:
            file.close()
            raise HeldError(errno.EWOULDBLOCK, "another process holds it", str(path)) from None
        except FileNotFoundError:
            pass
        file.close()
    with file:
        yield


def flatten(state: State) -> tuple[State, dict[str, Tensor]]:
    """Return a JSON tree that refers to tensors by name, and the tensors.

    Nothing is pickled: a file that came from somebody else can run no code.
    """
    from torch import Tensor

    tensors: dict[str, Tensor] = {}

    def to_json(state: State, name: str) -> State:
        if isinstance(state, Tensor):
            tensors[name] = state.detach() if state.requires_grad else state
            return {"tensor": name}
        if isinstance(state, dict):
            return {"dict": [[str(k), isinstance(k, str), to_json(v, f"{name}/{k}")] for k, v in state.items()]}
        if isinstance(state, list | tuple):
            items = [to_json(v, f"{name}/{i}") for i, v in enumerate(state)]
            return {"tuple": items} if isinstance(state, tuple) else items
        if isinstance(state, float) and not math.isfinite(state):
            return {"number": repr(state)}
        if state is None or isinstance(state, bool | int | float | str):  # what JSON takes as it is
            return state
        raise TypeError(f"a state cannot hold a {type(state).__name__} (at {name or 'its root'})")

    return to_json(state, ""), tensors


def unflatten(tree: State, tensors: dict[str, Tensor]) -> State:
    """Undo ``flatten``, exactly."""
    if isinstance(tree, list):
        return [unflatten(value, tensors) for value in tree]
    if not isinstance(tree, dict):
        return tree
    (kind, value), *rest = tree.items()
    assert not rest
    if kind == "tensor":
        return tensors[value]
    if kind == "number":  # what JSON has no word for: infinity and NaN
        return float(value)
    if kind == "tuple":
        return tuple(unflatten(v, tensors) for v in value)
    return {(key if is_word else int(key)): unflatten(v, tensors) for key, is_word, v in value}


def compress(data: bytes) -> Tensor:
    """Return bytes as a tensor of fewer: names, and accuracies of many tasks, are much alike."""
    import torch

    return torch.frombuffer(bytearray(zlib.compress(data)), dtype=torch.uint8)


def decompress(compressed: Tensor, most: int) -> bytes:
    """Undo ``compress``; more than ``most`` bytes come back as one too many: few bytes could become any number."""
    return zlib.decompressobj().decompress(compressed.numpy().tobytes(), most + 1)


class StateCopy:
    """A copy of a state. A later state of the same tensors is copied into its memory, all at once."""

    def __init__(self, state: State = None) -> None:
        self.tree: State = None
        self.tensors: dict[str, Tensor] = {}
        self._alike: list[list[str]] = []
        """The names of tensors that are copied together: of one type, on one device."""
        self.renew(state)

    def renew(self, state: State) -> None:
        """Become a copy of another state."""
        import torch

        self.tree, tensors = flatten(state)
        mine = self.tensors
        if mine.keys() == tensors.keys() and all(mine[name].shape == tensors[name].shape for name in mine):
            with torch.no_grad():
                for names in self._alike:
                    torch._foreach_copy_([mine[name] for name in names], [tensors[name] for name in names])
            return
        self.tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        alike: dict[object, list[str]] = {}
        for name, tensor in tensors.items():
            alike.setdefault((tensor.dtype, tensor.device), []).append(name)
        self._alike = list(alike.values())

    @property
    def state(self) -> State:
        """The state, in this copy's memory."""
        return unflatten(self.tree, self.tensors)


def move_state(device: torch.device, state: State) -> State:
    """Return a method's state with its tensors on a device, but for that of a generator, which is kept on the CPU."""
    if isinstance(state, dict):
        return {k: v if k == "generator" else move_state(device, v) for k, v in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(move_state(device, value) for value in state)
    return state.to(device) if hasattr(state, "to") else state


OLD_NAMES: dict[str, str | None] = {"together": None, "steps_together": None, "spread": "init_std_ratio"}
"""What each is called now; None where there is no such thing any more."""


def rename_old_keys(values: Any) -> Any:
    """Return a configuration, and those inside it, under the present names, without what is gone."""
    if not isinstance(values, dict):
        return values
    renamed = ((OLD_NAMES.get(name, name), value) for name, value in values.items())
    return {name: rename_old_keys(value) for name, value in renamed if name is not None}
