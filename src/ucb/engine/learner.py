"""The engine for a program of one's own: a net, a method, and tasks one after another, as they come."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ucb.bayes import Categorical, Likelihood
from ucb.bayes.passes import Output
from ucb.bayes.predict import from_logits
from ucb.checks import count, find_device
from ucb.data.streams.given import Classes, Given, Handover
from ucb.data.streams.loaders import MissingExamples, OwnRandomNumbers, SplitBatch, move, split_batch
from ucb.data.streams.tasks import Scenario, Stream, Task
from ucb.engine import checkpoint
from ucb.engine.checkpoint import FolderCheckpoints, Progress
from ucb.engine.config import replace_fields
from ucb.engine.growing import NetMaker, check_heads
from ucb.engine.learner_file import LearnerCheckpoints, check_file, describe_task, options_of, read_state, recall_task
from ucb.engine.loop import Run
from ucb.engine.result import TaskMetrics, evaluate
from ucb.engine.training import Training
from ucb.methods import EvalContext, Method, find_method
from ucb.methods.base import grow
from ucb.metrics import AccuracyMatrix
from ucb.nets import HeadedNet
from ucb.observer import Observer
from ucb.seeds import derive_seed, generator_for
from ucb.storage import State, write_atomically

AS_THEY_COME = "tasks as they come"
"""The name of a stream that nobody knows beforehand."""


class Learner:
    """Learns tasks with a method, one after another, as they come or as a stream lists them.

    - ``net``: any module from a batch to features ``[rows, features]``, to which heads are added as tasks come; or a
      :class:`ucb.HeadedNet` that has its heads. A copy learns, under a Bayesian method its Bayesian twin; only a
      HeadedNet that comes with a stream learns itself. ``learner.net`` is the net that learns.
    - ``stream``: tasks from ``benchmark``, ``from_arrays`` or ``from_datasets``; without it, tasks come to ``learn``.
    - ``method``: a name of ``ucb list methods``, ``"package.module:Class"``, a class, or an object that holds its net.
    - ``scenario``: of tasks that come, one of "task-incremental", "domain-incremental" and "class-incremental".
    - ``seed``, ``device``, ``training``: the randomness, cpu or cuda, and how to train.
    - ``split``: takes a batch of a loader to inputs and targets; a pair and a mapping with ``labels`` need none.
    - ``output``: a function from the net's answer to its features, where that is not plain
      (:class:`ucb.HeadedNet` says what is).
    - ``likelihood``: what is learnt, if not classes: numbers, yes or no, counts (:mod:`ucb.bayes.likelihoods`).
    - ``folder``: where checkpoints go while a task is learnt; ``Learner.load`` goes on from there.
    - ``settings`` are the method's own (``lr``, ``samples``, ...).

    >>> import torch, ucb
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> x, y = torch.randn(200, 4), torch.arange(200) % 2
    >>> trunk = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    >>> learner = ucb.Learner(trunk, method="ucb", training=ucb.Training(ucb.Schedule(epochs=1)), samples=2)
    >>> for inputs in (x, -x):
    ...     loader = DataLoader(TensorDataset(inputs, y), batch_size=32, shuffle=True)
    ...     metrics = learner.learn(loader, test=loader)  # of all tasks so far
    >>> len(metrics), learner.predict(x, task=0).probabilities.shape
    (2, torch.Size([200, 2]))
    """

    def __init__(
        self,
        net: nn.Module | None = None,
        stream: Stream | None = None,
        method: str | type[Method] | Method = "ucb",
        *,
        scenario: Scenario | str | None = None,
        seed: int = 0,
        device: str = "cpu",
        training: Training | None = None,
        observer: Observer | None = None,
        split: SplitBatch = split_batch,
        output: Output | None = None,
        likelihood: Likelihood[Any] | None = None,
        folder: str | Path | None = None,
        **settings: Any,
    ) -> None:
        if stream is not None and scenario is not None:
            raise ValueError("a stream has its scenario: leave scenario= out")
        scenario = Scenario.named(scenario) if isinstance(scenario, str) else scenario or Scenario()
        if not scenario.boundaries:
            raise ValueError("tasks that come one by one have boundaries: give a stream to learn without them")
        self.seed, self.device, self.observer, self.split = seed, find_device(device), observer, split
        self.training = Training() if training is None else training
        self._random = OwnRandomNumbers(derive_seed("training", count("seed", seed, least=0)))
        """What a net draws while it learns, for dropout say: the program has its own."""
        self._stream = stream or Stream(AS_THEY_COME, (), scenario, is_open=True)
        self._made = method if isinstance(method, Method) else None
        self._kind = type(method) if isinstance(method, Method) else find_method(method)
        self._given_settings = settings
        if self._made is not None and (settings or net is not None):
            raise ValueError("a method that is an object has its net and its settings: leave them out")
        self._settings = replace_fields(self._kind.settings_type(), settings)
        self._nets: NetMaker | None = None
        if self._made is None:
            if not isinstance(net, nn.Module):
                raise TypeError(f"a learner needs a torch.nn.Module to learn with, not a {type(net).__name__}")
            self._nets = NetMaker(net, output, seed, self.device)
        self.likelihood = None if isinstance(likelihood, Categorical) else likelihood
        if self.likelihood is not None:
            self._check_likelihood(self.likelihood)
        self._checkpoints = None if folder is None else LearnerCheckpoints(self, Path(folder))
        if self._checkpoints is not None and self._checkpoints.load() is not None:
            raise ValueError(f"{folder} holds the checkpoints of a learner: Learner.load goes on from them")
        self._run: Run | None = None
        if self._kind.can_grow is False and self._stream.is_open:
            raise ValueError(f"{self._kind.name} must know all tasks beforehand: give the learner a stream")
        if not self._stream.is_open:
            self._run = self._begin(self._stream)

    @property
    def run(self) -> Run:
        """The engine's run, once there is a task."""
        if self._run is None:
            raise ValueError("no task has come yet: call learn")
        return self._run

    @property
    def net(self) -> HeadedNet:
        """The net that learns, with its heads; under a Bayesian method the twin."""
        return self.run.method.net

    @property
    def matrix(self) -> AccuracyMatrix:
        """How well each task was known after each: its ``acc`` and ``bwt`` are the field's."""
        return self.run.matrix

    def learn(
        self,
        train: Given | Task,
        validation: Given = None,
        test: Given = None,
        *,
        name: str | None = None,
        classes: Classes = None,
        old_tasks: bool = True,
    ) -> list[TaskMetrics]:
        """Learn one more task; return how well all tasks so far are known.

        - ``train``, ``validation``, ``test``: DataLoaders (or other iterables of batches), torch data sets, arrays
          ``(x, y)``; or ``train`` is a :class:`Task`, the next one where the learner has a stream. Without
          ``validation`` a share of arrays or data sets is held out; a loader's rate stays the same for all epochs.
        - ``classes``: how many there are, or their labels; else the training data is read once to find them.
        - ``old_tasks``: whether all are judged, or the new one alone; with a stream that takes as long for the
          thousandth as for the first. NaN stands for what is not known, as where there is no test data.

        Where learning was interrupted inside a task, the same data make it go on there.
        """
        before = None
        if not self._stream.is_open:
            self._check_turn(train, validation, test, name, classes)
        else:
            before = None if self._run is None else _Moment.of(self._run, self._stream)
            self._take_in(train, validation, test, name, classes)
        metrics: list[TaskMetrics] = self._random.draw(lambda: self._learn_task(old_tasks, before))
        if self._stream.is_open and not self._kind.is_joint:  # old data is not kept
            *others, last = self._stream.tasks
            last = replace(last, train=MissingExamples(), validation=MissingExamples())
            self._stream = self.run.stream = replace(self._stream, tasks=(*others, last))
        return metrics

    def _learn_task(self, old_tasks: bool, before: _Moment | None) -> list[TaskMetrics]:
        """Learn the task at hand. Where that fails before anything was learnt, it is as if it had never come."""
        steps = self.run.progress.steps if before is None else before.progress.steps
        try:
            return self.run.learn_task(old_tasks=old_tasks)
        except BaseException:
            if self._stream.is_open and self.run.progress.steps == steps and self._made is None:
                self._stream = replace(self._stream, tasks=()) if before is None else before.stream
                if before is None:
                    self._run = None
                else:
                    before.restore(self.run)
            raise

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks so far: their ``name``, ``classes``, and ``labels``, what the data call each class."""
        return self._stream.tasks

    def predict(self, x: Any, task: int | None = None, samples: int = 10) -> Any:
        """Judge inputs as the data have them; the task's index is needed only where the scenario tells it.

        Of classes this gives what ``ucb.predict`` gives, of other targets what their likelihood summarises: ``mean``,
        ``aleatoric`` and ``epistemic`` variance.
        """
        stream, device = self.run.stream, self.device
        if stream.scenario.task_known and task is None:
            raise ValueError("in this scenario the task is known: say its index")
        if task is not None:
            self._check_task(task)
        asked = EvalContext((task or 0) if stream.scenario.heads == "many" else 0, task)
        inputs = stream.tasks[task or 0].prepare(move(_as_inputs(x), device))
        logits = self.run.method.logits(inputs, asked, samples, generator_for("predict", device=device))
        if task is not None:
            own = stream.outputs_of(task)
            logits = logits[..., own.start : own.stop]
        return from_logits(logits) if self.likelihood is None else self.likelihood.summarise(logits)

    def evaluate(self, test: Given, task: int = 0) -> TaskMetrics:
        """Judge test data of a task, as ``learn`` does; where the scenario hides the task, only the labels need it."""
        if test is None:
            raise TypeError("there is no data to judge")
        self._check_task(task)
        stream = self.run.stream
        own = stream.tasks[task]
        given = self._handover(own.name, task).make_task(test, MissingExamples(), test, own.labels or len(own.classes))
        tasks = [replace(given, prepare=own.prepare) if i == task else each for i, each in enumerate(stream.tasks)]
        asked = replace(stream, tasks=tuple(tasks))
        seed = (self.seed, self.run.progress.task)
        return evaluate(self.run.method, asked, task, self.training.eval_samples, self.device, seed)

    def save(self, path: str | Path) -> None:
        """Write everything the learner knows to one file, whole or not at all."""
        write_atomically(Path(path), checkpoint.pack(self.run.state_dict() | self.describe(), sealed=True))

    @classmethod
    def load(
        cls,
        path: str | Path,
        net: nn.Module | None = None,
        stream: Stream | None = None,
        method: str | type[Method] | Method | None = None,
        *,
        tests: Sequence[Given] = (),
        **options: Any,
    ) -> Self:
        """Return a learner that goes on where one stood that wrote this file, or checkpoints to this folder.

        - ``net``: as it was given to that learner; its weights do not matter.
        - ``stream``, ``method`` and ``options`` as that learner had them; a file says which method of the package it
          was, and its settings, training, seed and scenario.
        - ``tests``: the test data of tasks that are over, if they are to be judged again.
        """
        path = Path(path)
        state = FolderCheckpoints(path).load() if path.is_dir() else read_state(path)
        if state is None:
            raise ValueError(f"there is no checkpoint in {path}")
        known = state.get("learner", {})
        check_file(path, known, net, stream, method)
        if stream is None and net is not None and not isinstance(net, HeadedNet):
            net = HeadedNet(net, known["features"], (), output=options.pop("output", None))
        made = cls(net, stream, method or known.get("method", "ucb"), **(options_of(known) | options))
        if path.is_dir():
            made._checkpoints = LearnerCheckpoints(made, path)
        if made._stream.is_open:
            made._recall(known.get("tasks", []), tests)
        try:
            made._random.draw(lambda: made.run.load_state_dict(state))
        except RuntimeError as error:
            raise ValueError(f"{path} does not fit this net: {str(error).splitlines()[-1].strip()}") from None
        made.run.checkpoints = made._checkpoints
        return made

    def describe(self) -> State:
        """Return how the learner was made, and which tasks have come, as a file holds it."""
        is_open = self._stream.is_open
        tasks = [describe_task(task) for task in self._stream.tasks if is_open]
        return {
            "learner": {
                "method": self._kind.name,
                "settings": dict(self._given_settings),
                "seed": self.seed,
                "scenario": asdict(self._stream.scenario) if is_open else None,
                "training": asdict(self.training),
                "features": None if self._nets is None else self._nets.features,
                "tasks": tasks,
            }
        }

    def _check_likelihood(self, likelihood: Likelihood[Any]) -> None:
        """Refuse what cannot be learnt with targets that are no classes."""
        if self._kind.needs_classes:
            raise ValueError(f"{self._kind.name} can learn classes only: leave likelihood= out")
        if not self._stream.is_open:
            raise ValueError("a stream has classes: learn other targets without one, task by task")
        if self._stream.scenario.heads == "one" and not self._stream.scenario.shared_outputs:
            raise ValueError("one head whose outputs grow is for classes: choose domain-incremental")
        if isinstance(likelihood, nn.Module) and next(likelihood.parameters(), None) is not None:
            raise ValueError(
                f"{type(likelihood).__name__} has parameters of its own, which no method learns: use it in a loop of "
                "your own, or HeteroscedasticGaussian, whose noise the net learns"
            )

    def _check_task(self, task: Any) -> None:
        """Refuse an index that no task has."""
        tasks = self.run.stream.tasks
        if isinstance(task, bool) or not isinstance(task, int):
            raise TypeError(f"a task is told by its index, a whole number, not {task!r}")
        if not 0 <= task < len(tasks):
            first, *others = (f"{index} ({each.name!r})" for index, each in enumerate(tasks))
            known = f"tasks are {first} to {others[-1]}" if others else f"only task is {first}"
            raise ValueError(f"there is no task {task}: the stream's {known}")

    def _check_turn(self, task: Any, *others: Any) -> None:
        """Refuse any but the stream's next task."""
        if any(each is not None for each in others):
            raise ValueError("a stream's tasks have their names and data: hand over the task alone")
        done, tasks = self.run.progress.task, self.run.stream.tasks
        if not isinstance(task, Task):
            raise TypeError(f"the learner has a stream, whose tasks it learns, not a {type(task).__name__}")
        if done == len(tasks) or task is not tasks[done]:
            wanted = f"next is {tasks[done].name!r}" if done < len(tasks) else "all are learnt"
            raise ValueError(f"tasks come in the stream's order, and {task.name!r} is not due: {wanted}")

    def _handover(self, name: str, index: int) -> Handover:
        outputs_for = None if self.likelihood is None else self.likelihood.outputs_for
        return Handover(name, index, self.training.batch_size, self.seed, self.split, outputs_for)

    def _take_in(self, train: Any, validation: Any, test: Any, name: str | None, classes: Classes) -> None:
        """Let a task come, or its data once more where it was interrupted."""
        done = 0 if self._run is None else self._run.progress.task
        is_under_way = done < len(self._stream.tasks)
        if isinstance(train, Task):
            if any(each is not None for each in (validation, test, name, classes)):
                raise ValueError("a task has its name, classes and data: hand it over alone")
            task = train
        else:
            if is_under_way and classes is None:
                classes = self._stream.tasks[done].labels or len(self._stream.tasks[done].classes)
            title = name or (self._stream.tasks[done].name if is_under_way else f"task {done + 1}")
            task = self._handover(title, done).make_task(train, validation, test, classes)
        if self._checkpoints is not None and not getattr(task.train, "is_repeatable", True):
            warnings.warn(
                f"{task.name}: an IterableDataset may come in another order when it is read again: after an "
                "interruption inside an epoch the figures may not be those of a run that was never cut",
                stacklevel=3,
            )
        if not is_under_way:
            known = self._stream.tasks[0].labels if self._stream.tasks else task.labels
            if self._stream.scenario.shared_outputs and task.labels != known:
                said = ", ".join(map(str, known))
                raise ValueError(f"{task.name!r} must have the labels {said}, as all tasks share their outputs")
            self._add(task)
            return
        waiting = self._stream.tasks[done]
        if (waiting.name, waiting.classes) != (task.name, task.classes):
            raise ValueError(f"{waiting.name!r} with {len(waiting.classes)} classes is under way: learn that first")
        size = None if self.run.method.task is None else self.run.method.task.num_examples
        if self.run.progress.batch and size != len(task.train):
            raise ValueError(
                f"{waiting.name!r} is under way with {size} examples, and these are {len(task.train)}: hand over the "
                "same data"
            )
        self._stream = self.run.stream = replace(self._stream, tasks=(*self._stream.tasks[:done], task))
        self.run.refuse_impossible(self.run.progress)

    def _recall(self, tasks: list[dict[str, Any]], tests: Sequence[Given]) -> None:
        """Let tasks come of which no more is known than a file tells, and perhaps their test data."""
        if self._kind.is_joint:
            raise ValueError(f"{self._kind.name} needs the data of all tasks: let it learn them anew")
        if len(tests) > len(tasks):
            raise ValueError(f"there are test data of {len(tests)} tasks, and {len(tasks)} have come")
        none = MissingExamples()
        found = []
        for index, told in enumerate(tasks):
            task = recall_task(told, none)
            if index < len(tests) and tests[index] is not None:
                handover = self._handover(task.name, index)
                classes = task.labels or len(task.classes)
                shown = handover.make_task(tests[index], none, tests[index], classes)
                task = replace(task, test=shown.test)
            found.append(task)
        self._stream = replace(self._stream, tasks=tuple(found))
        self._run = self._begin(self._stream)

    def _add(self, task: Task) -> None:
        """Let a task join the stream, and the net have a head or outputs for it."""
        longer = replace(self._stream, tasks=(*self._stream.tasks, task))
        if self._run is None:
            self._run = self._begin(longer)
        elif self._made is not None:
            check_heads(self._made.net, longer)
        elif self._nets is not None and not longer.scenario.shared_outputs:
            self._run.method = grow(self._run.method, self._nets.make(longer))
        self._stream = self._run.stream = longer

    def _begin(self, stream: Stream) -> Run:
        if self._nets is not None:
            noise = generator_for("noise", self.seed, device=self.device)
            method = self._kind(self._nets.make(stream), self._settings, noise)
        else:
            assert self._made is not None
            method = self._made
            check_heads(method.net, stream)
        identity = {"stream": stream.name, "method": method.name, "seed": self.seed, **self._given_settings}
        if stream.is_open:
            identity["scenario"] = stream.scenario.name
        if self.likelihood is not None:
            method.likelihood, identity["likelihood"] = self.likelihood, repr(self.likelihood)
        return Run(
            stream,
            method,
            self.training,
            seed=self.seed,
            device=self.device,
            observer=self.observer,
            checkpoints=self._checkpoints,
            identity=identity,
        )


class _Moment(NamedTuple):
    """Where a learner stood before a task came."""

    method: Method
    noise: torch.Tensor
    progress: Progress
    stream: Stream

    @classmethod
    def of(cls, run: Run, stream: Stream) -> _Moment:
        """Return the present moment; nothing large is copied, since a method that grows is made anew."""
        return cls(run.method, run.method.generator.get_state(), copy.deepcopy(run.progress), stream)

    def restore(self, run: Run) -> None:
        """Go back."""
        run.method, run.progress, run.stream = self.method, self.progress, self.stream
        run.method.generator.set_state(self.noise)


def _as_inputs(x: Any) -> Any:
    """Return inputs of a program as tensors: arrays, and tuples and mappings of them."""
    if isinstance(x, np.ndarray):
        tensor = torch.as_tensor(x)
        return tensor.to(torch.get_default_dtype()) if tensor.dtype == torch.float64 else tensor
    if isinstance(x, Mapping):
        return {name: _as_inputs(part) for name, part in x.items()}
    if isinstance(x, tuple):
        return tuple(map(_as_inputs, x))
    if isinstance(x, DataLoader | Dataset):
        raise TypeError("predict takes inputs, a batch of them: go through a loader's batches one by one")
    return x
