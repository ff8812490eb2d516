"""JSON files that a user may have cut or changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; a damaged file is named."""
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        raise OSError(f"{path} is damaged: {error}; mend or remove it") from None
    if not isinstance(values, dict):
        raise OSError(f"{path} is damaged: it holds no JSON object; mend or remove it")
    return values
