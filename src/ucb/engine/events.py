"""What a run tells whoever watches it."""

from ucb.progress import Epoch, Observer

__all__ = ["Epoch", "Observer"]
