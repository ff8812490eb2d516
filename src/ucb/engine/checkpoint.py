"""Where a run stands, and its checkpoints, which survive anything: a kill inside a write, a full disk, a flipped bit.

A checkpoint is one safetensors file whose name carries the hash of its content. It is written under another name,
flushed to disk and renamed; the one before stays until the new one is whole. So some valid checkpoint is always there,
and a damaged one is known by its name.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, Protocol, Self

import safetensors.torch
import torch

from ucb import checks
from ucb.engine.result import FIGURES, Movement, TaskMetrics
from ucb.metrics import AccuracyMatrix
from ucb.storage import (
    State,
    ceilings,
    compress,
    decompress,
    flatten,
    read_bytes,
    rename_old_keys,
    unflatten,
    write_atomically,
)

FORMAT = 2
READ = ("1", "2")
"""The formats that are read. In the first, the tree of names and numbers lay in the header, as text."""
TREE = "tree"
"""The tensor that holds the tree now: others begin with a slash."""
MOST_TEXT = 1 << 26
"""Of the tree: the few bytes that a file takes for it could else become any number."""
_BLANK = "0" * 64
_NAME = re.compile(r"checkpoint-(\d{6})-([0-9a-f]{16})\.safetensors")


class OtherFormatError(ValueError):
    """A file that another version of ucb wrote."""


class Checkpoints(Protocol):
    """Where a run keeps its state while it learns, to go on from there in another process."""

    path: Path
    """Where the latest state is that was saved or loaded."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to save inside a task, as far as the place is concerned."""

    def save(self, state: State) -> None:
        """Keep a state, in the place of earlier ones."""

    def load(self) -> State | None:
        """Return the state that was kept last, or None where there is none."""


class FolderCheckpoints:
    """The checkpoints in a run's folder; ``note`` is told of damaged ones."""

    is_due = True

    def __init__(self, folder: Path, note: Callable[[str], None] = lambda sentence: None) -> None:
        self.path = self.folder = folder
        self.damaged: list[Path] = []
        """The checkpoints that ``load`` found damaged."""
        self._note = note

    def save(self, state: State) -> None:
        """Write a new checkpoint; keep the last one beside it and remove what is older."""
        for path in self.damaged:  # else the new one would take the place of the whole one
            path.unlink(missing_ok=True)
        self.damaged = []
        data, before = pack(state), self._list()
        number = int(before[-1][1]) + 1 if before else 1
        path = self.folder / f"checkpoint-{number:06d}-{_digest(data)}.safetensors"
        write_atomically(path, data)
        self.path = path
        parts = self.folder.glob("checkpoint-*.part")  # a kill leaves them behind
        for old in [*(self.folder / name[0] for name in before[:-1]), *parts]:
            old.unlink(missing_ok=True)

    def load(self) -> State | None:
        """Return the newest state that is whole, and say which are damaged."""
        self.damaged = []
        for name in reversed(self._list()):
            path = self.folder / name[0]
            data = read_bytes(path, ceilings.CHECKPOINT)
            if name[2] != _digest(data):
                self.damaged.append(path)
                continue
            try:
                state = unpack(data)
            except OtherFormatError:
                raise
            except Exception as error:  # a file with the right hash in its name may hold anything, and fail in any way
                raise OSError(f"{path} is no checkpoint: {type(error).__name__}: {error}") from None
            self.path = path
            for damaged in self.damaged:
                self._note(f"{damaged.name} is damaged; the one before it is used")
            return state
        if self.damaged:
            names = ", ".join(path.name for path in self.damaged)
            raise OSError(f"every checkpoint in {self.folder} is damaged: {names}")
        return None

    def _list(self) -> list[re.Match[str]]:
        """Return the names of the checkpoints, the newest last, each as number and hash."""
        found = [match for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        return sorted(found, key=lambda match: match[0])


def pack(state: State, *, sealed: bool = False) -> bytes:
    """Return a state as the bytes of a safetensors file; ``sealed``, they hold their own hash."""
    tree, tensors = flatten(state)
    packed = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(tree).encode()
    if len(text) > MOST_TEXT:
        raise ValueError(f"names and numbers of a state take {len(text)} bytes, and may take {MOST_TEXT}")
    packed[TREE] = compress(text)
    facts = {"format": str(FORMAT)}
    if not sealed:
        return safetensors.torch.save(packed, facts)
    blank = safetensors.torch.save(packed, facts | {"sha256": _BLANK})
    return blank.replace(_seal(_BLANK), _seal(hashlib.sha256(blank).hexdigest()), 1)


def unpack(data: bytes) -> State:
    """Undo ``pack``; bytes that are sealed must be those that were written."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])["__metadata__"]
    if "sha256" in header:
        blank = data.replace(_seal(header["sha256"]), _seal(_BLANK), 1)
        if hashlib.sha256(blank).hexdigest() != header["sha256"]:
            raise ValueError("the content is not what was written")
    if header["format"] not in READ:
        raise OtherFormatError(f"the checkpoint has format {header['format']}, and this version reads up to {FORMAT}")
    tensors = safetensors.torch.load(data)
    text = header["state"] if header["format"] == "1" else decompress(tensors.pop(TREE), MOST_TEXT)
    if len(text) > MOST_TEXT:
        raise ValueError("names and numbers of the state take too much memory")
    return unflatten(json.loads(text), tensors)


def _seal(digest: str) -> bytes:
    """Return how a header has the hash. The hash is that of the same bytes with zeros in its place."""
    return f'"sha256":"{digest}"'.encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def refuse_other(saved: dict[str, Any], present: dict[str, Any]) -> None:
    """Refuse a state that another configuration made, and say what differs."""
    saved, present = rename_old_keys(saved), rename_old_keys(present)
    different = [
        f"{name} was {saved.get(name)!r} and is {present.get(name)!r}"
        for name in sorted({*saved, *present})
        if saved.get(name) != present.get(name)
    ]
    if different:
        raise ValueError(f"the checkpoint is from another configuration: {'; '.join(different)}")


Figures = list[float]
"""What is known of one task, as numbers."""


@dataclass
class Progress:
    """Where a run stands, and what it has found so far."""

    task: int = 0
    phase: int = 0
    phase_epochs: list[int] = field(default_factory=list)
    """Epochs of the task's phases that are over."""
    epoch: int = 0
    batch: int = 0
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    """NLL of the present epoch's batches so far: their sum, and how many."""
    rate: float = math.nan
    plateau_best: float = math.inf
    plateau_waited: int = 0
    seconds: float = 0.0
    seconds_before_epoch: float = 0.0
    """What they were when the present epoch began; checkpoints inside it count on."""
    task_seconds: list[float] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)
    """After each task, the accuracy on those that were judged then: the last ones of all so far."""
    own: list[Figures] = field(default_factory=list)
    """The judgement of each task right after it was learnt."""
    last: list[Figures] = field(default_factory=list)
    """After the last task, the judgement of those that were judged then."""
    before: list[float] = field(default_factory=list)
    at_start: list[float] = field(default_factory=list)
    epochs_used: list[int] = field(default_factory=list)
    before_end: list[float] = field(default_factory=list)
    """Accuracy on each task before the method ended it, where a method wants that to count."""
    bins: list[list[list[float]]] = field(default_factory=list)
    """After the last task, the bins of confidence of those that were judged then."""
    right: list[dict[str, Any]] = field(default_factory=list)
    """After the stream's last task, which test examples of each task were right, packed."""
    sigma: list[dict[str, Movement]] = field(default_factory=list)
    """How far sigma has moved after the first task in each weight tensor, and after others in those that learnt; empty
    without sigma."""
    kernels: list[str] = field(default_factory=list)
    """What drew the noise so far: more than one where the run went on without those that it began with."""

    def add(self, row: list[TaskMetrics]) -> None:
        """Keep the judgement of all tasks so far, after one more of them."""
        judged = [*dropwhile(lambda judgement: math.isnan(judgement.accuracy), row)]
        self.rows.append([judgement.accuracy for judgement in judged])
        self.own.append(row[-1].figures)
        self.last = [judgement.figures for judgement in judged]
        none = next(([[0.0] * 3] * len(judgement.bins) for judgement in judged if judgement.bins), [])
        self.bins = [judgement.bins or none for judgement in judged]

    @property
    def metrics_last(self) -> list[TaskMetrics]:
        """The judgement of all tasks so far, after the last of them."""
        known = [TaskMetrics(*figures) for figures in self.last]
        return [TaskMetrics.missing()] * (len(self.rows) - len(known)) + known

    @property
    def metrics_first(self) -> list[TaskMetrics]:
        """The judgement of each task so far, right after it was learnt."""
        return [TaskMetrics(*figures) for figures in self.own]

    @property
    def matrix(self) -> AccuracyMatrix:
        """The accuracy matrix so far."""
        rows = [[math.nan] * (tasks - len(row)) + row for tasks, row in enumerate(self.rows, start=1)]
        for row, accuracy in zip(rows, self.before_end, strict=False):
            row[-1] = accuracy
        return AccuracyMatrix(rows, list(self.before), list(self.at_start))

    def state(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        held = {each.name: getattr(self, each.name) for each in fields(self)}
        held |= {name: list(value) for name, value in held.items() if isinstance(value, list)}
        held |= {name: _make_table(held[name]) for name in _TABLES}
        accuracies = [accuracy for row in self.rows for accuracy in row]
        moved = [[each[figure] for figure in FIGURES] for row in self.sigma for each in row.values()]
        held["rows"] = {"lengths": [len(row) for row in self.rows], "table": _make_table(accuracies)}
        held["sigma"] = {
            "names": [list(row) for row in self.sigma],
            "table": _make_table([[math.nan if number is None else number for number in each] for each in moved]),
        }
        return held

    @classmethod
    def of(cls, state: dict[str, Any]) -> Self:
        """Return what a checkpoint holds, as this version or an earlier one has saved it."""
        held = rename_old_keys(state)
        if isinstance(held["rows"], dict):
            held |= {name: _read_table(held[name]) for name in _TABLES}
            rows, sigma = held["rows"], held["sigma"]
            held["rows"] = _split(_read_table(rows["table"]), rows["lengths"])
            moved = _split(_read_table(sigma["table"]), [len(names) for names in sigma["names"]])
            held["sigma"] = [
                {name: _movement(figures) for name, figures in zip(names, part, strict=True)}
                for names, part in zip(sigma["names"], moved, strict=True)
            ]
        else:  # all figures of all rows, where nothing but the accuracy is asked for again
            held |= _read_full_rows(held["rows"])
            held["bins"] = [bins for bins in held.get("bins", []) if bins]
        return cls(**held)

    @property
    def where(self) -> str:
        """The position in words, but for the batch."""
        return f"task {self.task + 1}, epoch {self.epoch + 1}"

    def refuse_impossible(self, tasks: int, epochs: int, batches_of: Callable[[int], int]) -> None:
        """Refuse a position where no run is that has so many tasks: what lies beyond an end would be taken as done.

        ``batches_of`` says how long a task's epochs are. A phase's share of the ``epochs`` is rounded, and 1 at least.
        """
        for name in ("task", "phase", "epoch", "batch"):
            checks.count(f"the checkpoint's {name}", getattr(self, name), least=0)
        batches = batches_of(self.task) if self.task < tasks else 0
        if self.task > tasks or self.epoch > epochs + self.phase + 1 or self.batch > batches:
            where = f"{self.where}, batch {self.batch}"
            raise ValueError(f"the checkpoint stands at {where}, and no run of these {tasks} tasks is ever there")

    def refuse_phase_beyond(self, phases: int) -> None:
        """Refuse a phase that a task does not have."""
        if self.phase > phases:
            where = f"phase {self.phase + 1} of task {self.task + 1}"
            raise ValueError(f"the checkpoint stands at {where}, and this method's task has {phases}")


_TABLES = ("losses", "task_seconds", "own", "last", "before", "at_start", "before_end", "bins")
"""Lists of numbers, or of equally long lists of them."""

MOST_NUMBERS = 1 << 26
"""In a table: the accuracies of 11,000 tasks. The few bytes that a file takes for them could else become any number."""


def _make_table(values: list[Any]) -> dict[str, Any]:
    """Return numbers in few bytes: that of accuracies grows with the square of the tasks."""
    numbers = torch.tensor(values, dtype=torch.float64)
    return {"shape": list(numbers.shape), "squeezed": compress(numbers.numpy().tobytes())}


def _read_table(table: dict[str, Any]) -> list[Any]:
    """Undo ``_make_table``."""
    count = math.prod(table["shape"])
    if not 0 <= count <= MOST_NUMBERS:
        raise ValueError(f"the checkpoint has a table of {count} numbers, and no run has so many")
    data = decompress(table["squeezed"], 8 * count)
    if len(data) != 8 * count:
        raise ValueError(f"a table of the checkpoint is not of the {count} numbers that it should have")
    if not data:
        return []
    values: list[Any] = torch.frombuffer(bytearray(data), dtype=torch.float64).view(table["shape"]).tolist()
    return values


def _split(values: list[Any], lengths: list[int]) -> list[list[Any]]:
    """Return a list in pieces of these lengths."""
    if sum(lengths) != len(values):
        raise ValueError(f"the checkpoint has {len(values)} rows of figures where {sum(lengths)} belong")
    rest = iter(values)
    return [list(islice(rest, length)) for length in lengths]


def _movement(figures: Figures) -> Movement:
    *others, correlation = figures
    return dict(zip(FIGURES, (*others, None if math.isnan(correlation) else correlation), strict=True))


def _read_full_rows(rows: list[list[Figures]]) -> dict[str, Any]:
    judged = [[figures for figures in row if not math.isnan(figures[0])] for row in rows]
    return {
        "rows": [[figures[0] for figures in row] for row in judged],
        "own": [row[-1] for row in rows],
        "last": judged[-1] if judged else [],
    }
