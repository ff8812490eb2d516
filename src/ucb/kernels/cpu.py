"""The C loops of a CPU: compiled once with the machine's own compiler, kept, and loaded whole or not at all.

Without a compiler PyTorch does the work. A library is loaded only from the user's own file in the user's own folder.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import secrets
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

DESCRIPTORS = Path("/proc/self/fd")
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Folder(NamedTuple):
    """An open folder."""

    path: Path
    descriptor: int


@contextmanager
def open_own_folder() -> Iterator[Folder]:
    """Open the folder of kept libraries; an OSError says why it cannot be trusted."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a path which is not absolute is to be ignored.
    path = (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "ucb" / "kernels"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _is_own(os.fstat(descriptor)):
            raise PermissionError(f"{path} is another user's, or others can write to it")
        yield Folder(path, descriptor)
    finally:
        os.close(descriptor)


def load(folder: Folder, key: str) -> ctypes.CDLL:
    """Load the library that is kept under ``key``; what is no whole one is removed."""
    for name in os.listdir(folder.descriptor):
        if not name.startswith(f"{key}-"):
            continue
        file = _open_checked(folder, name)
        if file is not None:
            # The very file that was checked. It stays open, since the loader knows a library again by its path.
            return ctypes.CDLL(str(DESCRIPTORS / str(file) if DESCRIPTORS.is_dir() else folder.path / name))
        os.unlink(name, dir_fd=folder.descriptor)
    raise FileNotFoundError(f"{folder.path} has no library {key}")


def store(folder: Folder, key: str, library: bytes) -> None:
    """Write a library under ``key``, whole or not at all: another process may do the same at this moment."""
    inside = folder.descriptor
    scratch = f"{secrets.token_hex(8)}.part"
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=inside)
    try:
        with open(file, "wb") as written:
            written.write(library)
            written.flush()
            os.fsync(file)
        os.rename(scratch, f"{key}-{_hash(library)}.so", src_dir_fd=inside, dst_dir_fd=inside)
    except BaseException:
        os.unlink(scratch, dir_fd=inside)
        raise


def _open_checked(folder: Folder, name: str) -> int | None:
    """Open a file that is the user's own and what its name says; None stands for any other."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder.descriptor)
    except OSError:  # such as a link
        return None
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode) and _is_own(status):
        with open(file, "rb", closefd=False) as content:
            if name.endswith(f"-{_hash(content.read())}.so"):
                return file
    os.close(file)
    return None


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & WRITABLE_BY_OTHERS


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


SOURCE = Path(__file__).with_name("kernels.c")
# Sums may be reordered, so that they too run in vector registers. NaN and infinity keep their meaning.
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros"]
FLAGS += ["-std=c11", "-fPIC", "-shared"]


def load_library() -> ctypes.CDLL | None:
    """Return the compiled kernels, or None where they are switched off or cannot be built (see ``status``)."""
    return _load()[0]


def status() -> str:
    """Say in one line whether compiled kernels are in use and kept, and if not, why."""
    return _load()[1]


@functools.cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    if os.environ.get("UCB_KERNELS", "on") == "off":
        return None, "PyTorch (UCB_KERNELS=off)"
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    name = " ".join(compiler)
    if shutil.which(compiler[0]) is None:
        return None, f"PyTorch (no C compiler: {name} was not found)"
    try:
        lib, not_kept = _library(compiler)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return None, f"PyTorch ({name} could not build the kernels: {str(said).strip()})"
    floats, size = ctypes.c_void_p, ctypes.c_int64
    lib.ucb_draw.argtypes = [floats] * 4 + [size, size, ctypes.c_uint64]
    lib.ucb_accumulate.argtypes = [floats] * 4 + [size, size]
    lib.ucb_mixture.argtypes = [floats] * 2 + [size, size] + [ctypes.c_float] * 4
    for function in (lib.ucb_draw, lib.ucb_accumulate):
        function.restype = None
    lib.ucb_mixture.restype = ctypes.c_double
    return lib, f"compiled by {Path(name).name}{not_kept}"


def _library(compiler: list[str]) -> tuple[ctypes.CDLL, str]:
    """Return the kernels, built if they are not kept yet, and why they cannot be kept."""
    parts = (SOURCE.read_text(), *FLAGS, *compiler, platform.machine(), _processor())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    try:
        with open_own_folder() as folder:
            try:
                return load(folder, key), ""
            except FileNotFoundError:
                with _build(compiler) as library:
                    store(folder, key, library.read_bytes())
                return load(folder, key), ""
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        with _build(compiler) as library:
            return ctypes.CDLL(str(library)), f" for this process alone ({error})"


@contextmanager
def _build(compiler: list[str]) -> Iterator[Path]:
    """Build the library, in a private folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="ucb-") as scratch:
        library = Path(scratch) / "kernels.so"
        command = [*compiler, *FLAGS, str(SOURCE), "-o", str(library), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        yield library


def _processor() -> str:
    """Return what tells one processor from another, since -march=native code runs on its own kind only."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
