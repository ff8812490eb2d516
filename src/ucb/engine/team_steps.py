"""The steps of one run in a team: it asks for an epoch, counts its batches, and takes its losses and weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ucb.data.streams.tasks import Task
from ucb.engine.steps import Steps
from ucb.engine.team import ApartError, Call, Epoch, Team

if TYPE_CHECKING:
    from ucb.engine.run import Run


class TeamSteps(Steps):
    """The steps of a run in a team."""

    def __init__(self, team: Team, run: Run, task: Task, offset: int, alone: Callable[[], Steps]) -> None:
        self.team, self.run, self.task, self.offset = team, run, task, offset
        self._make_alone = alone
        self.alone: Steps | None = None
        """Its own steps, for an epoch that no other run learns with it."""
        self.epoch: Epoch | None = None
        self.place = 0
        self.order = torch.empty(0, dtype=torch.int64)
        self.first = self.batch = self.seen = 0

    def begin(self, order: Tensor, batch: int) -> None:
        """Wait for the others."""
        at = self.run.at
        self.order, self.held_out_loss = order, None
        self.first = self.batch = self.seen = batch
        self.epoch = self.team.join(Call(self.run, (at.task, at.phase), self.task, self.offset, order, batch))
        self.is_shared = self.epoch is not None
        if self.epoch is None:
            self._go_alone()
        else:
            self.place = self.epoch.places[self.run]

    def _go_alone(self) -> None:
        self.run.catch_up()  # its own steps do not leave the method alone
        self.epoch, self.is_shared = None, False
        if self.team.obstacle is not None:
            self.run.note_once(f"runs side by side take their steps apart: {self.team.obstacle}")
        if self.alone is None:
            self.alone = self._make_alone()
        self.alone.begin(self.order, self.batch)
        self.obstacle = self.alone.obstacle

    def learn(self) -> None:
        """Learn the next batch."""
        if self.epoch is not None and self.epoch.sent <= self.batch:
            try:
                self.team.send(self.epoch, self.run, self.batch)
            except ApartError:
                self._go_alone()
            except Exception:
                self.run.catch_up()  # what is known so far is kept
                raise
        if self.epoch is not None and self.batch == self.first:
            with self.team.floor:
                self.run.catch_up()
        if self.epoch is None:
            assert self.alone is not None
            self.alone.learn()
            self.obstacle = self.alone.obstacle
        self.batch += 1

    @property
    def is_at_rest(self) -> bool:
        """Whether a piece is at its end."""
        return self.epoch is None or self.batch == self.epoch.sent

    @property
    def is_time_to_look(self) -> bool:
        """Whether a piece is at its end, or it is time by its own steps."""
        return self.is_at_rest if self.alone is None or self.epoch is not None else self.alone.is_time_to_look

    def new_losses(self) -> list[float]:
        """Return the losses since this was last asked, and take the weights over."""
        if self.epoch is None:
            assert self.alone is not None
            return self.alone.new_losses()
        if self.team.stream is not None:
            torch.cuda.current_stream(self.run.device).wait_stream(self.team.stream)
        steps = self.epoch.steps
        values = steps.hand_over(self.place, self.seen, self.batch)
        self.seen, self.obstacle = self.batch, steps.obstacle
        if self.batch == self.epoch.batches and steps.held_out:
            self.held_out_loss = float(steps.held_out_losses[self.place])
        return values
