"""What learning and predicting tell whoever watches them."""

from __future__ import annotations


class Watcher:
    """Hears how far the work is. By default nothing is said."""

    def moved(self, done: int, total: int) -> None:
        """Hear how many of the examples have been gone through."""

    def noted(self, sentence: str) -> None:
        """Hear a sentence that the user should read."""
