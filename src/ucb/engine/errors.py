"""Why a run may end before its time."""

from __future__ import annotations


class InterruptedRunError(RuntimeError):
    """The run was asked to stop; its state is saved."""


class DivergedError(RuntimeError):
    """The loss became NaN or infinite, or grew beyond all reason."""

    def __init__(self, what: str, value: float, where: str, lr: float) -> None:
        advice = f"try a smaller rate (lr is {lr:g}) or clip the gradient (clip=10)"
        super().__init__(f"the {what} became {value:g} in {where}: {advice}")
