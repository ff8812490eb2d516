"""The one training loop, its schedule, checkpoints and results."""

from ucb.engine.config import Job
from ucb.engine.learner import Learner
from ucb.engine.loop import DivergedError, InterruptedRunError, Run
from ucb.engine.runner import PlannedRun, carry_out_all, resume, start
from ucb.engine.training import Schedule, Training
from ucb.observer import Epoch, Observer

__all__ = [
    "DivergedError",
    "Epoch",
    "InterruptedRunError",
    "Job",
    "Learner",
    "Observer",
    "PlannedRun",
    "Run",
    "Schedule",
    "Training",
    "carry_out_all",
    "resume",
    "start",
]
