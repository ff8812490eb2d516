"""Learn from your own data, wave by wave: one model file of fixed size that keeps none of them."""

from ucb.waves.arrays import ArrayExamples
from ucb.waves.files import learn
from ucb.waves.model import METHODS, Model
from ucb.waves.safe import DamagedModelError
from ucb.waves.watching import Watcher
from ucb.waves.wave import Effect, Report, Wave

__all__ = ["METHODS", "ArrayExamples", "DamagedModelError", "Effect", "Model", "Report", "Watcher", "Wave", "learn"]
