"""Runs of one kind that learn side by side, each in a thread of its own: those at the same task take steps together.

A run asks for an epoch and waits until all others do so too, or are gone. Those that are behind go first: as a stack if
there are several, else alone. The steps of an epoch are sent to the GPU in pieces: the first at once, another when
every run of the epoch asks for it. A run has its own weights back when it looks at the losses of a piece; until then it
may still look at those that it had before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

from ucb.data.streams.tasks import Task
from ucb.engine.graph_memory import GraphMemory
from ucb.engine.graphs import ready_inputs
from ucb.engine.stack import Stack
from ucb.engine.stacked_steps import Labelled, StackedSteps

if TYPE_CHECKING:
    from ucb.engine.run import Run

PIECE = 200
"""Steps that are sent at a time: in between a run looks at its losses, is saved or stopped."""

PATIENCE = 0.5
"""Seconds that a run waits for others with something put off."""


class ApartError(RuntimeError):
    """The runs of an epoch cannot take their steps together."""


@dataclass(eq=False)
class Call:
    """A run that waits for its next epoch."""

    run: Run
    place: tuple[int, int]
    """Task and phase."""
    task: Task
    offset: int
    order: Tensor
    batch: int
    epoch: Epoch | None = None
    is_answered: bool = False


@dataclass(eq=False)
class Epoch:
    """An epoch that several runs learn together."""

    steps: StackedSteps
    members: list[Run]
    sent: int
    """Batches whose steps are on their way."""
    places: dict[Run, int] = field(init=False)
    """Of the runs in the stack; a member may leave, its place stays."""
    asked: dict[Run, int] = field(init=False)
    """The first batch of the piece that each wants next."""
    failure: Exception | None = None

    def __post_init__(self) -> None:
        self.places = {run: place for place, run in enumerate(self.members)}
        self.asked = dict.fromkeys(self.members, self.sent)

    @property
    def batches(self) -> int:
        """How many batches it has."""
        return len(self.steps.losses)


class Team:
    """The runs that are still at it, and what they wait for."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.present = list(runs)
        self.floor = threading.Lock()
        """Whoever does anything but learn holds it: threads that do so at once only hold each other up."""
        self.changed = threading.Condition()
        self.calls: dict[Run, Call] = {}
        self.epochs: dict[Run, Epoch] = {}
        self.steps: StackedSteps | None = None
        self.steps_are_of: tuple[object, ...] = ()
        self.graphs = GraphMemory()
        self.is_warm = False
        """Whether all that a step needs has been made."""
        self.obstacle: str | None = None
        """Why its runs take their steps apart, once that is known."""
        device = runs[0].device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def leave(self, run: Run) -> None:
        """Go on without a run."""
        with self.changed:
            self.present.remove(run)
            self.calls.pop(run, None)
            self._end_epoch(run)
            self.changed.notify_all()

    def join(self, call: Call) -> Epoch | None:
        """Wait for the next epoch; return it, or None if the run learns it alone."""
        with self.changed:
            self._end_epoch(call.run)
            self.calls[call.run] = call
            self.changed.notify_all()
            end_of_patience = time.monotonic() + PATIENCE
            while not call.is_answered:
                if len(self.calls) == len(self.present):
                    self._answer()
                elif call.run.has_put_off and time.monotonic() >= end_of_patience:
                    call.run.catch_up()  # the others take their time; nobody touches its method meanwhile
                else:
                    self.changed.wait(PATIENCE if call.run.has_put_off else None)
        return call.epoch

    def send(self, epoch: Epoch, run: Run, batch: int) -> None:
        """Have the step of a batch on its way: with those that follow it, once all runs ask for it."""
        with self.changed:
            epoch.asked[run] = batch
            self.changed.notify_all()
            while epoch.sent <= batch and epoch.failure is None:
                if all(epoch.asked[member] >= epoch.sent for member in epoch.members):
                    self._send_piece(epoch)
                else:
                    self.changed.wait()
        if epoch.failure is not None:
            raise epoch.failure

    def _end_epoch(self, run: Run) -> None:
        epoch = self.epochs.pop(run, None)
        if epoch is not None:
            epoch.members.remove(run)

    def _answer(self) -> None:
        """Let the runs that are behind go on."""
        least = min(call.place for call in self.calls.values())
        chosen = [call for call in self.calls.values() if call.place == least]
        epoch = self._epoch_of(chosen)
        if epoch is None:
            self.steps, self.steps_are_of = None, ()  # these runs go on without their stack
        for call in chosen:
            call.epoch, call.is_answered = epoch, True
            del self.calls[call.run]
            if epoch is not None:
                self.epochs[call.run] = epoch
        self.changed.notify_all()

    def _epoch_of(self, calls: list[Call]) -> Epoch | None:
        calls = sorted(calls, key=lambda call: self.present.index(call.run))
        if len(calls) == 1 or self.obstacle is not None or len({(c.batch, len(c.order)) for c in calls}) > 1:
            return None
        with self._on_stream([call.run for call in calls]):
            try:
                steps = self._steps_of(calls)
                if steps is None:
                    return None
                steps.begin_all([call.order for call in calls], calls[0].batch)
            except Exception as error:  # whatever it is, each run can go on alone
                self._give_up(error)
                return None
        return Epoch(steps, [call.run for call in calls], calls[0].batch)

    def _steps_of(self, calls: list[Call]) -> StackedSteps | None:
        """Return the steps of some runs in a task: those of the last epoch, where they are the same runs."""
        key = (calls[0].place, *(call.run for call in calls))
        if self.steps is None or self.steps_are_of != key:
            self.steps, self.steps_are_of = None, key  # the old ones hold the last task's inputs until they are gone
            inputs = [ready_inputs(call.task, call.offset, call.run.device) for call in calls]
            if not _fit(inputs):
                return None
            judged = [ready_inputs(c.task, c.offset, c.run.device, c.task.validation) for c in calls]
            held_out = judged if _fit(judged) else []
            stack = Stack([call.run.method for call in calls], inputs[0][0][:2])
            batch_size = calls[0].run.training.batch_size
            self.steps = StackedSteps(stack, inputs, batch_size, self.graphs, held_out, self.is_warm)
        return self.steps

    def _send_piece(self, epoch: Epoch) -> None:
        """Send the next steps; if the very first of them fail, every run goes on alone as if nothing had been."""
        end = min((epoch.sent // PIECE + 1) * PIECE, epoch.batches)
        try:
            with self._on_stream(epoch.members):
                for _ in range(epoch.sent, end):
                    epoch.steps.learn()
                if end == epoch.batches:
                    epoch.steps.judge()
        except Exception as error:  # the stack is somewhere inside the piece: nobody may go on with it
            epoch.failure = error
            if not epoch.steps.is_tried:
                self._give_up(error)
                epoch.failure = ApartError(self.obstacle)
        else:
            epoch.sent, epoch.steps.is_tried, self.is_warm = end, True, epoch.steps.is_warm
        self.changed.notify_all()

    def _give_up(self, error: Exception) -> None:
        self.graphs.give_up()
        self.steps, self.steps_are_of = None, ()
        self.obstacle = str(error).splitlines()[0] if str(error) else type(error).__name__

    @contextmanager
    def _on_stream(self, runs: Sequence[Run]) -> Iterator[None]:
        """Work on the team's stream, after what the runs have begun on theirs."""
        if self.stream is None:
            yield
            return
        for run in runs:
            assert run.own_stream is not None
            self.stream.wait_stream(run.own_stream)
        with torch.cuda.stream(self.stream):
            yield


def holding_the_floor(team: Team | None) -> AbstractContextManager[object]:
    """Do what is no learning while no other run of the team does."""
    return nullcontext() if team is None else team.floor


@contextmanager
def leaving_the_floor(team: Team | None) -> Iterator[None]:
    """Let the team's other runs do something else while this one learns."""
    if team is None:
        yield
        return
    team.floor.release()
    try:
        yield
    finally:
        team.floor.acquire()


def _fit(inputs: Sequence[Labelled | str]) -> TypeGuard[Sequence[Labelled]]:
    """Say whether the inputs of all runs are there, and as many of each."""
    sizes = {len(each[1]) for each in inputs if not isinstance(each, str)}
    return len(sizes) == 1 and not any(isinstance(each, str) for each in inputs)
