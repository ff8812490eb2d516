"""Five waves of two classes, no wave named: the fixed trunk beside one that goes on learning with ucb-ng.

    python benchmarks/waves.py [mnist] [cifar10] [--images 2000] [--out results/waves]

writes one JSON file for each data set and method: accuracy on all test images, calibration, how well other images are
told from known ones, the head wave by wave beside one fit of everything, and speed. MNIST is in the package; the others
are read from the folder that UCB_DATA names, and what is not there is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ucb
from ucb.bayes.conjugate import ConjugateHead
from ucb.metrics import ece, nll
from ucb.stream import load_mnist
from ucb.waves import Model
from ucb.waves.file import to_bytes
from ucb.waves.predicting import answers_to

UNLIKE = {"mnist": ("notmnist", "fashion_mnist"), "cifar10": ("svhn", "traffic_signs")}
"""What a model of each data set has never seen."""
EPOCHS = 5
TESTED = {"fixed": 10_000, "ucb-ng": 2000}
"""Epochs of ucb-ng and test images: what is affordable on a CPU."""


def file_of(name: str) -> Path | None:
    folder = os.environ.get("UCB_DATA")
    path = Path(folder or "") / f"{name}.npz"
    return path if folder and path.exists() else None


def images(array: np.ndarray[Any, Any]) -> Tensor:
    x = torch.from_numpy(array)
    return x[:, None] if x.dim() == 3 else (x.permute(0, 3, 1, 2).contiguous() if x.shape[-1] == 3 else x)


def load(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    if name == "mnist":
        return tuple(load_mnist())
    path = file_of(name)
    if path is None:
        return None
    with np.load(path) as file:
        x, y, x_test, y_test = (file[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    return images(x), torch.from_numpy(y).long(), images(x_test), torch.from_numpy(y_test).long()


def some(x: Tensor, y: Tensor, classes: list[int], count: int) -> tuple[Tensor, list[str]]:
    rows = torch.cat([torch.nonzero(y == c).squeeze(1)[:count] for c in classes])
    return x[rows], [str(int(label)) for label in y[rows]]


def asked(model: Model, x: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """Return probabilities, unsureness, what is called unsure, and images a second."""
    answers_to(model, x[:512])
    began = time.monotonic()
    answers = [answers_to(model, part) for part in x.split(512)]
    seconds = time.monotonic() - began
    p = torch.cat([answer.prediction.probabilities for answer in answers])
    unsureness, unsure = (torch.cat([getattr(a, name) for a in answers]) for name in ("unsureness", "unsure"))
    return p, unsureness, unsure, len(x) / seconds


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Return the chance that something from outside has the greater value."""
    ranks = torch.cat([inside, outside]).argsort().argsort().double() + 1
    n, m = len(inside), len(outside)
    return float((ranks[n:].sum() - m * (m + 1) / 2) / (n * m))


def at_once(model: Model, waves: list[tuple[Tensor, list[str]]], x: Tensor) -> float:
    """Return the largest difference of a score to that of the same head fitted to all data in one go."""
    head = ConjugateHead(model.way.trunk.features, len(model.classes), model.way.head.ridge)
    everything = torch.cat([wave for wave, _ in waves])
    labels = model.numbers_of([label for _, own in waves for label in own])
    for part, own in zip(everything.split(500), labels.split(500), strict=True):
        head.add(model.way.features(part), own)
    features = model.way.features(x).double()
    return float((head(features) - model.way.head(features)).abs().max())


def measured(name: str, method: str, count: int, seed: int) -> dict[str, Any] | None:
    data = load(name)
    if data is None:
        return None
    x, y, x_test, y_test = data
    x_test, y_test = x_test[: TESTED[method]], y_test[: TESTED[method]]
    model, waves, rows, sizes = Model(method, seed=seed), [], [], []
    for first in range(0, 10, 2):
        wave = some(x, y, [first, first + 1], count)
        report = model.learn(wave, epochs=EPOCHS if method == "ucb-ng" else None)
        waves.append(wave)
        sizes.append(len(to_bytes(model)))
        rows.append({"seconds": report.seconds, "held_out_accuracy": report.wave.accuracy})
        print(f"{name} {method}: wave {len(rows)} {report.seconds:.1f} s, held out {report.wave.accuracy}", flush=True)
    target = model.numbers_of([str(int(label)) for label in y_test])
    p, unsureness, unsure, rate = asked(model, x_test)
    right = p.argmax(1) == target
    found: dict[str, Any] = {
        "data": name,
        "method": method,
        "net": None if method == "fixed" else model.way.net_name,
        "images_a_class": count,
        "seed": seed,
        "tested": len(x_test),
        "epochs": None if method == "fixed" else EPOCHS,
        "accuracy": 100 * float(right.double().mean()),
        "accuracy_of_waves": [100 * float(right[(y_test // 2) == wave].double().mean()) for wave in range(5)],
        "ece": float(ece(p, target)),
        "nll": float(nll(p, target)),
        "called_unsure": float(unsure.double().mean()),
        "accuracy_where_sure": 100 * float(right[~unsure].double().mean()),
        "unlike": {},
        "waves": rows,
        "bytes_after_each_wave": sizes,
        "learnt_images_a_second": 10 * count / sum(row["seconds"] for row in rows),
        "judged_images_a_second": rate,
    }
    if method == "fixed":
        found["features"] = model.way.trunk.features
        found["ridge"] = model.way.head.ridge
        found["largest_difference_to_one_fit"] = at_once(model, waves, x_test[:2000])
    for other in UNLIKE[name]:
        strange = load(other)
        if strange is not None:
            _, theirs, called, _ = asked(model, strange[2][: TESTED[method] // 2])
            share = float(called.double().mean())
            found["unlike"][other] = {"auroc": auroc(unsureness, theirs), "called_unsure": share}
    found["versions"] = {"ucb": ucb.__version__, "torch": torch.__version__, "python": platform.python_version()}
    found["threads"] = torch.get_num_threads()
    return found


def ten_images(name: str) -> dict[str, Any] | None:
    """Return how a model of ten images does, and the same model after the other waves."""
    data = load(name)
    if data is None:
        return None
    x, y, x_test, y_test = data
    model = Model()
    model.learn(some(x, y, [0, 1], 5))
    own = y_test < 2
    p = asked(model, x_test[own])[0]
    return {"accuracy_on_its_two_classes": 100 * float((p.argmax(1) == y_test[own]).double().mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["mnist", "cifar10"])
    parser.add_argument("--methods", default="fixed,ucb-ng")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/waves"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.data:
        for method in options.methods.split(","):
            found = measured(name, method, options.images, options.seed)
            if found is None:
                print(f"{name} is not here: name its folder with UCB_DATA")
                continue
            if method == "fixed":
                found["first_wave_of_ten_images"] = ten_images(name)
            path = options.out / f"{name}-{method}-seed{options.seed}.json"
            path.write_text(json.dumps(found, indent=1) + "\n")
            print(json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
