"""What a run, or any longer work, tells whoever watches it."""

from ucb.progress import Epoch, Observer

__all__ = ["Epoch", "Observer"]
