"""Files that come into place whole or not at all, read by nobody else before, and named if they cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

from ucb.engine.checkpoint import write_atomically


def write_whole(path: Path, data: bytes, private: bool = False) -> None:
    """Put ``data`` at ``path``. An old file keeps its permissions; a new file is its owner's alone if ``private``."""
    try:
        if private or path.exists():
            scratch_of(path).unlink(missing_ok=True)  # a kill may have left one that others can read
            os.close(os.open(scratch_of(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        write_atomically(path, data)
    except OSError as error:  # a full disk does not say which file it had no room for
        raise OSError(error.errno, error.strerror, error.filename or str(path)) from None


def scratch_of(path: Path) -> Path:
    """Return where a file is written before it is renamed."""
    return path.with_name(path.name + ".part")
