"""One training step is timed by the command ``ucb bench``; the scripts here find in this file what they use of it."""

from ucb.bench.machine import machine

__all__ = ["machine"]
