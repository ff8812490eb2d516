"""What `show` says of a model: waves, classes, size, how certain each layer is, and what room is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ucb.waves.model import Model


def described(model: Model) -> dict[str, Any]:
    """Return everything that is known of a model, as plain values."""
    way = model.known
    learnt: dict[str, int] = dict.fromkeys(model.classes, 0)
    for wave in model.waves:
        for name, number in wave.examples.items():
            learnt[name] += number
    return {
        "method": model.method,
        "net": model.net,
        "input": list(model.shape or ()),
        "classes": learnt,
        "waves": [
            {
                "name": wave.name,
                "classes": list(wave.examples),
                "examples": sum(wave.examples.values()),
                "held_out": sum(asked for asked, _ in wave.held_out.values()),
                "accuracy": wave.accuracy,
            }
            for wave in model.waves
        ],
        "scale": model.calibration.scale,
        "unsure_above": model.calibration.threshold,
        **way.certainty(),
    }
