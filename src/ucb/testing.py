"""The contract of a method as checks that anybody can run on a class of their own.

``check_method(MyMethod)`` runs them all on tiny tasks, within seconds; each of ``CHECKS`` looks at one promise. An
AssertionError says which promise is broken, and what to do about it. The methods of this package are tested so, too.

>>> from ucb.methods.ordinary import OrdinaryMethod
>>> class Plain(OrdinaryMethod):
...     name, summary = "plain-example", "gradient descent, and nothing against forgetting"
>>> check_method(Plain)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ucb.data.streams import Examples, Scenario, Stream, blur_boundaries, from_arrays
from ucb.engine import Observer, Run, Schedule, Training
from ucb.engine.checkpoint import FolderCheckpoints
from ucb.engine.config import replace_fields
from ucb.engine.result import TaskMetrics
from ucb.methods import EvalContext, Method, Settings, TaskInfo, find_method
from ucb.methods.base import TaskHiddenError
from ucb.nets import mlp
from ucb.seeds import derive_seed, generator_for

SCENARIOS = {
    "a head for each task": Scenario(),
    "one head, the task known": Scenario("one"),
    "one head, the task hidden": Scenario("one", task_known=False),
    "one head, outputs shared, the task hidden": Scenario("one", task_known=False, shared_outputs=True),
    "one head, outputs shared, the task known": Scenario("one", shared_outputs=True),
    "no boundaries": Scenario.named("task-free"),
}
"""What a learner may be told; a method learns in each unless it says ``needs_task`` or ``needs_boundaries``."""
LR = 0.3
"""The rate, unless another is given: few steps must do."""
LEARNT, LEARNT_LATER = 85.0, 75.0
"""The least accuracy, in percent, on the first task, and on average right after learning; chance is 50."""
MOMENTS = (1, 7, 8, 16, 17, 20, 33, 47)
"""Batches after which a run is cut: before the first checkpoint, at the ends of epochs and tasks, and between."""
EVERY = 3
"""Batches between two checkpoints."""
INPUTS, ROWS = 8, 40


def check_method(method: str | type[Method], **settings: Any) -> None:
    """Check that a class keeps every promise of :class:`ucb.Method`.

    ``settings`` are the method's own; with these, and ``lr=0.3`` unless they say another, it must learn tasks of 300
    examples with a net of 16 units. A broken promise raises an AssertionError with a sentence that says which.
    """
    with torch.random.fork_rng(devices=[]):  # whoever calls keeps their random numbers
        for check in CHECKS:
            check(method, **settings)


def check_declaration(method: str | type[Method], **settings: Any) -> None:
    """Check that the class says what it is, and is built as the engine builds it."""
    with _promise(method, "can be used by the engine"):
        kind = find_method(method)
        _require(is_dataclass(kind.settings_type), "settings_type must be a dataclass")
        _require(issubclass(kind.settings_type, Settings), "settings_type must derive from ucb.methods.Settings")
        said = isinstance(kind.memory, str) and bool(kind.memory.strip())
        _require(said, "memory must say in words what is kept beside the net")
        built = small_run(kind, **settings).method
        for name in ("net", "optimizer"):
            _require(hasattr(built, name), f"its constructor must set {name}")
        for name in built._all_remembered():
            _require(hasattr(built, name), f"it remembers {name!r}, which a new object must have")


def check_learning(method: str | type[Method], **settings: Any) -> None:
    """Check that it learns three tiny tasks in every scenario that it supports, and that others are refused."""
    kind = find_method(method)
    for name, scenario in SCENARIOS.items():
        stream = tiny_stream(scenario=replace(scenario, boundaries=True))
        stream = stream if scenario.boundaries else blur_boundaries(stream, 0.5)
        hidden = kind.needs_task and not scenario.task_known
        if hidden or (kind.needs_boundaries and not scenario.boundaries):
            _check_refusal(kind, stream, name, settings)
            continue
        with _promise(kind, f"learns where its class does not refuse to ({name})"):
            run = small_run(kind, stream=stream, epochs=6, **settings)
            run.learn()
            first, mean = run.matrix.after[0][0], run.matrix.learning
            if scenario.boundaries:  # without them a task passes by once, which may be too short
                _require(first > LEARNT, f"its accuracy on the first task is {first:.0f} %, where chance is 50")
            if scenario.heads == "many":
                _require(mean > LEARNT_LATER, f"its accuracy on tasks just learnt is {mean:.0f} %, where chance is 50")


def _check_refusal(kind: type[Method], stream: Stream, scenario: str, settings: dict[str, Any]) -> None:
    try:
        small_run(kind, stream=stream, **settings)
    except ValueError as error:
        told = str(error).startswith(f"{kind.name} must be told")
        _require(told, f"{kind.__name__} is refused for another reason: {error}")
    else:
        raise AssertionError(f"{kind.__name__} is not refused, and cannot learn ({scenario})")


def check_seed(method: str | type[Method], **settings: Any) -> None:
    """Check that a seed decides the result: the same gives the same to the last bit, and another gives another."""
    kind = find_method(method)
    with _promise(kind, "gives the same result with the same seed, and another with another"):
        first, again, other = (small_run(kind, seed=seed, **settings) for seed in (0, 0, 1))
        for run in (first, again, other):
            run.learn()
        same = figures(first) == figures(again) and _same(weights(first), weights(again))
        _require(same, "all its random numbers must come from self.generator")
        _require(figures(first) != figures(other), "two seeds led to the same figures")


def check_answers(method: str | type[Method], **settings: Any) -> None:
    """Check that logits have their shape, depend on the generator given with the question, and change nothing."""
    kind = find_method(method)
    with _promise(kind, "answers without changing"):
        run = small_run(kind, **settings)
        run.learn()
        x, before = _random_batch()[0], copy.deepcopy(run.method.state_dict())
        for samples in (0, 3):
            one, two = (_ask(run.method, x, samples) for _ in range(2))
            outputs = run.stream.head_sizes[1]
            shapes = [(count, len(x), outputs) for count in (max(samples, 1), 1)]
            _require(tuple(one.shape) in shapes, f"logits must be {list(shapes[0])}, not {list(one.shape)}")
            _require(
                torch.equal(one, two), "logits must draw from the generator that they are given, and from no other"
            )
        _require(_same(before, run.method.state_dict()), "logits must leave the state as it is")


def check_state(method: str | type[Method], **settings: Any) -> None:
    """Check that the state is all there is: a fresh object with the state of a trained one learns on just like it."""
    kind = find_method(method)
    with _promise(kind, "has everything that it needs later in its state"):
        in_class = {(owner, name): copy.deepcopy(value) for owner, name, value in _containers(kind)}
        run, fresh = small_run(kind, **settings), small_run(kind, seed=5, **settings)
        run.learn()
        for owner, name, value in _containers(kind):
            same = (owner, name) in in_class and _same(in_class[owner, name], value)
            _require(same, f"{name} was changed in the class, which all objects share: set it in the object")
        fresh.method.load_state_dict(copy.deepcopy(run.method.state_dict()))
        x, y = _random_batch()
        advice = "`remembered` must name the attribute, or refresh() must work it out"
        for each in (run.method, fresh.method):
            each.begin_task(TaskInfo(2, ROWS, 2, range(2)))
        for _ in range(3):
            _require(torch.equal(run.method.learn(x, y), fresh.method.learn(x, y)), advice)
        _require(torch.equal(_ask(run.method, x, 4), _ask(fresh.method, x, 4)), advice)


def check_resuming(method: str | type[Method], **settings: Any) -> None:
    """Check that a run that is cut somewhere and goes on from its last checkpoint ends as if it had never stopped."""
    kind = find_method(method)
    whole = small_run(kind, **settings)
    with _promise(kind, "learns"):
        whole.learn()
    for moment in MOMENTS:
        if moment <= whole.progress.steps:
            with (
                _promise(kind, f"goes on exactly from a checkpoint (cut after batch {moment})"),
                TemporaryDirectory() as it,
            ):
                fresh = _cut_and_resume(kind, Path(it), moment, settings)
                same = figures(fresh) == figures(whole) and _same(weights(fresh), weights(whole))
                _require(same, "`remembered` must name what changes within a task, too")


def _cut_and_resume(kind: type[Method], folder: Path, moment: int, settings: dict[str, Any]) -> Run:
    cut = small_run(kind, folder, observer=_StopAt(moment), **settings)
    with suppress(_CutError):
        cut.learn()
    fresh = small_run(kind, folder, **settings)
    torch.manual_seed(123)  # whatever the process did before must not matter
    _require(fresh.resume() == (moment >= EVERY), "its checkpoint was not found")
    fresh.learn()
    return fresh


def check_old_data(method: str | type[Method], **settings: Any) -> None:
    """Check that the data of a task is not read again once the task has ended; joint training may."""
    kind = find_method(method)
    if kind.is_joint:
        return
    tiny = tiny_stream()
    sealed = [(_Sealed(task.train), _Sealed(task.validation)) for task in tiny.tasks]
    tasks = tuple(
        replace(task, train=train, validation=held_out)
        for task, (train, held_out) in zip(tiny.tasks, sealed, strict=True)
    )

    class Seal(Observer):
        def task_ended(self, task: int, row: list[TaskMetrics]) -> None:
            for examples in sealed[task]:
                examples.is_sealed = True

    with _promise(kind, "never reads the data of a task that has ended"):
        small_run(kind, stream=replace(tiny, tasks=tasks), observer=Seal(), **settings).learn()
        _require(not any(examples.was_read for both in sealed for examples in both), SEALED)


CHECKS: tuple[Callable[..., None], ...] = (
    check_declaration,
    check_learning,
    check_seed,
    check_answers,
    check_state,
    check_resuming,
    check_old_data,
)
"""All of them, in the order in which a new method breaks them; each takes the class and its settings."""


def tiny_stream(tasks: int = 3, size: int = 300, scenario: Scenario | None = None) -> Stream:
    """Return tasks of two classes of points, a task for each direction that parts them."""
    generator = torch.Generator().manual_seed(0)
    made = {}
    for task in range(tasks):
        direction = torch.randn(INPUTS, generator=generator)
        x = torch.randn(2 * size, INPUTS, generator=generator)
        y = (x @ direction > 0).long()
        made[f"direction {task}"] = (x[:size], y[:size], x[size:], y[size:])
    return from_arrays("tiny", made, scenario=scenario)


def small_run(
    kind: type[Method],
    folder: Path | None = None,
    stream: Stream | None = None,
    *,
    seed: int = 0,
    observer: Observer | None = None,
    epochs: int = 2,
    training: Training | None = None,
    device: str = "cpu",
    **settings: Any,
) -> Run:
    """Return a run of a method with 16 units on a tiny stream; the same arguments give the same run."""
    where = torch.device(device)
    stream = tiny_stream() if stream is None else stream
    chosen = replace_fields(kind.settings_type(), {"lr": LR, **settings})
    torch.manual_seed(derive_seed("weights", seed))
    net = mlp((INPUTS,), stream.head_sizes, [16]).to(where)
    method = kind(net, chosen, generator_for("noise", seed, device=where))
    if training is None:
        schedule = Schedule(epochs=epochs, patience=1)
        training = Training(schedule, batch_size=32, eval_samples=3, checkpoint_every=EVERY)
    observer = Observer() if observer is None else observer
    checkpoints = None if folder is None else FolderCheckpoints(folder, observer.noted)
    return Run(stream, method, training, seed=seed, device=where, checkpoints=checkpoints, observer=observer)


def figures(run: Run) -> tuple[Any, ...]:
    """Return everything that a run has found, times aside."""
    judged = [[[accuracy] for accuracy in row] for row in run.progress.rows] + [run.progress.own, run.progress.last]
    return judged, run.progress.before, run.progress.at_start, run.progress.epochs_used, run.progress.steps


def weights(run: Run) -> dict[str, Tensor]:
    """Return a copy of the weights of a run's net."""
    return {name: value.clone() for name, value in run.method.net.state_dict().items()}


def _require(kept: bool, sentence: str) -> None:
    """Raise an AssertionError, also where Python leaves out assert statements."""
    if not kept:
        raise AssertionError(sentence)


@contextmanager
def _promise(method: Any, words: str) -> Iterator[None]:
    """Let every error say which promise it breaks."""
    name = getattr(method, "__name__", method)
    try:
        yield
    except TaskHiddenError as error:
        advice = "its logits may not ask for context.task or context.index, unless its class says needs_task = True"
        raise AssertionError(f"{name} breaks the promise that it {words}: {advice}") from error
    except AssertionError as error:
        raise AssertionError(f"{name} breaks the promise that it {words}: {error}") from error.__cause__
    except Exception as error:
        raise AssertionError(f"{name} breaks the promise that it {words}: {type(error).__name__}: {error}") from error


def _random_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, INPUTS, generator=generator), torch.randint(2, (ROWS,), generator=generator)


def _ask(method: Method, x: Tensor, samples: int) -> Tensor:
    return method.logits(x, EvalContext(1, 1), samples, torch.Generator().manual_seed(0)).detach()


def _containers(kind: type[Method]) -> Iterator[tuple[type, str, Any]]:
    """Yield the dicts, lists and sets that stand in a class and its bases, where all objects share them."""
    for each in kind.__mro__:
        if each.__module__ not in ("abc", "builtins"):
            yield from ((each, name, value) for name, value in vars(each).items() if type(value) in (dict, list, set))


def _same(a: Any, b: Any) -> bool:
    """Whether two states are equal to the last bit."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


class _CutError(Exception):
    """The run is cut here."""


class _StopAt(Observer):
    """Cuts a run when a certain number of batches has been learnt."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def batch_learnt(self, task: int, epoch: int, batch: int, batches: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise _CutError


SEALED = "data of an old task was read again"


class _Sealed(Examples):
    """Examples that can be made unreadable."""

    def __init__(self, inner: Examples) -> None:
        self.inner, self.is_sealed, self.was_read = inner, False, False

    def __len__(self) -> int:
        return len(self.inner)

    def batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        self.was_read |= self.is_sealed
        _require(not self.is_sealed, SEALED)
        return self.inner.batches(order, batch_size, device)
