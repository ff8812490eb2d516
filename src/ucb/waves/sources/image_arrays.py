"""Images in one array, as uint8 or in fractions, channels first or last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ucb.bayes.checks import count
from ucb.datasets.arrays import Images
from ucb.waves.sources.examples import Shape, Skipped, stamps
from ucb.waves.sources.image_shape import sample, settled
from ucb.waves.sources.pixels import fitted, is_grey, plain
from ucb.waves.sources.words import lonely, one_form

CHANNELS = (1, 3, 4)
PIECE = 1 << 10


class ImageArray:
    """Examples that are images in an array [N, H, W], [N, H, W, C] or [N, C, H, W] with C = 1, 3 or 4.

    Where both the last and the second axis could be the channels, the last is. Values are 0 to 255, or 0 to 1 if they
    are fractions none of which is above 1; uint16 with a value above 255 is 16-bit. A fourth channel is how opaque a
    pixel is.
    """

    columns: list[str] | None = None

    def __init__(
        self, path: Path, where: str, x: npt.NDArray[Any], labels: list[str | None] | None, like: Shape | None
    ) -> None:
        self.path = path
        self._x = _channels_last(where, x)
        self._scale, broken = _scale(where, self._x)
        whys = dict.fromkeys(broken, "it holds values that are not finite")
        for place, label in enumerate(labels or []):
            if not label:
                whys.setdefault(place, "it has no label")
        self.skipped = [Skipped(f"row {place + 1}", why) for place, why in sorted(whys.items())]
        self._rows = [place for place in range(len(x)) if place not in whys]
        if not self._rows:
            raise ValueError(f"{where} holds no image that can be used; {self.skipped[0].name}: {self.skipped[0].why}")
        self.names = [f"row {place + 1}" for place in self._rows]
        known: dict[str, str] = {}
        named = None if labels is None else [one_form(str(labels[place])) for place in self._rows]
        self.labels = None if named is None else [known.setdefault(label, label) for label in named]
        self.remarks = lonely(self.labels or [])
        self.shape: Shape = like if like is not None else self._settled()

    def __len__(self) -> int:
        return len(self._rows)

    def batches(self, indices: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions and uint8 [n, C, H, W]."""
        count("size", size)
        for chunk in indices.split(size):
            if len(chunk):
                yield chunk, torch.from_numpy(self._fitted(self._bytes([self._rows[i] for i in chunk.tolist()])))

    def stamps(self) -> list[str]:
        """Return the size and the time of change of the file."""
        return stamps([self.path])

    def _settled(self) -> Shape:
        seen = []
        for place in sample(len(self._rows)):
            image = _image(self._bytes([self._rows[place]])[0])
            seen.append((image.height, image.width, is_grey(image)))
        return settled(seen)

    def _bytes(self, places: list[int]) -> Images:
        """Return some images as uint8 [n, H, W, C]."""
        found = self._x[places]
        if found.dtype == np.uint8 and self._scale == 1:
            return found
        return np.rint(found.astype(np.float64) * self._scale).astype(np.uint8)

    def _fitted(self, images: Images) -> Images:
        """Return images as uint8 [n, C, H, W]; those that have the shape already only swap axes."""
        channels, height, width = self.shape
        if images.shape[1:] == (height, width, channels):
            return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        return np.stack([fitted(_image(image), self.shape) for image in images])


def _image(image: Images) -> Image.Image:
    """Return bytes [H, W, C] as a plain image of Pillow."""
    return plain(Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image))


def _channels_last(where: str, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if x.ndim == 3:
        return x[..., None]
    if x.ndim == 4 and x.shape[3] in CHANNELS:
        return x
    if x.ndim == 4 and x.shape[1] in CHANNELS:
        return x.transpose(0, 2, 3, 1)
    expected = "rows [N, F] or images [N, H, W], [N, H, W, C] or [N, C, H, W] with 1, 3 or 4 channels"
    raise ValueError(f"{where}: expected are {expected}, not {list(x.shape)}")


def _scale(where: str, x: npt.NDArray[Any]) -> tuple[float, list[int]]:
    """Return what makes values 0 to 255, and the places of the images that hold values which are not finite."""
    least, most, broken = np.inf, -np.inf, list[int]()
    for start in range(0, len(x), PIECE):
        piece = x[start : start + PIECE]
        if x.dtype.kind == "f":
            finite = np.isfinite(piece).all(axis=(1, 2, 3))
            broken += (np.flatnonzero(~finite) + start).tolist()
            piece = piece[finite]
        if piece.size:
            least, most = min(least, float(piece.min())), max(most, float(piece.max()))
    if x.dtype.kind == "b":
        return 255.0, broken
    if least < 0 or most > (65_535 if x.dtype == np.uint16 else 255):
        raise ValueError(f"{where}: values of images must be 0 to 255, or 0 to 1, and they are {least:g} to {most:g}")
    if x.dtype.kind == "f" and most <= 1:
        return 255.0, broken
    return 1 / 257 if most > 255 else 1.0, broken
