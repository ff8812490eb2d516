"""Images of any kind become bytes of one shape.

Transparent parts show white. 16-bit grey is scaled to 8 bits; grey in fractions is 0 to 1, or 0 to 255 if a value is
above 1. CMYK, palettes and other colours become RGB; grey becomes colour by equal channels, and colour grey by its
brightness. An image of another size is resized to the size wanted; its aspect ratio is not kept, because every part of
the image counts and a net sees one size only.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image

from ucb.datasets.arrays import Images
from ucb.datasets.formats.images import UnreadableImageError, described, loaded, turn_of
from ucb.waves.sources.examples import Shape

SIXTEEN_BITS = 65_535
GREY_MODES = ("1", "L", "LA", "La")
FINER = 2
"""A large photo is decoded at no less than this many times the size wanted, and then resized."""
LARGE, STRIP = 1 << 22, 1 << 20
"""Pixels from which on an image is converted in strips, and those of a strip."""
_ONE_LARGE = Lock()
"""Many threads decode; large images take turns, since their memory adds up."""


def read_image(file: BinaryIO, shape: Shape) -> Images:
    """Return an image file as uint8 [C, H, W], or raise an UnreadableImageError."""
    return fitted(plain_image(file, FINER * max(shape[1:])), shape)


def plain_image(file: BinaryIO, least: int) -> Image.Image:
    """Return an image file in 8 bits, grey (mode L) or in colour (RGB), or raise an UnreadableImageError.

    A large image comes smaller, but not below ``least`` pixels on a side.
    """
    image = described(file, least)
    try:
        if image.width * image.height <= LARGE:
            return _upright(plain(loaded(image)), image)
        with _ONE_LARGE:
            small = _upright(_shrunk(loaded(image), least), image)
            image.close()  # its pixels are gone before those of the next one come
            return small
    except UnreadableImageError:
        raise
    except Exception:  # of a damaged palette Pillow may say anything
        raise UnreadableImageError("its colours cannot be read") from None


def _upright(image: Image.Image, of: Image.Image) -> Image.Image:
    turn = turn_of(of)
    return image if turn is None else image.transpose(turn)


def _shrunk(image: Image.Image, least: int) -> Image.Image:
    """Return a plain image of means over blocks of pixels, made strip by strip: whole copies take much memory."""
    across, down = (max(1, side // least) for side in image.size)
    rows = max(1, STRIP // (image.width * down)) * down
    brightest = image.getextrema()[1] if image.mode == "F" else None
    strips = [
        plain(image.crop((0, top, image.width, min(top + rows, image.height))), brightest).reduce((across, down))
        for top in range(0, image.height, rows)
    ]
    mode = "L" if all(strip.mode == "L" for strip in strips) else "RGB"
    whole = Image.new(mode, (strips[0].width, sum(strip.height for strip in strips)))
    top = 0
    for strip in strips:
        whole.paste(strip, (0, top))
        top += strip.height
    return whole


def plain(image: Image.Image, brightest: Any = None) -> Image.Image:
    """Return an image of Pillow in 8 bits, grey (mode L) or in colour (RGB)."""
    if image.mode[0] in "IF":
        return Image.fromarray(_scaled(np.asarray(image), brightest))
    kept = "L" if image.mode in GREY_MODES else "RGB"
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("LA") if image.mode == "La" else image
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
        kept = "L" if kept == "L" and _is_grey(image) else "RGB"
    return image.convert(kept)


def is_grey(image: Image.Image) -> bool:
    """Whether a plain image shows no colour, however it is stored."""
    return image.mode == "L" or _is_grey(image)


def fitted(image: Image.Image, shape: Shape) -> Images:
    """Return a plain image as uint8 [C, H, W]."""
    channels, height, width = shape
    image = image.convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    array = np.asarray(image)
    return array[None] if channels == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _is_grey(image: Image.Image) -> bool:
    red, green, blue = (np.asarray(channel) for channel in image.split()[:3])
    return bool((red == green).all() and (green == blue).all())


def _scaled(values: npt.NDArray[Any], brightest: float | None = None) -> Images:
    """Return grey of more than 8 bits, or in fractions, in 8 bits; it may be a part of the image."""
    if values.dtype.kind in "iu":
        values = np.clip(values, 0, SIXTEEN_BITS).astype(np.uint32)
        return np.asarray((values + 128) // 257, np.uint8)
    if not np.isfinite(values).all():
        raise UnreadableImageError("it holds values that are not finite")
    scale = 255.0 if (values.max() if brightest is None else brightest) <= 1 else 1.0
    return np.asarray(np.rint(np.clip(values * scale, 0, 255)), np.uint8)
