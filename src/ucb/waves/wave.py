"""What a model notes of each wave: small figures, and nothing of its data."""

from __future__ import annotations

from dataclasses import dataclass, field

from ucb.data.readers import Skipped


@dataclass(frozen=True)
class Wave:
    """A wave that was learnt."""

    name: str
    examples: dict[str, int]
    """How many of each class were learnt, the held-out ones among them where the way of learning uses them."""
    held_out: dict[str, tuple[int, int]]
    """For each class, how many were held out and how many of them were judged right, with no wave named."""
    fingerprint: str = ""

    @property
    def accuracy(self) -> float | None:
        """The share of held-out examples that was judged right when the wave was learnt, in percent."""
        asked = sum(asked for asked, _ in self.held_out.values())
        return 100 * sum(right for _, right in self.held_out.values()) / asked if asked else None


@dataclass(frozen=True)
class Effect:
    """What a new wave did to what an earlier one leans on."""

    wave: str
    change: float
    """With a fixed trunk: how far scores of its classes move on unseen examples, estimated without any. With ucb-ng:
    how far the trunk's weights moved, in units of their sigma."""
    meaning: str
    """What is measured, in words."""
    words: str
    """How much that is."""

    @property
    def sentence(self) -> str:
        """All of it."""
        return f"{self.meaning}: {self.change:.3f}, {self.words}"


@dataclass
class Report:
    """What came of learning a wave."""

    wave: Wave
    effects: list[Effect]
    skipped: list[Skipped] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    new_classes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    """Why the model should not be relied on yet."""
