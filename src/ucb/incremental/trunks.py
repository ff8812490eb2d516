"""Trunks that are made from the first wave and then stay: what they show of an example never changes again.

So what the head has learnt from data that is long gone keeps its meaning. For images the filters are mixtures of
patches of the first wave's images; rows, and images too small for patches, are standardised by the first wave and shown
together with fixed random combinations of their numbers. Trunks of which no wave makes anything are in
:mod:`ucb.incremental.pretrained`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ucb.nets.fixed_features import WhitenedPatches
from ucb.seeds import derive_seed, generator_for

AT_A_TIME = 32
"""Images that go through a trunk of its own together."""
FILTERS = 160
CELLS = 3
LARGEST_PATCH, SMALLEST_PATCH = 7, 3
SHRUNK_TO = 32
"""Larger images are averaged down to sides between this and twice this."""
UNITS = 1000
"""Random combinations of a row's numbers."""
SHOWN_AS_THEY_ARE = 1000
"""A row with at most so many numbers shows them beside their combinations."""
FAR = 10.0
"""Standardised numbers go no further from 0 than this: one wild value must not drown the rest."""
NEW = 3.0
"""What a text counts at a place where none has been, in place of 1."""
SAMPLED = 2000
"""Examples of the first wave from which a trunk is made."""

OWN = "own"
"""What a trunk that the first wave makes is called."""
LIBRARIES = ("timm", "torchvision", "transformers")
"""What the names of nets of other libraries begin with, before a colon."""
SMALLEST_PHOTOGRAPH = 32
"""The side that a colour image must have to count as a photograph; smaller ones are icons and textures."""

Facts = dict[str, Any]


class Trunk(nn.Module):
    """Turns examples into features."""

    features: int
    """How many there are."""
    facts: Facts
    """What is needed to build it again, beside the tensors that are stored."""
    is_made = True
    """Whether the first wave makes it."""
    precision = torch.float64
    """Of products of its features, before they are rounded."""
    finest = 14
    """Features are rounded to multiples of 2^-14."""
    usual_ridge = 0.1
    """Where the search for a head's ridge begins."""
    about = "made once, fixed"
    """What it is, in a few words."""

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return sum(tensor.numel() for tensor in self.state_dict().values())

    def stored(self) -> dict[str, Tensor]:
        """Return the tensors that a model file holds of it."""
        return dict(self.state_dict())


@dataclass(frozen=True)
class Given:
    """What whoever opens a model file says of a trunk that it does not hold."""

    trunk: nn.Module | None = None
    """The user's module; or the trunk itself, where a file is checked that was just made."""
    weights: Path | None = None
    """The file with the weights."""
    folder: Path | None = None
    """Where the model's file is: the weights may be beside it."""
    noted: Path | None = None
    """Where the weights were, as the model's file says."""
    whole: bool = True
    """Whether the trunk is needed: without it a model can be shown, and nothing else."""


def show_in_batches(show: Callable[[Tensor], Tensor], x: Tensor, size: int) -> Iterator[Tensor]:
    """Yield what is shown of examples, in batches of one size and one layout, on which the last bits may depend.

    The last one is filled up, so that an example shows the same in whatever batch it comes.
    """
    for some in x.split(size):
        batch = x.new_zeros(size, *x.shape[1:])
        batch[: len(some)] = some
        yield show(batch)[: len(some)]


class ImageTrunk(Trunk):
    """Whitened patches over pixels from 0 to 1; a patch's side is a quarter of the image's, within limits."""

    precision = torch.float32  # in double precision an image would take a third more time to judge
    finest = 20  # of features that are 0.03 in root mean square

    def __init__(self, shape: Sequence[int], filters: int | None = None) -> None:
        super().__init__()
        filters = FILTERS if filters is None else filters
        self.shrink = max(1, min(shape[1:]) // SHRUNK_TO)
        side = min(shape[1:]) // self.shrink
        size = max(SMALLEST_PATCH, min(LARGEST_PATCH, side // 4))
        self.patches = WhitenedPatches(shape[0], filters, size, min(CELLS, side - size + 1))
        self.features = self.patches.features
        self.facts = {"kind": "patches", "filters": filters}

    def fit(self, sample: Tensor, seed: int) -> None:
        """Take the filters from some images."""
        self.patches.fit(self._pixels(sample), generator_for("patches", seed))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return the features of uint8 images, each the same in whatever batch it comes."""
        parts = list(show_in_batches(lambda batch: cast(Tensor, self.patches(self._pixels(batch))), x, AT_A_TIME))
        return torch.cat(parts) if parts else torch.zeros(0, self.features, device=x.device)

    def _pixels(self, x: Tensor) -> Tensor:
        pixels = x.float() / 255
        return nn.functional.avg_pool2d(pixels, self.shrink) if self.shrink > 1 else pixels


class RowTrunk(Trunk):
    """Standardised numbers, and the positive parts of random combinations of them.

    How a product is summed up depends on the number of rows, and for some rows on their place. In double precision
    nothing of that is left once it is rounded: what a row is told does not depend on the rows beside it.
    """

    mean: Tensor
    spread: Tensor
    directions: Tensor
    offsets: Tensor

    def __init__(self, shape: Sequence[int], units: int | None = None) -> None:
        super().__init__()
        units = UNITS if units is None else units
        numbers = math.prod(shape)
        self.shows_numbers = numbers <= SHOWN_AS_THEY_ARE
        self.features = units + (numbers if self.shows_numbers else 0)
        self.facts = {"kind": "rows", "units": units}
        self.register_buffer("mean", torch.zeros(numbers))
        self.register_buffer("spread", torch.ones(numbers))
        directions = torch.randn(numbers, units)
        if not directions.is_meta:  # where only sizes are asked for, a division would load half of PyTorch's compiler
            directions /= math.sqrt(numbers)
        self.register_buffer("directions", directions)
        self.register_buffer("offsets", torch.randn(units))

    def fit(self, sample: Tensor, seed: int) -> None:
        """Standardise by some examples; a number that never changes among them keeps its scale."""
        numbers = self._numbers(sample).double()
        present = (~numbers.isnan()).sum(0).clamp_min(1)
        mean = numbers.nansum(0) / present
        spread = ((numbers - mean).square().nansum(0) / present).sqrt()
        self.mean.copy_(mean)
        largest = numbers.nan_to_num(nan=0.0).abs().amax(0)
        self.spread.copy_(torch.where(spread > 1e-6 * largest.clamp_min(1e-30), spread, 1.0))

    def fit_marks(self, sample: Tensor, marks: Tensor) -> None:
        """Leave numbers that say yes or no as they are, but for their mean, after the others are standardised.

        ``marks`` says which these are, mostly the places of texts (:mod:`ucb.data.readers.columns`). Standardised,
        a rare text would be further from 0 than all else of its row. A place where no text has been is made larger, so
        that a new text is noticed. And as rows are mostly 0 then, directions are made longer, so that combinations vary
        as much as those of numbers do.
        """
        self.spread[marks] = torch.where(sample.amax(0) > 0, 1.0, 1 / NEW)[marks]
        lengths = self._standardise(sample).double().square().sum(1)
        self.directions *= math.sqrt(len(marks) / max(1.0, float(lengths.mean())))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return the features of rows, in which a missing number (NaN) is the mean, or of small uint8 images."""
        standard = self._standardise(x)
        combined = (standard.to(self.precision) @ self.directions.to(self.precision) + self.offsets).relu_().float()
        return torch.cat([standard, combined], 1) if self.shows_numbers else combined

    def _standardise(self, x: Tensor) -> Tensor:
        return ((self._numbers(x) - self.mean) / self.spread).clamp(-FAR, FAR).nan_to_num(nan=0.0)

    def _numbers(self, x: Tensor) -> Tensor:
        return x.flatten(1).float() / 255 if x.dtype == torch.uint8 else x.flatten(1)


def supports_patches(shape: Sequence[int]) -> bool:
    """Whether examples of this shape are images with room for patches."""
    return len(shape) == 3 and min(shape[1:]) > SMALLEST_PATCH


def names_library(trunk: str) -> bool:
    """Whether a trunk's name is that of a net of another library, or of an ONNX file."""
    kind, _, name = trunk.partition(":")
    return (kind in LIBRARIES and bool(name)) or find_place(trunk) is not None


def find_place(trunk: str) -> Path | None:
    """Return where a trunk's own name says that its weights are."""
    kind, _, name = trunk.partition(":")
    if kind == "transformers" and name:
        return Path(name)
    return Path(trunk) if trunk.lower().endswith(".onnx") else None


def is_photograph(shape: Sequence[int]) -> bool:
    """Whether images of this shape are taken for photographs: in colour, and not tiny."""
    return len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= SMALLEST_PHOTOGRAPH


def build_trunk(shape: Sequence[int], facts: Facts | None = None, seed: int = 0) -> ImageTrunk | RowTrunk:
    """Return the trunk for a shape before it has seen anything, the default one or as ``facts`` say."""
    known = {"kind": "patches" if supports_patches(shape) else "rows"} if facts is None else dict(facts)
    kind = {"patches": ImageTrunk, "rows": RowTrunk}[known.pop("kind")]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("trunk", seed))
        return cast("ImageTrunk | RowTrunk", kind(shape, **known).eval())
