"""Single images in memory, made into arrays of one size."""

from __future__ import annotations

import io
import warnings
from pathlib import PurePosixPath

import numpy as np

from ucb.datasets.arrays import Images
from ucb.datasets.extras import extra

ENDINGS = {".png", ".jpg", ".jpeg", ".ppm", ".bmp", ".webp", ".gif"}
FORMATS = ("PNG", "JPEG", "PPM", "BMP", "WEBP", "GIF")
MOST_PIXELS = 1 << 26


def is_image(name: str) -> bool:
    """Whether a file looks like an image by its name; hidden files are not meant."""
    path = PurePosixPath(name)
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


def decoded(content: bytes, shape: tuple[int, ...], enlarged: float = 1.0) -> Images | None:
    """Return an image in the given shape, grey or in colour, or None if it cannot be read.

    With ``enlarged`` only the middle is taken, which is that many times smaller than the image.
    """
    library = extra("PIL.Image", "Pillow", "reading images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Pillow thinks of odd metadata
            with library.open(io.BytesIO(content), formats=FORMATS) as opened:
                if opened.width * opened.height > MOST_PIXELS:
                    return None
                upright = extra("PIL.ImageOps", "Pillow", "reading images").exif_transpose(opened)
                image = upright.convert("RGB" if len(shape) == 3 else "L")
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
