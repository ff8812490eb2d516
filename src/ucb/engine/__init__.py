"""The one training loop, its schedule, checkpoints and results."""

from ucb.engine.config import Job
from ucb.engine.learner import Learner
from ucb.engine.loop import DivergedError, InterruptedRunError, Run
from ucb.engine.runner import Order, go_on_with_all, resume, start
from ucb.engine.training import Schedule, Training
from ucb.observer import Epoch, Observer

__all__ = [
    "DivergedError",
    "Epoch",
    "InterruptedRunError",
    "Job",
    "Learner",
    "Observer",
    "Order",
    "Run",
    "Schedule",
    "Training",
    "go_on_with_all",
    "resume",
    "start",
]
