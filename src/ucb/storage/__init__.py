"""Files that others may have laid: read within limits, written whole or not at all, held by one process at a time."""

from ucb.storage.holding import HeldError, appending, held
from ucb.storage.reading import RefusedFileError, opened, read_bytes, read_json
from ucb.storage.writing import replacing, scratch_of, write_atomically

__all__ = [
    "HeldError",
    "RefusedFileError",
    "appending",
    "held",
    "opened",
    "read_bytes",
    "read_json",
    "replacing",
    "scratch_of",
    "write_atomically",
]
