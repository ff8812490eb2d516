"""Waves in the model file: notes in JSON, figures, statistics of held-out examples, and sums where they are kept.

The figures are rows of one tensor: a class's number, how many examples it had, how many were held out, how many of
these were judged right, and the sum of its hashes. So the header of the file, which may not be longer than its reader
allows, grows by a wave's name and date, however many classes the wave has. Files of version 2 have no hashes and one
set of statistics for all waves, those of version 1 have the figures in the header, by the names of the classes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ucb.bayes.conjugate import ConjugateHead
from ucb.incremental import checked_file
from ucb.incremental.calibration import HeldOutStatistics, no_statistics
from ucb.incremental.checked_file import FieldError, Fields, check_tensor, check_text, check_whole
from ucb.incremental.waves import Choices, Wave

FIGURES, STATISTICS, SUMS = "waves.figures", "calibration.", "sums."
LONGEST_FINGERPRINT = 64
LARGEST_STATISTIC = 1e18
"""Far more than held-out examples can add up to."""
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
NOTES = ("name", "classes", "fingerprint", "unhashed", "choices", "repeated", "retired", "date", "largest_effect")

Parts = tuple[list[dict[str, Any]], dict[str, Tensor]]


def split_waves(waves: Sequence[Wave], classes: Sequence[str], earlier: HeldOutStatistics | None) -> Parts:
    """Return what JSON holds of waves, and their tensors; ``earlier`` statistics are of waves in files of before."""
    numbers = {name: number for number, name in enumerate(classes)}
    notes: list[dict[str, Any]] = []
    figures: list[int] = []
    tensors: dict[str, Tensor] = {}
    for place, wave in enumerate(waves):
        own = sorted({*wave.examples, *wave.held_out}, key=numbers.__getitem__)
        for name in own:
            counts = (wave.examples.get(name, 0), *wave.held_out.get(name, (0, 0)))
            figures += (numbers[name], *counts, wave.prints.get(name, 0))
        notes.append(_note(wave, len(own)))
        if wave.sums is not None:
            if retired := count_retired(wave.sums):
                notes[-1]["retired"] = retired
            order = [list(wave.examples).index(name) for name in own if name in wave.examples]
            tensors[f"{SUMS}{place}.gram"] = halve(wave.sums.gram)
            tensors[f"{SUMS}{place}.moments"] = wave.sums.moments[:, order]
    tensors[FIGURES] = torch.tensor(figures, dtype=torch.int64).view(-1, 5)
    rows = [earlier or no_statistics(), *(wave.statistics for wave in waves)]
    for name, each in zip(HeldOutStatistics._fields, zip(*rows, strict=True), strict=True):
        tensors[STATISTICS + name] = torch.stack(each)
    return notes, tensors


def _note(wave: Wave, classes: int) -> dict[str, Any]:
    """Return what JSON holds of a wave; what is as usual is left out."""
    found: dict[str, Any] = {"name": wave.name, "classes": classes}
    known: dict[str, Any] = {"fingerprint": wave.fingerprint, "repeated": wave.repeated, "date": wave.date}
    known |= {"choices": [list(pair) for pair in wave.choices], "unhashed": not wave.prints}
    if wave.largest_effect is not None:
        known["largest_effect"] = list(wave.largest_effect)
    return found | {name: value for name, value in known.items() if value}


def join_waves(
    fields: Fields, classes: Sequence[str], tensors: Mapping[str, Tensor], features: int | None
) -> tuple[list[Wave], HeldOutStatistics | None]:
    """Return the waves in a file, and the statistics that a file of before version 3 has of all of them in one.

    ``features`` is how many the trunk shows, where waves may have sums of their own.
    """
    if FIGURES not in tensors:
        known = set(classes)
        old = fields.list("waves", lambda where, value: _join_wave_of_version_1(Fields(value, where), known))
        return _with_choices(old, classes), _join_statistics(tensors, None)[0]
    notes = fields.list("waves", lambda where, value: Fields(value, where))
    for note in notes:
        note.only(*NOTES)
    lengths = [note.whole("classes", 1, len(classes)) for note in notes]
    width = 4 if tensors[FIGURES].shape[1:] == (4,) else 5
    figures = check_tensor(tensors, FIGURES, (sum(lengths), width), torch.int64)
    number, _, asked, right = figures[:, :4].unbind(1)
    wrong = (figures[:, :4] < 0).any(1) | (figures[:, :4] > checked_file.LARGEST).any(1)
    if bool((wrong | (number >= len(classes)) | (right > asked)).any()):
        raise FieldError(f"the tensor {FIGURES} holds figures that no waves have")
    rows = figures.split(lengths)
    if width == 4:
        old = [_join_wave(note, each.tolist(), classes) for note, each in zip(notes, rows, strict=True)]
        return _with_choices(old, classes), _join_statistics(tensors, None)[0]
    allowed = {f"{SUMS}{place}.{part}" for place in range(len(notes)) for part in ("gram", "moments")}
    if odd := [name for name in tensors if name.startswith(SUMS) and name not in allowed]:
        raise FieldError(f"the tensor {odd[0][:80]!r} is unknown")
    statistics = _join_statistics(tensors, len(notes))
    every = zip(notes, rows, statistics[1:], range(len(notes)), strict=True)
    waves = [
        _join_wave(note, each.tolist(), classes, said, _join_sums(note, tensors, place, each, features))
        for note, each, said, place in every
    ]
    earlier = statistics[0] if any(bool(each.any()) for each in statistics[0]) else None
    return waves, earlier


def _join_wave(
    note: Fields,
    rows: list[list[int]],
    classes: Sequence[str],
    statistics: HeldOutStatistics | None = None,
    sums: ConjugateHead | None = None,
) -> Wave:
    name = note.text("name")
    examples = {classes[row[0]]: row[1] for row in rows if row[1]}
    held_out = {classes[row[0]]: (row[2], row[3]) for row in rows if row[2]}
    if not examples or len({row[0] for row in rows}) < len(rows):
        raise FieldError(f"the wave {name[:40]!r} has no examples, or a class twice")
    fingerprint, date = (note.values.get(key, "") for key in ("fingerprint", "date"))
    if not isinstance(fingerprint, str) or len(fingerprint) > LONGEST_FINGERPRINT:
        raise FieldError(f"{note.where}.fingerprint is no short text")
    if not isinstance(date, str) or (date and not DATE.fullmatch(date)):
        raise FieldError(f"{note.where}.date is no time")
    has_prints = statistics is not None and note.values.get("unhashed") is not True
    return Wave(
        name,
        examples,
        held_out,
        fingerprint,
        {classes[row[0]]: row[4] for row in rows if row[1]} if has_prints else {},
        () if statistics is None else _join_choices(note, len(classes), [row[0] for row in rows]),
        note.number("repeated", 0, sum(examples.values())) if "repeated" in note.values else 0.0,
        date,
        _join_effect(note),
        statistics or no_statistics(),
        sums,
    )


def _join_wave_of_version_1(fields: Fields, classes: set[str]) -> Wave:
    fields.only("name", "examples", "held_out", "fingerprint")
    examples, held_out = fields.table("examples", check_whole), fields.table("held_out", _check_pair)
    if not examples or not {*examples, *held_out} <= classes:
        raise FieldError(f"{fields.where} names no classes, or unknown ones")
    fingerprint = fields.get("fingerprint")
    if not isinstance(fingerprint, str) or len(fingerprint) > LONGEST_FINGERPRINT:
        raise FieldError(f"{fields.where}.fingerprint is no short text")
    return Wave(fields.text("name"), examples, held_out, fingerprint)


def _with_choices(waves: Sequence[Wave], classes: Sequence[str]) -> list[Wave]:
    """Return waves of a file of before version 3 with what they could choose from: all classes up to then."""
    numbers, known, found = {name: number for number, name in enumerate(classes)}, 0, []
    for wave in waves:
        known = max(known, 1 + max(numbers[name] for name in wave.examples))
        found.append(replace(wave, choices=((0, known),)))
    return found


def _check_pair(where: str, value: Any) -> tuple[int, int]:
    match value:
        case [asked, right]:
            return check_whole(where, asked), check_whole(where, right, most=asked)
    raise FieldError(f"{where} is no pair")


def _join_choices(note: Fields, classes: int, own: Sequence[int]) -> Choices:
    pairs = note.list("choices", _check_range, classes)
    flat = [end for pair in pairs for end in pair]
    if flat and (flat[-1] > classes or any(a >= b for a, b in pairwise(flat))):
        raise FieldError(f"{note.where}.choices are not numbers of classes")
    if any(not any(first <= number < last for first, last in pairs) for number in own):
        raise FieldError(f"{note.where}.choices are without a class of the wave")
    return tuple(pairs)


def _check_range(where: str, value: Any) -> tuple[int, int]:
    match value:
        case [first, last]:
            return check_whole(where, first), check_whole(where, last)
    raise FieldError(f"{where} is no range")


def _join_effect(note: Fields) -> tuple[str, float] | None:
    match note.values.get("largest_effect"):
        case None:
            return None
        case [name, float(change)] if 0 <= change < 1e30:
            return check_text(f"{note.where}.largest_effect", name), change
    raise FieldError(f"{note.where}.largest_effect is not a wave's name and a number")


def _join_statistics(tensors: Mapping[str, Tensor], waves: int | None) -> list[HeldOutStatistics]:
    """Return the statistics of earlier waves in one, and of each wave; files of before version 3 have the first."""
    like, found = no_statistics(), []
    for name, each in zip(HeldOutStatistics._fields, like, strict=True):
        shape = tuple(each.shape) if waves is None else (1 + waves, *each.shape)
        dtype = torch.float64 if waves is None else each.dtype
        own = check_tensor(tensors, STATISTICS + name, shape, dtype).to(each.dtype)
        found.append(own[None] if waves is None else own)
    if len([name for name in tensors if name.startswith(STATISTICS)]) > len(found):
        raise FieldError("there are unknown tensors of the calibration")
    nll, moments, histogram = found
    if bool((histogram < 0).any() | (moments[..., 0] < 0).any() | (nll < 0).any()):
        raise FieldError("a count of the calibration is below 0")
    number, total, squares = moments.unbind(-1)
    largest = max((float(each.abs().max()) for each in found), default=0.0)
    if largest > LARGEST_STATISTIC or bool((total.square() > (1 + 1e-6) * number * squares).any()):
        raise FieldError("the statistics of the calibration are not those of any data")
    return [HeldOutStatistics(*each) for each in zip(*found, strict=True)]


def _join_sums(
    note: Fields, tensors: Mapping[str, Tensor], place: int, rows: Tensor, features: int | None
) -> ConjugateHead | None:
    if f"{SUMS}{place}.gram" not in tensors:
        return None
    if features is None:
        raise FieldError("a net has no sums")
    counts = rows[rows[:, 1] > 0, 1].double()
    retired = note.whole("retired", 1) if "retired" in note.values else 0
    return join_sums(tensors, f"{SUMS}{place}.", features, counts, retired)


def count_retired(head: ConjugateHead) -> int:
    """Return how many examples of a head's sums are of classes that are no longer an answer."""
    return round(float(head.gram[-1, -1] - head.counts.sum()))


def halve(gram: Tensor) -> Tensor:
    """Return one half of symmetric sums, row by row."""
    return torch.cat([row[: place + 1] for place, row in enumerate(gram)])


def join_sums(
    tensors: Mapping[str, Tensor], prefix: str, features: int, counts: Tensor, retired: int = 0
) -> ConjugateHead:
    """Return a head with the sums that a file holds, if they can be those of any data.

    ``retired`` examples are of classes that are no longer an answer.
    """
    size = features + 1
    half = check_tensor(tensors, f"{prefix}gram", (size * (size + 1) // 2,), torch.float64)
    moments = check_tensor(tensors, f"{prefix}moments", (size, len(counts)), torch.float64)
    head = ConjugateHead(features, len(counts))
    for row, some in enumerate(half.split(list(range(1, size + 1)))):
        head.gram[row, : row + 1] = some
    head.gram += head.gram.tril(-1).T
    head.moments.copy_(moments)
    head.counts.copy_(counts)
    refuse_impossible(head, retired)
    return head


ROUNDING = 1e-6
"""What sums may be off, as a share of the largest that they can be."""


def refuse_impossible(head: ConjugateHead, retired: int = 0) -> None:
    """Refuse sums that no examples have.

    With phi the features of an example, whose last one is 1, and y its class as 1 and 0, sum phi phi^T and sum phi y^T
    have the counts in their last rows, and by Cauchy-Schwarz no entry is larger than the squares of its row and of its
    column allow. What the second lacks to the last column of the first is the rest: the sum over ``retired`` examples,
    of classes that are no longer an answer, which is nothing where there are none. That is cheap to see, and keeps what
    follows within reason; whether the sums can be factored is seen when they are.
    """
    gram, moments, counts = head.gram, head.moments, head.counts
    examples, lengths = gram[-1, -1], gram.diagonal().clamp_min(0).sqrt()
    limit = lengths * examples.clamp_min(0).sqrt() * ROUNDING
    rest = gram[:, -1] - moments.sum(1)
    possible = bool(examples > 0) and bool((gram.diagonal() >= 0).all())
    possible &= bool(torch.isclose(counts.sum() + retired, examples, rtol=ROUNDING))
    possible &= bool(torch.isclose(moments[-1], counts, rtol=ROUNDING).all())
    possible &= bool((rest.abs() <= (1 + ROUNDING) * lengths * math.sqrt(retired) + limit).all())
    possible &= _is_within(moments, lengths, counts.clamp_min(0).sqrt()) and _is_within(gram, lengths, lengths)
    if not possible:
        raise FieldError("the sums of its head are not those of any data")


def _is_within(products: Tensor, rows: Tensor, columns: Tensor) -> bool:
    """Whether sums of products are no larger than Cauchy and Schwarz allow; a few rows at a time."""
    return all(
        bool((some.abs() <= (1 + ROUNDING) * length[:, None] * columns).all())
        for some, length in zip(products.split(256), rows.split(256), strict=True)
    )
