"""BBB-FT: a Bayesian net that goes on training on every new task, with nothing to stop it forgetting."""

from __future__ import annotations

from ucb.methods.base import TaskData, method
from ucb.methods.ucb import UCBMethod


@method
class BBBFineTuning(UCBMethod):
    """Bayes by Backprop with fine-tuning: UCB's optimiser whose rates never change."""

    name = "bbb-ft"
    summary = "Bayesian fine-tuning: nothing is done against forgetting"

    def end_task(self, data: TaskData) -> None:
        """Do nothing."""
