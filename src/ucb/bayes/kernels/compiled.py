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
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.c")
# Sums may be reordered, so that they too run in vector registers. NaN and infinity keep their meaning.
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros"]
FLAGS += ["-std=c11", "-fPIC", "-shared"]


@functools.cache
def loaded() -> ctypes.CDLL | None:
    """Return the compiled kernels, or None where they are switched off or cannot be built (see ``status``)."""
    return _load()[0]


def status() -> str:
    """Say in one line whether compiled kernels are in use, and if not, why."""
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
        lib = ctypes.CDLL(str(_compiled(compiler)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return None, f"PyTorch ({name} could not build the kernels: {str(said).strip()})"
    floats, size = ctypes.c_void_p, ctypes.c_int64
    lib.ucb_draw.argtypes = [floats] * 4 + [size, size, ctypes.c_uint64]
    lib.ucb_accumulate.argtypes = [floats] * 4 + [size, size]
    lib.ucb_mixture.argtypes = [floats] * 2 + [size, size] + [ctypes.c_float] * 4
    for function in (lib.ucb_draw, lib.ucb_accumulate):
        function.restype = None
    lib.ucb_mixture.restype = ctypes.c_double
    return lib, f"compiled by {Path(name).name}"


def _compiled(compiler: list[str]) -> Path:
    """Return the library's path, building it if this machine, compiler and source have not met before."""
    parts = (SOURCE.read_text(), *FLAGS, *compiler, platform.machine(), _processor())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ucb"
    target = folder / f"kernels-{key}.so"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / "kernels.so"
            command = [*compiler, *FLAGS, str(SOURCE), "-o", str(built), "-lm"]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            built.replace(target)  # another process may do the same at this moment; either result is whole
    return target


def _processor() -> str:
    """Return what tells one processor from another, since -march=native code runs on its own kind only."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
