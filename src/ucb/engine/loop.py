"""The training loop: a run learns the tasks of a stream, is evaluated after each, and saves its state."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Container
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ucb.bayes.priors import trainable_gaussians
from ucb.data.streams import Stream
from ucb.data.streams.loaders import MissingExamples
from ucb.engine.checkpoint import Checkpoints, Progress, refuse_other
from ucb.engine.result import TaskMetrics, evaluate, keep_kernels, sigma_movement
from ucb.engine.training import GraphMemory, Plateau, Steps, TaskBatches, Training, set_precision, steps_for
from ucb.methods import Method, TaskInfo
from ucb.methods.bayesian import BayesianMethod
from ucb.metrics import AccuracyMatrix, pack_right_answers
from ucb.observer import Epoch, Observer
from ucb.seeds import generator_for
from ucb.storage import StateCopy, move_state


class InterruptedRunError(RuntimeError):
    """The run was asked to stop; its state is saved."""


class DivergedError(RuntimeError):
    """The loss became NaN or infinite, or grew beyond all reason."""

    def __init__(self, what: str, value: float, where: str, lr: float) -> None:
        advice = f"try a smaller rate (lr is {lr:g}) or clip the gradient (clip=10)"
        super().__init__(f"the {what} became {value:g} in {where}: {advice}")


LEAST_SECONDS = 20.0
"""Between two checkpoints inside a task on a GPU."""


class Run:
    """Learns a stream with a method, from the start or from one of its ``checkpoints``.

    ``start`` is where it stands at first, if not before the first task; ``evaluated`` are the tasks whose accuracy is
    measured, if not all: nothing is known of the others, whose data may be gone.
    """

    def __init__(
        self,
        stream: Stream,
        method: Method,
        training: Training,
        *,
        seed: int,
        device: torch.device,
        checkpoints: Checkpoints | None = None,
        observer: Observer | None = None,
        start: Progress | None = None,
        evaluated: Container[int] | None = None,
        identity: dict[str, Any] | None = None,
    ) -> None:
        if method.needs_task and not stream.scenario.task_known:
            needs = "must be told the task at test time, and this scenario hides it: use several heads"
            raise ValueError(f"{method.name} {needs}")
        if method.needs_boundaries and not stream.scenario.boundaries:
            needs = "must be told when a task ends, and tasks that fade into each other hide it"
            raise ValueError(f"{method.name} {needs}")
        training.schedule.refuse_rate(method.settings.lr)
        self.identity = {} if identity is None else identity
        """What must be the same when a checkpoint is taken up again, as plain values by name."""
        self.stream, self.method, self.training = stream, method, training
        self.boundaries = stream.scenario.boundaries
        self.seed, self.device, self.checkpoints = seed, device, checkpoints
        self.observer = Observer() if observer is None else observer
        self.progress = Progress() if start is None else start
        self.evaluated = evaluated
        self.best: StateCopy | None = None
        self.stopping = False
        """Set by a signal: the run then stops after the batch at hand, where its state is whole."""
        self._clock = self._saved = time.monotonic()
        self._saved_at = 0
        self._noted: set[str] = set()
        self._ended = -1
        """The task that the method has ended last."""
        self.own_stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.graphs = GraphMemory() if training.graphs else None

    def resume(self) -> bool:
        """Go to where the latest checkpoint is; say whether there was one."""
        if self.checkpoints is None or (state := self.checkpoints.load()) is None:
            return False
        try:
            self.load_state_dict(state)
        except (LookupError, AttributeError, AssertionError, RecursionError, RuntimeError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            path = self.checkpoints.path
            raise OSError(f"{path} holds no state of this run: {type(error).__name__}: {error}") from None
        return True

    def save(self) -> None:
        """Keep the state, if there is a place for it."""
        if self.checkpoints is None:
            return
        self._tick()
        self.checkpoints.save(self.state_dict())
        self._saved, self._saved_at = time.monotonic(), self.progress.steps

    def state_dict(self) -> dict[str, Any]:
        """Return everything it takes to go on: the method's state, the position, the figures, the random state."""
        with self.method.net.heads.showing(None):
            state = self.method.state_dict()
        return {
            "identity": self.identity,
            "method": state,
            "best": None if self.best is None else self.best.state,
            "progress": self.progress.state(),
            "rng": torch.get_rng_state(),
            "rng on the GPU": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to where the state was taken, if it is this run's."""
        refuse_other(state["identity"], self.identity)
        progress = Progress.of(state["progress"])
        self.refuse_impossible(progress)
        self.method.load_state_dict(move_state(self.device, state["method"]))
        self.best = None if state["best"] is None else StateCopy(move_state(self.device, state["best"]))
        self.progress = progress
        torch.set_rng_state(state["rng"])
        if state["rng on the GPU"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["rng on the GPU"].cpu(), self.device)

    def refuse_impossible(self, progress: Progress) -> None:
        """Refuse a position where a run of these tasks is never."""
        epochs = self.training.schedule.epochs
        progress.refuse_impossible(len(self.stream), epochs, lambda task: self._data_of(task).num_batches)

    def learn(self) -> None:
        """Learn all tasks that are left."""
        for remark in self.stream.remarks:
            self.observer.noted(remark)
        while self.progress.task < len(self.stream):
            self.learn_task()

    def learn_task(self, *, old_tasks: bool = True) -> list[TaskMetrics]:
        """Learn the next task, or what is left of it; return how well it and, if asked for, the old tasks are known."""
        self._clock = time.monotonic()
        others = keep_kernels(self.progress.kernels, self.device)
        if others is not None and isinstance(self.method, BayesianMethod):
            self.observer.noted(others)
        # On a GPU it has a stream of its own: what is no step does not wait for other runs' work.
        with self._on_stream(), set_precision(self.training.precision, self.device):
            self._evaluate_at_start()
            self._learn_task(old_tasks)
        if self.progress.task == len(self.stream) and self.graphs is not None and not self.stream.is_open:
            self.graphs.give_up()
        return self.progress.metrics_last

    def _evaluate_at_start(self) -> None:
        """Note how well tasks are known before anything is learnt; of one that comes later nobody can say."""
        known, is_fresh = self.progress.at_start, self.progress.steps == 0
        for index in range(len(known), len(self.stream)):
            known.append(self._evaluate(index).accuracy if is_fresh else math.nan)

    def _on_stream(self) -> AbstractContextManager[None]:
        if self.own_stream is None:
            return nullcontext()
        self.own_stream.wait_stream(torch.cuda.current_stream(self.device))  # where the run was built or resumed
        return torch.cuda.stream(self.own_stream)

    @property
    def matrix(self) -> AccuracyMatrix:
        """The accuracy matrix so far."""
        return self.progress.matrix

    def _learn_task(self, old_tasks: bool) -> None:
        progress, data = self.progress, self._data_of(self.progress.task)
        if self._is_new() and progress.phase == progress.epoch == 0:
            self._begin(data)
        if not self.method.learns_when(progress.task, len(self.stream)):
            self._finish_task([TaskMetrics.missing()])
            return
        if self.boundaries:
            self.method.inspect_data(data)
        self.observer.task_began(progress.task, self.stream.tasks[progress.task].name)
        shares = self.method.phases()
        progress.refuse_phase_beyond(len(shares))
        while progress.phase < len(shares):
            if progress.phase > 0 and self._is_new():
                self.method.begin_phase(progress.phase, data)
                progress.rate = self.method.settings.lr
            epochs = self.training.schedule.epochs if self.boundaries else 1
            with self.method.net.heads.showing(self.method.learning_heads()):
                self._learn_phase(data, max(1, round(shares[progress.phase] * epochs)))
            progress.phase += 1
        self._end(data, old_tasks)

    def _learn_phase(self, data: TaskBatches, epochs: int) -> None:
        progress, first = self.progress, sum(self.progress.phase_epochs)
        schedule = dataclasses.replace(self.training.schedule, epochs=epochs)
        if self.boundaries and not data.has_held_out:  # nothing says when the rate should drop
            schedule = dataclasses.replace(schedule, patience=epochs + 1)
        best, waited = progress.plateau_best, progress.plateau_waited
        plateau = Plateau(schedule, progress.rate, best, waited, progress.epoch - first)
        steps, rate, is_best = None, math.nan, False
        if progress.batch == 0:
            self._tick(begins_epoch=True)
        while not plateau.is_over:
            if steps is None or rate != plateau.rate:  # captured steps hold the rate
                rate, steps = plateau.rate, None  # the old ones hold the task's inputs until they are gone
                self.method.set_rate(rate)
                steps = steps_for(self.method, data, self.graphs)
                self._note_eager(steps)
            self._learn_epoch(data, steps)
            loss = math.nan
            if self.boundaries:
                self.method.end_epoch(data)
                loss = self._held_out_loss(data) if data.has_held_out else math.nan
                if data.has_held_out and self.best is None and not math.isfinite(loss):
                    raise DivergedError("held-out loss", loss, progress.where, self.method.settings.lr)
            self._tick()
            seconds = progress.seconds - progress.seconds_before_epoch
            mean_loss = progress.losses[0] / progress.losses[1]
            self.observer.epoch_ended(Epoch(progress.task, progress.epoch, mean_loss, loss, plateau.rate, seconds))
            is_best = plateau.observe(loss)
            if is_best and not plateau.is_over:
                self.best = self.best or StateCopy()
                self.best.renew(self.method.state_dict())
            progress.epoch, progress.batch, progress.losses = first + plateau.epochs, 0, []
            self._tick(begins_epoch=True)
            progress.rate, progress.plateau_best, progress.plateau_waited = plateau.rate, plateau.best, plateau.waited
        self._return_to_best(is_best)
        progress.phase_epochs.append(plateau.epochs)
        progress.rate, progress.plateau_best, progress.plateau_waited = math.nan, math.inf, 0

    def _return_to_best(self, is_there: bool) -> None:
        """Go back to the weights with the least held-out loss, unless they are the present ones."""
        if self.best is not None and not is_there:
            generator = self.method.generator.get_state()
            self.method.load_state_dict(self.best.state)
            self.method.generator.set_state(generator)  # noise is never drawn twice
        self.best = None

    def _data_of(self, index: int) -> TaskBatches:
        """Return what is learnt when a task comes: the task itself, or all so far, whose labels number all outputs."""
        if self.method.is_joint:
            return TaskBatches(self.stream.joint(index), 0, self.training.batch_size, self.device)
        first = self.stream.outputs_of(index).start
        return TaskBatches(self.stream.tasks[index], first, self.training.batch_size, self.device)

    def _is_new(self) -> bool:
        return math.isnan(self.progress.rate)

    def _begin(self, data: TaskBatches) -> None:
        progress = self.progress
        progress.before.append(self._evaluate(progress.task).accuracy)
        progress.rate, progress.plateau_best, progress.plateau_waited = self.method.settings.lr, math.inf, 0
        if progress.task > 0 and not self.boundaries:
            return  # the learner is not told
        head = progress.task if self.stream.scenario.heads == "many" else 0
        outputs = self.stream.outputs_of(progress.task)
        size = len(data.task.train)
        self.method.begin_task(TaskInfo(progress.task, size, head, outputs, data.num_batches, self.boundaries))

    def _note_eager(self, steps: Steps) -> None:
        """Say once why steps run one launch at a time."""
        obstacle = steps.obstacle
        if obstacle is not None and obstacle not in self._noted:
            self._noted.add(obstacle)
            self.observer.noted(f"the steps of {self.method.name} are not captured as a CUDA graph: {obstacle}")

    def _learn_epoch(self, data: TaskBatches, steps: Steps) -> None:
        progress, batches = self.progress, data.num_batches
        random = generator_for("order", self.seed, progress.task, progress.epoch)
        order = data.order(random, shuffle=self.boundaries)
        progress.losses = progress.losses or [0.0, 0.0]
        steps.begin(order, progress.batch)
        while progress.batch < batches:
            steps.learn()
            progress.batch, progress.steps = progress.batch + 1, progress.steps + 1
            stopping = self.stopping  # asked once: a signal may come at any moment
            saving = stopping or (progress.batch < batches and self._save_is_due())
            if saving or progress.batch == batches or steps.is_time_to_look:
                self._count_losses(steps.new_losses())
            self.observer.batch_learnt(progress.task, progress.epoch, progress.batch, batches)
            if saving:
                self.save()
            if stopping:
                raise InterruptedRunError(f"stopped in {progress.where}, batch {progress.batch}")
        self._note_eager(steps)

    def _save_is_due(self) -> bool:
        """Say whether it is time for a checkpoint; a GPU takes a thousand steps faster than one is written."""
        every = self.training.checkpoint_every
        if self.checkpoints is None or not self.checkpoints.is_due:  # to get ready for one, too, holds up a GPU
            return False
        if self.device.type != "cuda":
            return self.progress.steps % every == 0
        return self.progress.steps - self._saved_at >= every and time.monotonic() - self._saved >= LEAST_SECONDS

    def _count_losses(self, losses: list[float]) -> None:
        """Count the last batches' losses; stop at one that leads nowhere. The last checkpoint stays."""
        progress = self.progress
        for batch, value in enumerate(losses, start=progress.batch - len(losses) + 1):
            progress.losses[0] += value
            progress.losses[1] += 1
            if not math.isfinite(value) or value > 1e6:
                raise DivergedError("loss", value, f"{progress.where}, batch {batch}", self.method.settings.lr)

    def _held_out_loss(self, data: TaskBatches) -> float:
        losses, rows = [], 0
        for x, y in data.validation():
            losses.append(self.method.loss(x, y).double() * len(y))
            rows += len(y)
        return float(torch.stack(losses).sum()) / rows  # one look: each holds up a GPU

    def _end(self, data: TaskBatches, old_tasks: bool) -> None:
        progress = self.progress
        if self._ended != progress.task:  # else judging was interrupted, and is done again
            if self.method.evaluated_before_end:
                progress.before_end.append(self._evaluate(progress.task).accuracy)
            if self.boundaries:
                self.method.end_task(data)
            self._ended = progress.task
        first = 0 if old_tasks else progress.task
        judged = [self._evaluate(i) for i in range(first, progress.task + 1)]
        self._finish_task([TaskMetrics.missing()] * first + judged)

    def _finish_task(self, row: list[TaskMetrics]) -> None:
        """Turn to the next task, and keep what is known after this one."""
        progress = self.progress
        if isinstance(self.method, BayesianMethod):
            is_first = not progress.sigma
            with self.method.net.heads.showing(None if is_first else self.method.learning_heads()):
                among = None if is_first else trainable_gaussians(self.method.net)
                progress.sigma.append(sigma_movement(self.method, among))
        progress.epochs_used.append(progress.epoch)
        progress.task, progress.phase, progress.epoch, progress.batch = progress.task + 1, 0, 0, 0
        progress.phase_epochs, progress.losses, progress.rate = [], [], math.nan
        progress.add(row)
        if len(row) == len(self.stream):  # only then: what a checkpoint holds must not grow with each task's test data
            progress.right = [pack_right_answers(judgement.right) for judgement in row if judgement.right is not None]
        self._tick()
        progress.task_seconds.append(progress.seconds - sum(progress.task_seconds))
        self.save()
        if not math.isnan(row[-1].accuracy):
            self.observer.task_ended(len(row) - 1, row)
        if self.stopping:
            raise InterruptedRunError(f"stopped after task {progress.task}")

    def _evaluate(self, index: int) -> TaskMetrics:
        is_left_out = self.evaluated is not None and index not in self.evaluated
        if is_left_out or isinstance(self.stream.tasks[index].test, MissingExamples):
            return TaskMetrics.missing()
        samples = self.training.eval_samples
        return evaluate(self.method, self.stream, index, samples, self.device, (self.seed, self.progress.task))

    def _tick(self, *, begins_epoch: bool = False) -> None:
        """Add the time since the last tick to the run's."""
        now = time.monotonic()
        self.progress.seconds, self._clock = self.progress.seconds + now - self._clock, now
        if begins_epoch:
            self.progress.seconds_before_epoch = self.progress.seconds
