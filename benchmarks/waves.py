"""Five or ten waves of new classes, no wave named: the fixed trunk beside one that goes on learning with ucb-ng.

    python benchmarks/waves.py [mnist] [cifar10] [cifar100] [lfw100] [--images 2000] [--trunk own] [--out results/waves]

writes one JSON file for each data set and method: accuracy on all test images, calibration, how well other images are
told from known ones, and speed; for the fixed trunk also the head wave by wave beside one fit of everything and, if it
is made from the first wave (`own`), the same waves after a first one of ten images. Speed is in CPU time: run it with
OMP_NUM_THREADS=1 for the speed of a core. With a trunk that comes ready, the seed also chooses the images that are
learnt, and `--remember FOLDER` keeps what its net shows of each image for further runs: speed is then not measured.
MNIST is in the package; the others are read from the folder that UCB_DATA names, and what is not there is left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ucb
from ucb.bayes.conjugate import ConjugateHead
from ucb.data.streams import load_mnist
from ucb.incremental import Model
from ucb.incremental.model_file import to_bytes
from ucb.incremental.predict import predict_batch
from ucb.incremental.pretrained import PretrainedTrunk, take_roots
from ucb.metrics import auroc, ece, nll
from ucb.seeds import generator_for

PHOTOGRAPHS = ("svhn", "traffic_signs")
UNLIKE = {
    "mnist": ("notmnist", "fashion_mnist"),
    "cifar10": PHOTOGRAPHS,
    "cifar100": PHOTOGRAPHS,
    "lfw100": PHOTOGRAPHS,
}
"""What a model of each data set has never seen."""
WAVES = {"cifar100": 10, "lfw100": 10}
"""Where there are not five."""
EPOCHS = 5
"""Epochs of ucb-ng: what is affordable on a CPU."""
TESTED, UNLIKE_TESTED = 10_000, 5000
"""Images that every method is asked about: known ones, and of each other kind."""

Data = tuple[Tensor, Tensor, Tensor, Tensor]
Wave = tuple[Tensor, list[str]]


def file_of(name: str) -> Path | None:
    folder = os.environ.get("UCB_DATA")
    path = Path(folder or "") / f"{name}.npz"
    return path if folder and path.exists() else None


def images(array: np.ndarray[Any, Any]) -> Tensor:
    x = torch.from_numpy(array)
    return x[:, None] if x.dim() == 3 else (x.permute(0, 3, 1, 2).contiguous() if x.shape[-1] == 3 else x)


def load(name: str) -> Data | None:
    if name == "mnist":
        return tuple(load_mnist())
    path = file_of(name)
    if path is None:
        return None
    with np.load(path) as file:
        x, y, x_test, y_test = (file[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    return images(x), torch.from_numpy(y).long(), images(x_test), torch.from_numpy(y_test).long()


def some(x: Tensor, y: Tensor, classes: Sequence[int], count: int, seed: int | None = None) -> Wave:
    """Return up to ``count`` images of each class: the first ones, or some by chance; 0 means all."""
    every = [torch.nonzero(y == c).squeeze(1) for c in classes]
    if seed is not None:
        every = [
            own[torch.randperm(len(own), generator=generator_for("chosen", seed, int(y[own[0]])))] for own in every
        ]
    rows = torch.cat([own[:count] if count else own for own in every])
    return x[rows], [str(int(label)) for label in y[rows]]


class Remembered:
    """What a net shows of images, by their content."""

    def __init__(self, folder: Path, trunk: PretrainedTrunk) -> None:
        self.path, self.trunk, self.shown = folder / f"{trunk.name}.npz", trunk, dict[bytes, np.ndarray[Any, Any]]()
        if self.path.exists():
            with np.load(self.path) as file:
                self.shown = dict(zip(map(bytes, file["keys"]), file["shown"], strict=True))
        self.compute, self.was = type(trunk).forward, len(self.shown)

    def forward(self, x: Tensor) -> Tensor:
        """Return features, from what is remembered or from the net."""
        keys = [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in x.numpy()]
        new = [place for place, key in enumerate(keys) if key not in self.shown]
        if new:
            self.trunk.is_rooted = False
            found = self.compute(self.trunk, x[new]).numpy()
            self.trunk.is_rooted = True
            self.shown.update(zip((keys[place] for place in new), found, strict=True))
        return take_roots(torch.from_numpy(np.stack([self.shown[key] for key in keys])))

    def keep(self) -> None:
        """Write what is new to the folder."""
        if len(self.shown) > self.was:
            keys = np.frombuffer(b"".join(self.shown), np.uint8).reshape(-1, 16)
            np.savez(self.path, keys=keys, shown=np.stack(list(self.shown.values())))
            self.was = len(self.shown)


def remember(folder: Path | None, trunk: str) -> Remembered | None:
    """Let all pretrained trunks show what a folder remembers, if there is one."""
    if folder is None:
        return None
    remembered = Remembered(folder, PretrainedTrunk(trunk))
    PretrainedTrunk.forward = lambda _, x: remembered.forward(x)
    return remembered


def asked(model: Model, x: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """Return probabilities, unsureness, what is called unsure, and images a second of CPU time."""
    predict_batch(model, x[:512])
    began = time.process_time()
    answers = [predict_batch(model, part) for part in x.split(512)]
    seconds = time.process_time() - began
    p = torch.cat([answer.prediction.probabilities for answer in answers])
    unsureness, unsure = (torch.cat([getattr(a, name) for a in answers]) for name in ("unsureness", "unsure"))
    return p, unsureness, unsure, len(x) / seconds


def taught(
    model: Model, data: Data, counts: Sequence[int], seed: int | None = None
) -> Iterator[tuple[Wave, dict[str, Any]]]:
    """Let a model learn new classes in each wave, ``counts`` images of each; yield what each wave cost and gave."""
    each = (int(data[1].max()) + 1) // len(counts)
    for number, count in enumerate(counts):
        wave = some(data[0], data[1], range(each * number, each * (number + 1)), count, seed)
        began = time.process_time()
        report = model.learn(wave, epochs=EPOCHS if model.method == "ucb-ng" else None)
        row = {"cpu_seconds": time.process_time() - began, "held_out_accuracy": report.wave.accuracy}
        print(model.method, report.wave.name, row, flush=True)
        yield wave, row


def right_so_far(model: Model, data: Data) -> dict[str, Any]:
    """Return the percentage of right answers to test images of all classes that the model has met, and by wave."""
    y = data[3][data[3] < len(model.classes)]
    label = asked(model, data[2][data[3] < len(model.classes)])[0].argmax(1)
    right = label == model.numbers_of(map(str, y.tolist()))
    return {"accuracy": percent(right), "of_waves": of_waves(right, y, 2)}


def of_waves(right: Tensor, y: Tensor, each: int) -> list[float]:
    return [percent(right[y // each == wave]) for wave in range(int(y.max()) // each + 1)]


def percent(which: Tensor) -> float:
    return 100 * float(which.double().mean())


def at_once(model: Model, waves: list[Wave], x: Tensor) -> float:
    """Return the largest difference of a score to that of the same head fitted to all data in one go."""
    head = ConjugateHead(model.learner.trunk.features, len(model.classes), model.learner.head.ridge)
    everything = torch.cat([wave for wave, _ in waves])
    labels = model.numbers_of([label for _, own in waves for label in own])
    for part, own in zip(everything.split(500), labels.split(500), strict=True):
        head.add(model.learner.features(part), own)
    features = model.learner.features(x).double()
    return float((head(features) - model.learner.head(features)).abs().max())


def measured(
    name: str, method: str, data: Data, count: int, seed: int, trunk: str, features: int | None
) -> dict[str, Any]:
    is_own = method == "fixed" and trunk == "own"
    how = {"trunk": trunk, "features": features} if method == "fixed" else {}
    model, waves, rows, sizes = Model(method, seed=seed, **how), [], [], []
    for wave, row in taught(model, data, [count] * WAVES.get(name, 5), None if is_own or method != "fixed" else seed):
        waves.append(wave)
        sizes.append(len(to_bytes(model)))
        rows.append(row | ({"so_far": right_so_far(model, data)} if is_own else {}))
    return {
        "data": name,
        "method": method,
        "images_a_class": count,
        "seed": seed,
        "epochs": None if method == "fixed" else EPOCHS,
        **answers(name, model, data),
        "waves": rows,
        "bytes_after_each_wave": sizes,
        "learnt_images_a_cpu_second": sum(len(x) for x, _ in waves) / sum(row["cpu_seconds"] for row in rows),
        **(of_fixed(model, data, waves) if method == "fixed" else of_net(model)),
        "versions": {"ucb": ucb.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
    }


def answers(name: str, model: Model, data: Data) -> dict[str, Any]:
    """Say how good the answers are, to images of the classes that were learnt and to others."""
    x, y = data[2][:TESTED], data[3][:TESTED]
    target = model.numbers_of(map(str, y.tolist()))
    p, unsureness, unsure, rate = asked(model, x)
    right = p.argmax(1) == target
    unlike = {}
    for other in UNLIKE[name]:
        strange = load(other)
        if strange is not None:
            _, theirs, called, _ = asked(model, strange[2][:UNLIKE_TESTED])
            share = float(called.double().mean())
            unlike[other] = {"images": len(called), "auroc": auroc(unsureness, theirs), "called_unsure": share}
    return {
        "tested": len(x),
        "accuracy": percent(right),
        "accuracy_of_waves": of_waves(right, y, (int(y.max()) + 1) // WAVES.get(name, 5)),
        "ece": float(ece(p, target)),
        "nll": float(nll(p, target)),
        "called_unsure": float(unsure.double().mean()),
        "accuracy_where_sure": percent(right[~unsure]),
        "unlike": unlike,
        "judged_images_a_cpu_second": rate,
    }


def of_fixed(model: Model, data: Data, waves: list[Wave]) -> dict[str, Any]:
    """Say what only the fixed way has; the model of ten images learns the later waves as this one did."""
    found = {
        "trunk": model.learner.trunk.facts,
        "features": model.learner.trunk.features,
        "ridge": model.learner.head.ridge,
    }
    if not model.learner.trunk.is_made:
        return found
    few = Model(seed=model.seed, trunk="own")
    so_far = [right_so_far(few, data) for _ in taught(few, data, [5, *[len(waves[0][1]) // 2] * 4])]
    return found | {
        "largest_difference_to_one_fit": at_once(model, waves, data[2][:2000]),
        "first_wave_of_ten_images": so_far,
    }


def of_net(model: Model) -> dict[str, Any]:
    """Say what only the way has that goes on learning."""
    return {"net": model.learner.net_name, "settings": asdict(model.learner.method.settings)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["mnist", "cifar10"])
    parser.add_argument("--methods", default="fixed,ucb-ng")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trunk", default="own", help="of the fixed way: own, efficientnet-lite0, ...")
    parser.add_argument("--features", type=int, help="random features beside a trunk that comes ready")
    parser.add_argument("--remember", type=Path, help="a folder for what a pretrained net shows of each image")
    parser.add_argument("--out", type=Path, default=Path("results/waves"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    remembered = remember(options.remember, options.trunk)
    for name in options.data:
        data = load(name)
        if data is None:
            print(f"{name} is not here: name its folder with UCB_DATA")
            continue
        for method in options.methods.split(","):
            found = measured(name, method, data, options.images, options.seed, options.trunk, options.features)
            if remembered is not None:
                remembered.keep()
                for speed in ("learnt_images_a_cpu_second", "judged_images_a_cpu_second"):
                    del found[speed]
            path = options.out / f"{name}-{method}-seed{options.seed}.json"
            path.write_text(json.dumps(found, indent=1) + "\n")
            print(json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
