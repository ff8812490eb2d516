"""Why a run may end before its time."""

from __future__ import annotations


class InterruptedRunError(RuntimeError):
    """The run was asked to stop; its state is saved."""


class DivergedError(RuntimeError):
    """The loss became NaN or infinite, or grew beyond all reason."""
