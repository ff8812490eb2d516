"""Work in progress, kept beside the model: an interrupted `learn` goes on from it, and the model stays as it was.

The file holds sums or weights, where the work stands and what it is the work of, but no example. It begins with the
SHA-256 of the rest, so that a damaged one is known and not used.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import ucb
from ucb.observer import Observer
from ucb.storage import HeldError, ceilings, hold_lock, read_bytes, scratch_path, write_atomically

PAUSE = 5.0
"""Seconds between two writes, at least."""
OTHER = {"version": "another version of ucb", "data": "other data", "model": "an earlier state of the model"}
"""What progress that is of no use may be of; the rest are settings."""


class ProgressFile:
    """Keeps the state of one piece of work, told apart from others by ``identity``."""

    def __init__(self, path: Path, identity: dict[str, Any], observer: Observer, pause: float = PAUSE) -> None:
        self.path, self.observer, self.pause = path, observer, pause
        self.identity = json.loads(json.dumps({"version": ucb.__version__, **identity}))
        self._last = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """Return the state to go on from, or None where there is none of this work; one of no use is removed."""
        from ucb.engine.checkpoint import unpack

        if not self.path.exists():
            return None
        fault = None
        try:
            content = read_bytes(self.path, ceilings.CHECKPOINT)
            if hashlib.sha256(content[32:]).digest() != content[:32]:
                raise ValueError("its hash is not that of its content")
            state: dict[str, Any] = unpack(content[32:])
            known = state["identity"]
            if known != self.identity:
                other = (what for key, what in OTHER.items() if known.get(key) != self.identity.get(key))
                fault = f"is of {next(other, 'other settings')}"
        except OSError as error:
            fault = f"cannot be read ({error.strerror or error})"
        except Exception:  # whatever is wrong with it, the model does not depend on it
            fault = "is damaged"
        if fault is None:
            self.observer.noted(f"going on from {self.path.name}")
            return state
        self.observer.noted(f"{self.path.name}, left by a learn that was interrupted, {fault}: learning starts anew")
        with suppress(OSError):
            self.path.unlink()
        return None

    @property
    def is_due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() >= self._last + self.pause

    def save(self, state: dict[str, Any]) -> None:
        """Keep the state, whole or not at all."""
        from ucb.engine.checkpoint import pack

        content = pack({**state, "identity": self.identity})
        write_atomically(self.path, hashlib.sha256(content).digest() + content, private=True)
        self._last = time.monotonic()


def progress_path(model: Path) -> Path:
    """Return where the progress of learning is kept: beside the model's own file, not beside a link to it."""
    own = model.resolve() if model.is_symlink() else model
    return own.with_name(own.name + ".learning")


def remove_progress(model: Path) -> None:
    """Forget the progress of learning: the work is done, and what cannot be removed is named by the next learn."""
    path = progress_path(model)
    for each in path, scratch_path(path):
        with suppress(OSError):
            each.unlink()


def lock_path(model: Path) -> Path:
    """Return the file that tells others that a model is being learnt; no other program gives a file such a name."""
    return model.with_name(f".{model.name}.ucb-lock")


@contextmanager
def lock_model(model: Path) -> Iterator[None]:
    """Hold a model for this process alone, for as long as it learns."""
    path = lock_path(model)
    with ExitStack() as lock:
        try:
            lock.enter_context(hold_lock(path))
        except HeldError:
            raise RuntimeError(f"another process is learning {model} at this moment: wait for it") from None
        except OSError as error:
            raise RuntimeError(f"nothing can be written beside {model}: {error.strerror or error}") from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
