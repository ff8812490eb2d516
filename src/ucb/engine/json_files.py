"""JSON files that a user may have cut or changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ucb.storage import read_json


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
    except ValueError as error:
        raise OSError(f"{path} is damaged: {error}; mend or remove it") from None
    if not isinstance(values, dict):
        raise OSError(f"{path} is damaged: it holds no JSON object; mend or remove it")
    if missing := [name for name in needed if name not in values]:
        raise OSError(f"{path} is damaged: it has no {' and no '.join(missing)}; mend or remove it")
    return FileObject(values, path)
