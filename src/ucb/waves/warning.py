"""What should worry whoever learns a wave: answers no better than chance, a class alone, blind estimates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ucb.data.readers.reader import counted
from ucb.waves.fixed import FixedWay
from ucb.waves.order import Outcome

ENOUGH = 3
"""Held-out examples of a class that must all be wrong before it is named."""
FITTED = 0.8
"""A mean leverage above which the head meets each example nearly exactly, and says little about others."""


def warnings_of(classes: Sequence[str], before: object, outcome: Outcome[object]) -> list[str]:
    """Return sentences about a wave that was learnt; ``before`` is the way of before, if there was one."""
    if len(classes) == 1:
        return [f"the model knows the class {classes[0]!r} alone: until it learns another, that is its answer to all"]
    wrong = _wholly_wrong(classes, outcome)
    found = _no_better_than_chance(classes, outcome) + wrong
    if outcome.effects and found:
        found.append("the effects on earlier waves cannot be trusted: these examples contradict what was learnt before")
    elif outcome.effects and isinstance(before, FixedWay) and before.solved.usual_variance > FITTED:
        found.append("the effects on earlier waves cannot be trusted: there are too few examples for what was learnt")
    return found


def _no_better_than_chance(classes: Sequence[str], outcome: Outcome[object]) -> list[str]:
    asked, right = len(outcome.target), int((outcome.given == outcome.target).sum())
    if not asked or right * len(classes) > asked:
        return []
    chance = f"{100 / len(classes):.2g} %"
    what = counted(asked, "held-out example", "held-out examples")
    return [f"{right} of {what} judged right is no better than chance ({chance}): look at the labels of this wave"]


def _wholly_wrong(classes: Sequence[str], outcome: Outcome[object]) -> list[str]:
    found = []
    for number in sorted(set(outcome.target.tolist())):
        given = outcome.given[outcome.target == number]
        if len(given) >= ENOUGH and not bool((given == number).any()):
            most = Counter(given.tolist()).most_common(1)[0][0]
            own, other = classes[number], classes[most]
            found.append(
                f"none of {len(given)} held-out examples of {own!r} is judged right: most are called {other!r}"
            )
    return found
