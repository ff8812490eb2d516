"""Single images in memory, made into arrays of one size."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import numpy as np

from ucb.datasets.arrays import Images
from ucb.datasets.extras import extra
from ucb.storage import ceilings

ENDINGS = {
    *(".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".avif", ".jp2"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
}
FORMATS = ("PNG", "JPEG", "PPM", "BMP", "WEBP", "GIF", "TIFF", "AVIF", "JPEG2000")
"""Formats whose decoders only decode: EPS, for one, starts another program."""
ORIENTATION = 0x0112
TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""What sets an image upright, by the orientation that EXIF gives it."""


logging.getLogger("PIL").addHandler(logging.NullHandler())  # or what it thinks of a file goes to the terminal


class UnreadableImageError(ValueError):
    """An image that cannot be read; its text says why."""


def is_image(name: str) -> bool:
    """Whether a file looks like an image by its name; hidden files are not meant."""
    path = PurePosixPath(name)
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what Pillow thinks of odd metadata. All threads share Python's filters: enter it in one only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def upright(file: BinaryIO) -> Any:
    """Return an image of Pillow, in the mode of its file, turned as its EXIF data say; of an animation the first frame.

    What goes wrong is an UnreadableImageError.
    """
    image = loaded(described(file))
    return image if (turn := turn_of(image)) is None else image.transpose(turn)


def described(file: BinaryIO, least: int | None = None) -> Any:
    """Return an image of Pillow of which only the header has been read: too large a one is refused here.

    With ``least``, a JPEG much larger than that many pixels on each side may come smaller, which is quicker.
    """
    library = extra("PIL.Image", "Pillow", "reading images")
    library.init()
    with _damage_told(library):
        image = library.open(file, formats=[name for name in FORMATS if name in library.OPEN])
        if least is not None:
            image.draft(None, (least, least))
        pixels = image.width * image.height
        if pixels > ceilings.PIXELS:
            raise UnreadableImageError(f"it has {pixels:,} pixels, more than {ceilings.PIXELS:,}")
    return image


def loaded(image: Any) -> Any:
    """Return an image with its pixels."""
    with _damage_told(extra("PIL.Image", "Pillow", "reading images")):
        image.load()
    return image


def turn_of(image: Any) -> Any:
    """Return what sets an image upright, by its EXIF data; None where it is so."""
    library = extra("PIL.Image", "Pillow", "reading images")
    try:
        turn = TURNS.get(image.getexif().get(ORIENTATION))
    except Exception:  # the pixels are whole, whatever is wrong with the words about them
        turn = None
    return None if turn is None else library.Transpose[turn]


@contextmanager
def _damage_told(library: Any) -> Iterator[None]:
    """Say in a few words what is wrong with an image; of a damaged one Pillow may say anything."""
    try:
        yield
    except UnreadableImageError:
        raise
    except library.DecompressionBombError:
        raise UnreadableImageError(f"it has more than {ceilings.PIXELS:,} pixels") from None
    except library.UnidentifiedImageError:
        raise UnreadableImageError("it is no image of a known format") from None
    except Exception as error:
        reason = "it is truncated" if "truncated" in str(error) else "it is damaged"
        raise UnreadableImageError(reason) from None


def decoded(content: bytes, shape: tuple[int, ...], enlarged: float = 1.0) -> Images | None:
    """Return an image in the given shape, grey or in colour, or None if it cannot be read.

    With ``enlarged`` only the middle is taken, which is that many times smaller than the image.
    """
    library = extra("PIL.Image", "Pillow", "reading images")
    try:
        with quiet():
            image = upright(io.BytesIO(content)).convert("RGB" if len(shape) == 3 else "L")
    except Exception:  # of a damaged image Pillow may say anything
        return None
    box = (_middle(image.width, enlarged), _middle(image.height, enlarged))
    (left, right), (top, bottom) = box
    height, width = shape[:2]
    if (image.width, image.height) != (width, height) or enlarged != 1.0:
        image = image.resize((width, height), library.Resampling.BILINEAR, box=(left, top, right, bottom))
    return np.asarray(image, np.uint8)


def _middle(side: int, enlarged: float) -> tuple[float, float]:
    """Return where the middle part of a side begins and ends."""
    return side / 2 - side / enlarged / 2, side / 2 + side / enlarged / 2
