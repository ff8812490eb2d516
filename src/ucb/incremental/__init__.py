"""Learn from your own data, wave by wave: one model file of fixed size that keeps none of them."""

from ucb.incremental.checked_file import DamagedModelError
from ucb.incremental.inputs import ArrayExamples
from ucb.incremental.learning import learn
from ucb.incremental.model import METHODS, Model, Report
from ucb.incremental.waves import Effect, Wave

__all__ = ["METHODS", "ArrayExamples", "DamagedModelError", "Effect", "Model", "Report", "Wave", "learn"]
