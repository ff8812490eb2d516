"""Packages that only some data sets need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def extra(module: str, package: str, purpose: str) -> Any:
    """Return a module that may be missing; if it is, say in one sentence how to get it."""
    try:
        return import_module(module)
    except ImportError:
        raise RuntimeError(f"{purpose} needs {package}: install it with `pip install {package}`") from None
