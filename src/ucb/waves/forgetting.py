"""What a model still knows of data that happen to be at hand, beside what it knew when it learnt their classes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ucb.waves.predicting import answered
from ucb.waves.reading import Data, as_examples
from ucb.waves.watching import Watcher

if TYPE_CHECKING:
    from ucb.waves.model import Model


def forget_check(model: Model, data: Data, watcher: Watcher) -> dict[str, Any]:
    """Return the accuracy by class and by wave, now and when each was learnt, in percent. The model is not changed."""
    model.known  # noqa: B018 (a model without a wave is refused before anything is read)
    examples = as_examples(data, model.shape, model.label, model.columns)
    assert examples.labels is not None
    target = model.numbers_of(examples.labels)
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    unsure: Counter[str] = Counter()
    for positions, answers in answered(model, examples, watcher):
        columns = (positions, target[positions], answers.prediction.label.cpu(), answers.unsure.cpu())
        for place, number, given, doubted in zip(*(column.tolist() for column in columns), strict=True):
            name = examples.labels[place]
            asked[name] += 1
            right[name] += number == given
            unsure[name] += doubted
    unknown = sorted(set(asked) - set(model.classes))
    known = [name for name in model.classes if asked[name]]
    return {
        "classes": [
            {"class": name, "asked": asked[name], "now": _share(right, asked, [name]), "then": _then(model, [name])}
            for name in known
        ],
        "waves": [
            {
                "wave": wave.name,
                "asked": sum(asked[name] for name in wave.examples),
                "now": _share(right, asked, list(wave.examples)),
                "then": wave.accuracy,
            }
            for wave in model.waves
            if any(asked[name] for name in wave.examples)
        ],
        "accuracy": _share(right, asked, known),
        "asked": sum(asked[name] for name in known),
        "unsure": sum(unsure[name] for name in known),
        "unknown_classes": {name: {"asked": asked[name], "unsure": unsure[name]} for name in unknown},
        "skipped": [{"file": one.name, "why": one.why} for one in examples.skipped],
        "remarks": list(examples.remarks),
    }


def _share(right: Counter[str], asked: Counter[str], names: list[str]) -> float | None:
    number = sum(asked[name] for name in names)
    return 100 * sum(right[name] for name in names) / number if number else None


def _then(model: Model, names: list[str]) -> float | None:
    """Return the held-out accuracy of classes, over all waves that brought them."""
    pairs = [wave.held_out[name] for wave in model.waves for name in names if name in wave.held_out]
    asked = sum(pair[0] for pair in pairs)
    return 100 * sum(pair[1] for pair in pairs) / asked if asked else None
