"""The one training loop, its schedule, checkpoints and results."""

from ucb.engine.errors import DivergedError, InterruptedRunError
from ucb.engine.events import Epoch, Observer
from ucb.engine.job import Job
from ucb.engine.learner import Learner
from ucb.engine.orders import Order, go_on_with_all, resume, start
from ucb.engine.plateau import Schedule
from ucb.engine.run import Run
from ucb.engine.training import Training

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
