"""Compile ``kernels.c`` once with the machine's own C compiler, and load it. Without one, PyTorch does the work."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ucb.bayes.kernels.kept import keep, load, own_folder

SOURCE = Path(__file__).with_name("kernels.c")
# Sums may be reordered, so that they too run in vector registers. NaN and infinity keep their meaning.
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros"]
FLAGS += ["-std=c11", "-fPIC", "-shared"]


@functools.cache
def loaded() -> ctypes.CDLL | None:
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
    """Return the kernels, built if this machine, compiler and source have not met before; and why they are not kept."""
    parts = (SOURCE.read_text(), *FLAGS, *compiler, platform.machine(), _processor())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    try:
        with own_folder() as folder:
            try:
                return load(folder, key), ""
            except FileNotFoundError:
                with _built(compiler) as library:
                    keep(folder, key, library.read_bytes())
                return load(folder, key), ""
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        with _built(compiler) as library:
            return ctypes.CDLL(str(library)), f" for this process alone ({error})"


@contextmanager
def _built(compiler: list[str]) -> Iterator[Path]:
    """Build the library, in a folder that is there for as long as it is needed and nobody else's."""
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
