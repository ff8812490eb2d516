"""The shape that a model's images have, settled by its first wave.

- C is 1 if every image of a sample of at most 200 is grey, else 3. An image is grey if it shows no colour, however it
  is stored.
- H and W are the most frequent size in the sample; of equally frequent ones the largest. An image of more than 64 on a
  side counts as a square of side 64, so that photos of many sizes do not lose to a few icons of one. A side below 8
  becomes 8.

The sample is spread evenly over all images, so that no class is left out because of its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ucb.waves.sources.examples import Shape

SAMPLE = 200
LEAST, MOST = 8, 64


def sample(number: int) -> Sequence[int]:
    """Return which of so many images decide about the shape."""
    chosen: list[int] = np.linspace(0, number - 1, min(number, SAMPLE)).round().astype(int).tolist()
    return chosen


def settled(seen: Iterable[tuple[int, int, bool]]) -> Shape:
    """Return the shape for images of which height, width and whether they are grey have been seen."""
    seen = list(seen)
    sizes = Counter((MOST, MOST) if max(height, width) > MOST else (height, width) for height, width, _ in seen)
    height, width = max(sizes, key=lambda size: (sizes[size], size[0] * size[1], size))
    channels = 1 if all(grey for *_, grey in seen) else 3
    return channels, max(height, LEAST), max(width, LEAST)
