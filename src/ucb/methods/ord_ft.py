"""ORD-FT: an ordinary net that goes on training on every new task, with nothing to stop it forgetting."""

from __future__ import annotations

from ucb.methods.base import method
from ucb.methods.ordinary import OrdinaryMethod


@method
class OrdinaryFineTuning(OrdinaryMethod):
    """Plain stochastic gradient descent, task after task."""

    name = "ord-ft"
    summary = "ordinary fine-tuning: nothing is done against forgetting"
    needs_boundaries = False
