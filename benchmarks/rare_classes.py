"""How strongly a score should depend on how many examples its class has: powers of the count, on held-out images.

    python benchmarks/rare_classes.py [mnist] [cifar10] [--out results/waves/rare-classes.json]

Scores of the fixed way's head are multiplied by (mean count / count) ** power, for several mixtures of frequent and
rare classes. All images, the held-out ones too, are training images; what is right of all classes alike decides.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from ucb.incremental.frozen import FrozenTrunkModel
from ucb.incremental.trunks import build_trunk
from waves import load, percent

MOST, HELD_OUT = 1000, 200
"""Images of a class that may be learnt, and that are asked about."""
POWERS = (0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 1.0)
MIXTURES = {
    "all alike": [MOST] * 10,
    "5 of the first two": [5] * 2 + [MOST] * 8,
    "50 of the first two": [50] * 2 + [MOST] * 8,
    "200 of the first two": [200] * 2 + [MOST] * 8,
    "50 of the last two": [MOST] * 8 + [50] * 2,
    "10 to 1,000": [10, 20, 30, 50, 80, 130, 220, 360, 600, MOST],
}


@torch.no_grad()
def features_of(x: Tensor, y: Tensor) -> tuple[Any, list[Tensor]]:
    """Return a trunk made of ten images, and the features of every class."""
    classes = [x[torch.nonzero(y == c).squeeze(1)[: MOST + HELD_OUT]] for c in range(10)]
    trunk = build_trunk(tuple(x.shape[1:]))
    trunk.look(torch.cat([images[:5] for images in classes[:2]]), 0)
    return trunk, [torch.cat([trunk(some) for some in images.split(200)]) for images in classes]


def right_by_power(trunk: Any, classes: list[Tensor], counts: list[int]) -> dict[str, dict[str, float]]:
    """Return the percentage of held-out images that is right under each power, of all classes and of the rare ones."""
    way = FrozenTrunkModel(trunk, len(classes))
    for number, (features, count) in enumerate(zip(classes, counts, strict=True)):
        way.add(features[:count], torch.full((count,), number))
    way.settle()
    scores = way.head(torch.cat([features[MOST:] for features in classes]).double())
    truth = torch.arange(len(classes)).repeat_interleave(HELD_OUT)
    own = way.head.counts
    rare = (own < own.max() / 2)[truth]
    found = {}
    for power in POWERS:
        right = (scores * (own.mean() / own) ** power).argmax(1) == truth
        found[str(power)] = {"all": percent(right)} | ({"rare": percent(right[rare])} if bool(rare.any()) else {})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["mnist", "cifar10"])
    parser.add_argument("--out", type=Path, default=Path("results/waves/rare-classes.json"))
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name in options.data:
        data = load(name)
        if data is None:
            print(f"{name} is not here: name its folder with UCB_DATA")
            continue
        trunk, classes = features_of(data[0], data[1])
        found[name] = {mixture: right_by_power(trunk, classes, counts) for mixture, counts in MIXTURES.items()}
    means = {
        power: mean(mixture[power]["all"] for mixtures in found.values() for mixture in mixtures.values())
        for power in map(str, POWERS)
    }
    print(json.dumps(means, indent=1))
    options.out.write_text(json.dumps({"means": means, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
