"""Images of any kind become bytes of one shape. This is the one place where image files are read.

Images stand upright, as their EXIF data say; of an animation the first frame is taken. Transparent parts show white.
16-bit grey is scaled to 8 bits; grey in fractions is 0 to 1, or 0 to 255 if a value is above 1. CMYK, palettes and
other colours become RGB; grey becomes colour by equal channels, and colour grey by its brightness. An image of another
size is resized to the size wanted; its aspect ratio is not kept, because every part of the image counts and a net sees
one size only.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import PurePosixPath
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from ucb.data.readers.reader import Shape
from ucb.storage import ceilings

Images = npt.NDArray[np.uint8]
ENDINGS = {
    *(".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".avif", ".jp2"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
}
FORMATS = ("PNG", "JPEG", "PPM", "BMP", "WEBP", "GIF", "TIFF", "AVIF", "JPEG2000")
"""Formats whose decoders only decode: EPS, for one, starts another program."""
ORIENTATION = 0x0112
TURNS: dict[Any, Image.Transpose] = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What sets an image upright, by the orientation that EXIF gives it."""
SIXTEEN_BITS = 65_535
GREY_MODES = ("1", "L", "LA", "La")
FINER = 2
"""Unless it is to be exact, a large photo is decoded at no less than this many times the size wanted."""
LARGE, STRIP = 1 << 22, 1 << 20
"""Pixels from which on an image is converted in strips, and those of a strip."""
_ONE_LARGE = Lock()
"""Many threads decode; large images take turns, since their memory adds up."""
SAMPLE = 200
LEAST, MOST = 8, 64

logging.getLogger("PIL").addHandler(logging.NullHandler())  # otherwise its log messages go to the terminal


class UnreadableImageError(ValueError):
    """An image that cannot be read; its text says why."""


def is_image(name: str) -> bool:
    """Whether a file looks like an image by its name; hidden files do not count."""
    path = PurePosixPath(name)
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Pillow's warnings about odd metadata. All threads share Python's filters: enter it in one only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def read_image(file: BinaryIO, shape: Shape, *, exact: bool = False, zoom: float = 1.0) -> Images:
    """Return an image file as uint8 [H, W] or [H, W, 3] for the shape (C, H, W), or raise an UnreadableImageError.

    A large image may be decoded smaller than it is, which is quicker, unless every pixel is to count (``exact``). With
    ``zoom`` only the middle is taken, which is that many times smaller than the image.
    """
    least = None if exact else FINER * max(shape[1:])
    image = open_image(file, least)
    with _ONE_LARGE if image.width * image.height > LARGE else nullcontext():
        plain = load_plain(image, least)
        image.close()  # its pixels are gone before those of the next one come
        return fit(plain, shape, zoom)


def open_image(file: BinaryIO, least: int | None = None) -> Image.Image:
    """Return an image of Pillow of which only the header has been read: too large a one is refused here.

    With ``least``, a JPEG much larger than that many pixels on each side may come smaller, which is quicker.
    """
    Image.init()
    with _name_damage("it is damaged"):
        image = Image.open(file, formats=[name for name in FORMATS if name in Image.OPEN])
        if least is not None:
            image.draft(None, (least, least))
        pixels = image.width * image.height
        if pixels > ceilings.PIXELS:
            raise UnreadableImageError(f"it has {pixels:,} pixels, more than {ceilings.PIXELS:,}")
    return image


def load_plain(image: Image.Image, least: int | None = None) -> Image.Image:
    """Return an open image upright, in 8 bits, grey (mode L) or in colour (RGB).

    With ``least`` a large one comes smaller, but not below so many pixels on a side.
    """
    with _name_damage("it is damaged"):
        image.load()
    with _name_damage("its colours cannot be read"):  # of a damaged palette Pillow may say anything
        large = image.width * image.height > LARGE
        plain = _shrink(image, least) if large and least is not None else to_plain(image)
        try:
            turn = TURNS.get(image.getexif().get(ORIENTATION))
        except Exception:  # the pixels are whole, whatever is wrong with the words about them
            turn = None
        return plain if turn is None else plain.transpose(turn)


@contextmanager
def _name_damage(otherwise: str) -> Iterator[None]:
    """Say in a few words what is wrong with an image; of a damaged one Pillow may say anything."""
    try:
        yield
    except UnreadableImageError:
        raise
    except Image.DecompressionBombError:
        raise UnreadableImageError(f"it has more than {ceilings.PIXELS:,} pixels") from None
    except UnidentifiedImageError:
        raise UnreadableImageError("it is no image of a known format") from None
    except Exception as error:
        raise UnreadableImageError("it is truncated" if "truncated" in str(error) else otherwise) from None


def _shrink(image: Image.Image, least: int) -> Image.Image:
    """Return a plain image of means over blocks of pixels, made strip by strip: whole copies take much memory."""
    across, down = (max(1, side // least) for side in image.size)
    rows = max(1, STRIP // (image.width * down)) * down
    brightest = image.getextrema()[1] if image.mode == "F" else None
    strips = [
        to_plain(image.crop((0, top, image.width, min(top + rows, image.height))), brightest).reduce((across, down))
        for top in range(0, image.height, rows)
    ]
    mode = "L" if all(strip.mode == "L" for strip in strips) else "RGB"
    whole = Image.new(mode, (strips[0].width, sum(strip.height for strip in strips)))
    top = 0
    for strip in strips:
        whole.paste(strip, (0, top))
        top += strip.height
    return whole


def to_plain(image: Image.Image, brightest: Any = None) -> Image.Image:
    """Return an image of Pillow in 8 bits, grey (mode L) or in colour (RGB)."""
    if image.mode[0] in "IF":
        return Image.fromarray(_to_bytes(np.asarray(image), brightest))
    kept = "L" if image.mode in GREY_MODES else "RGB"
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("LA") if image.mode == "La" else image
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
        kept = "L" if kept == "L" and is_grey(image) else "RGB"
    return image.convert(kept)


def _to_bytes(values: npt.NDArray[Any], brightest: float | None = None) -> Images:
    """Return grey of more than 8 bits, or in fractions, in 8 bits; it may be a part of the image."""
    if values.dtype.kind in "iu":
        values = np.clip(values, 0, SIXTEEN_BITS).astype(np.uint32)
        return np.asarray((values + 128) // 257, np.uint8)
    if not np.isfinite(values).all():
        raise UnreadableImageError("it holds values that are not finite")
    scale = 255.0 if (values.max() if brightest is None else brightest) <= 1 else 1.0
    return np.asarray(np.rint(np.clip(values * scale, 0, 255)), np.uint8)


def is_grey(image: Image.Image) -> bool:
    """Whether an image shows no colour, however it is stored."""
    if image.mode == "L":
        return True
    red, green, blue = (np.asarray(channel) for channel in image.split()[:3])
    return bool((red == green).all() and (green == blue).all())


def fit(image: Image.Image, shape: Shape, zoom: float = 1.0) -> Images:
    """Return a plain image as uint8 [H, W] or [H, W, 3] for the shape (C, H, W); with ``zoom`` only its middle."""
    channels, height, width = shape
    image = image.convert("L" if channels == 1 else "RGB")
    if image.size != (width, height) or zoom != 1.0:
        left, top = (side / 2 - side / zoom / 2 for side in image.size)
        right, bottom = (side / 2 + side / zoom / 2 for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR, box=(left, top, right, bottom))
    return np.asarray(image)


def channels_first(images: Images) -> Images:
    """Return images [n, H, W] or [n, H, W, C] as [n, C, H, W]."""
    return images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def sample(number: int) -> Sequence[int]:
    """Return which of so many images settle a shape: spread evenly, so that no class is left out by its name."""
    chosen: list[int] = np.linspace(0, number - 1, min(number, SAMPLE)).round().astype(int).tolist()
    return chosen


def settle_shape(seen: Iterable[tuple[int, int, bool]]) -> Shape:
    """Return the shape (C, H, W) for images like those of a sample: height, width and whether each is grey.

    C is 1 if every one is grey, that is shows no colour however it is stored, else 3. H and W are the most frequent
    size; of equally frequent ones the largest. An image of more than 64 on a side counts as a square of side 64, so
    that photos of many sizes do not lose to a few icons of one. A side below 8 becomes 8.
    """
    seen = list(seen)
    sizes = Counter((MOST, MOST) if max(height, width) > MOST else (height, width) for height, width, _ in seen)
    height, width = max(sizes, key=lambda size: (sizes[size], size[0] * size[1], size))
    channels = 1 if all(grey for *_, grey in seen) else 3
    return channels, max(height, LEAST), max(width, LEAST)
