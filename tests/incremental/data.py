"""Small waves: digits of the package, letters that Pillow draws, rows."""

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from ucb.data.streams import load_mnist


def digits(classes, per_class, part="train", skip=0):
    """Images and labels of some digits, in memory."""
    data = load_mnist()
    x, y = (data.x_train, data.y_train) if part == "train" else (data.x_test, data.y_test)
    rows = torch.cat([torch.nonzero(y == c).squeeze(1)[skip : skip + per_class] for c in classes])
    return x[rows], [str(int(label)) for label in y[rows]]


def blobs(classes, per_class, seed=0, columns=6):
    """Rows around a centre for each class, far apart."""
    x, labels = [], []
    for number, name in enumerate(classes):
        centre = torch.randn(columns, generator=torch.Generator().manual_seed(sum(map(ord, str(name))))) * 4
        noise = torch.Generator().manual_seed(seed * 1000 + number)
        x.append(centre + torch.randn(per_class, columns, generator=noise))
        labels += [str(name)] * per_class
    return torch.cat(x), labels


LETTERS = "AEFHKMNPRTVWXYadefhkmnprtwx"
"""Letters that no digit looks like: without B, D, G, I, O, Q, S, Z, b, g, i, l, o, q, s, y, z and their like."""


def letters(count, seed=0):
    """Letters as wide, as thick and as crooked as the digits are, in white on black: a test may draw them anywhere."""
    return torch.stack([_letter(np.random.default_rng((seed, number))) for number in range(count)])[:, None]


def _letter(numbers):
    """Draw one in the middle of a larger image, turn it, and cut out what an image of a digit shows."""
    image = Image.new("L", (56, 56))
    font = ImageFont.load_default(int(numbers.integers(18, 26)))
    place = tuple(28 + int(shift) for shift in numbers.integers(-2, 3, 2))
    stroke = int(numbers.integers(2))
    letter = LETTERS[numbers.integers(len(LETTERS))]
    ImageDraw.Draw(image).text(place, letter, fill=255, font=font, anchor="mm", stroke_width=stroke)
    turned = image.rotate(float(numbers.uniform(-15, 15)), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(turned.crop((14, 14, 42, 42))))


def write_pngs(folder, x, labels):
    """A folder of class folders."""
    for number, (image, label) in enumerate(zip(x, labels, strict=True)):
        place = folder / label
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(place / f"{number}.png")
    return folder
