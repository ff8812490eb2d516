"""Whether our ACC is within what may be expected of the paper's figure, above it or below it."""

from __future__ import annotations

import math
from dataclasses import dataclass

WITHIN, ABOVE, BELOW = "within", "above", "below"
NOT_MEASURED, CANNOT = "not measured", "cannot be run"
LEAST, MOST = 0.1, 1.0
"""Points between which the allowed difference stays: seeds that agree by chance must not make the rule too strict, and
seeds that scatter must not excuse everything."""
WITHOUT_SPREAD = 1.0
"""Points that ACC may differ where no spread is known."""
RULE = (
    f"within: ACC differs by at most twice the combined spread "
    f"(at least {LEAST:g}, at most {MOST:g} point; {WITHOUT_SPREAD:g} where no spread is known)"
)
"""What the verdicts mean, in a line."""


@dataclass(frozen=True)
class Measure:
    """A figure with its spread, if one is known."""

    value: float
    spread: float | None = None
    digits: int = 2
    """Decimals that are known of the value."""


def allowed(ours: Measure, theirs: Measure) -> float:
    """Return how many points may lie between two figures: twice the combined spread, within its bounds."""
    spreads = [each.spread for each in (ours, theirs) if each.spread is not None]
    return min(max(2 * math.hypot(*spreads), LEAST), MOST) if spreads else WITHOUT_SPREAD


def judged(ours: Measure, theirs: Measure) -> str:
    """Return ``within``, ``above`` or ``below``.

    The paper's figure is rounded: half a unit of its last printed digit is allowed on top, on both sides.
    """
    difference = ours.value - theirs.value
    if abs(difference) <= allowed(ours, theirs) + 0.5 * 10.0**-theirs.digits:
        return WITHIN
    return ABOVE if difference > 0 else BELOW
