"""Small waves: digits of the package, letters that Pillow draws, rows."""

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from ucb.stream import load_mnist


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


def letters(count, seed=0):
    """Letters in white on black, as a test may draw them anywhere: unlike digits."""
    numbers = np.random.default_rng(seed)
    images = []
    for _ in range(count):
        image = Image.new("L", (28, 28))
        font = ImageFont.load_default(int(numbers.integers(18, 26)))
        place = tuple(int(v) for v in numbers.integers(2, 8, 2))
        letter = "AEFGHKMNQRTWXYZ"[numbers.integers(15)]
        ImageDraw.Draw(image).text(place, letter, fill=255, font=font)
        images.append(torch.from_numpy(np.array(image)))
    return torch.stack(images)[:, None]


def write_pngs(folder, x, labels):
    """A folder of class folders."""
    for number, (image, label) in enumerate(zip(x, labels, strict=True)):
        place = folder / label
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).save(place / f"{number}.png")
    return folder


def auroc(inside, outside):
    """The chance that something from outside has the greater value."""
    ranks = torch.cat([inside, outside]).double().argsort().argsort().double() + 1
    n, m = len(inside), len(outside)
    return float((ranks[n:].sum() - m * (m + 1) / 2) / (n * m))
