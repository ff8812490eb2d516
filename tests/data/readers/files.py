"""Small files to read, and reading them whole."""

import numpy as np
import torch
from PIL import Image


def drawn(seed=0, size=(12, 10), mode="L"):
    """Return an image of Pillow full of noise; size is width and height."""
    width, height = size
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, *channels), dtype=np.uint8)
    return Image.fromarray(pixels)


def write(path, image=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    (drawn() if image is None else image).save(path, **options)
    return path


def everything(examples, size=7):
    """Return the positions and the values of all that can be read."""
    batches = list(examples.batches(torch.arange(len(examples)), size))
    positions = [place for chunk, _ in batches for place in chunk.tolist()]
    assert all(len(chunk) == len(x) <= size for chunk, x in batches)
    return positions, torch.cat([x for _, x in batches]) if batches else None


def whys(examples):
    return {skipped.name: skipped.why for skipped in examples.skipped}
