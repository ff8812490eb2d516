"""What a model notes of its waves as facts and one tensor, and back.

The figures of a wave are rows of the tensor: a class's number, how many examples it had, how many were held out, and
how many of these were judged right. So the header of the file, which may not be longer than its reader allows, grows by
a wave's name and fingerprint, however many classes the wave has. Files of version 1 have the figures in the header, by
the names of the classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ucb.waves.fields import FieldError, Fields, checked_whole, tensor
from ucb.waves.wave import Wave

FIGURES = "waves.figures"
LARGEST = 1 << 53
LONGEST_FINGERPRINT = 64


class Noted(NamedTuple):
    """What the header has of a wave."""

    name: str
    classes: int
    fingerprint: str


def waves_parts(waves: Sequence[Wave], classes: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Return what JSON holds of waves, and their tensor."""
    numbers = {name: number for number, name in enumerate(classes)}
    notes: list[dict[str, Any]] = []
    figures: list[int] = []
    for wave in waves:
        own = sorted({*wave.examples, *wave.held_out}, key=numbers.__getitem__)
        for name in own:
            figures += (numbers[name], wave.examples.get(name, 0), *wave.held_out.get(name, (0, 0)))
        notes.append(Noted(wave.name, len(own), wave.fingerprint)._asdict())
    return notes, {FIGURES: torch.tensor(figures, dtype=torch.int64).view(-1, 4)}


def waves_from(fields: Fields, classes: Sequence[str], tensors: Mapping[str, Tensor]) -> list[Wave]:
    """Return the waves that facts and the tensor describe, once all of them are as they must be."""
    if FIGURES not in tensors:
        known = set(classes)
        return fields.list("waves", lambda where, value: _of_version_1(Fields(value, where), known))
    notes = fields.list("waves", lambda where, value: _noted(Fields(value, where), len(classes)))
    lengths = [noted.classes for noted in notes]
    figures = tensor(tensors, FIGURES, (sum(lengths), 4), torch.int64)
    number, _, asked, right = figures.unbind(1)
    wrong = (figures < 0).any(1) | (figures > LARGEST).any(1) | (number >= len(classes)) | (right > asked)
    if bool(wrong.any()):
        raise FieldError(f"the tensor {FIGURES} holds figures that no waves have")
    return [_wave(noted, rows.tolist(), classes) for noted, rows in zip(notes, figures.split(lengths), strict=True)]


def _noted(fields: Fields, classes: int) -> Noted:
    fields.only(*Noted._fields)
    return Noted(fields.text("name"), fields.whole("classes", 1, classes), _fingerprint(fields))


def _wave(noted: Noted, rows: list[list[int]], classes: Sequence[str]) -> Wave:
    examples = {classes[number]: learnt for number, learnt, _, _ in rows if learnt}
    held_out = {classes[number]: (asked, right) for number, _, asked, right in rows if asked}
    if not examples or len({row[0] for row in rows}) < len(rows):
        raise FieldError(f"the wave {noted.name!r} has no examples, or a class twice")
    return Wave(noted.name, examples, held_out, noted.fingerprint)


def _of_version_1(fields: Fields, classes: set[str]) -> Wave:
    fields.only("name", "examples", "held_out", "fingerprint")
    examples = fields.table("examples", checked_whole)
    held_out = fields.table("held_out", _pair)
    if not examples or not {*examples, *held_out} <= classes:
        raise FieldError(f"{fields.where} names no classes, or unknown ones")
    return Wave(fields.text("name"), examples, held_out, _fingerprint(fields))


def _pair(where: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise FieldError(f"{where} is no pair")
    asked = checked_whole(where, value[0])
    return asked, checked_whole(where, value[1], most=asked)


def _fingerprint(fields: Fields) -> str:
    stamp = fields.get("fingerprint")
    if not isinstance(stamp, str) or len(stamp) > LONGEST_FINGERPRINT:
        raise FieldError(f"{fields.where}.fingerprint is no short text")
    return stamp
