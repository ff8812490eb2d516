"""How far the work is and how long it takes yet: from the first batch, to the end of the calibration."""

import json
import os
import pty
from contextlib import suppress
from itertools import pairwise

import pytest
import torch
from torch import nn

from tests.incremental.data import blobs, digits, write_pngs
from tests.support import launched, succeed
from ucb.cli.watch import SILENCE, ExampleBar
from ucb.incremental import Model
from ucb.incremental.calibration import ScoreCalibration
from ucb.incremental.learning import learn
from ucb.observer import Observer


class Moves(Observer):
    """Keeps every move."""

    def __init__(self):
        self.seen = []

    def moved(self, done, total):
        self.seen.append((done, total))

    def check(self, total):
        """Moves go forward, and the last one alone says that all is done."""
        done = [each for each, _ in self.seen]
        assert {each for _, each in self.seen} == {total}
        assert done == sorted(done)
        assert (done[0], done[-1], done.count(total)) == (0, total, 1)
        return done


def make_bar(monkeypatch):
    """A bar where there is no terminal, and the clock that it looks at."""
    clock = [100.0]
    bar = ExampleBar("learning")
    monkeypatch.setattr(bar.progress, "get_time", lambda: clock[0])
    return bar, clock


def test_the_second_move_tells_the_time_left(monkeypatch, capsys):
    bar, clock = make_bar(monkeypatch)
    bar.moved(50, 100)  # half of it was done before, and took no time now
    (task,) = bar.progress.tasks
    assert task.time_remaining is None
    clock[0] += 2
    bar.moved(60, 100)
    assert task.time_remaining == 8
    assert capsys.readouterr().err == ""
    bar.last -= SILENCE
    clock[0] += 2
    bar.moved(70, 100)
    assert capsys.readouterr().err == "learning: 70 of 100, about 0:00:06 left\n"


@pytest.mark.usefixtures("small")
def test_the_calibration_is_a_part_of_the_work(monkeypatch):
    at = []

    def update(self, *words):
        at.append(len(moves.seen))
        given = measured(self, *words)
        at.append(len(moves.seen))
        return given

    measured = ScoreCalibration.update
    monkeypatch.setattr(ScoreCalibration, "update", update)
    model, (x, labels) = Model(), digits([0, 1], 100)
    for again in (False, True):  # a trunk is made, and then there is one
        at.clear()
        moves = Moves()
        model.learn((x, labels), observer=moves, again=again)
        done = moves.check(200)
        assert at[1] - at[0] == 2
        assert done[at[0] - 1] < 200 * 0.96
        assert len(done) > 200 / 32


def test_an_image_at_a_time_and_all_together_have_the_same_features():
    model, (x, labels) = Model(), digits([0, 1], 40)
    model.learn((x, labels))
    parts = torch.cat([model.learner.features(some) for some in x.split(32)])
    assert torch.equal(parts, model.learner.features(x))


def test_a_deep_net_tells_every_few_images_how_far_it_is():
    x, labels = digits([0, 1], 100)
    model = Model(trunk=nn.Sequential(nn.Flatten(), nn.Linear(784, 5)))
    moves = Moves()
    model.learn((x, labels), observer=moves)
    assert max(b - a for a, b in pairwise(moves.check(200))) <= 32
    moves = Moves()
    model.predict(x, observer=moves)
    assert moves.check(200) == [*range(0, 200, 32), 200]
    moves = Moves()
    model.forget_check((x, labels), moves)
    assert moves.check(200) == [*range(0, 200, 32), 200]


@pytest.mark.usefixtures("small")
def test_work_that_is_taken_up_again_begins_where_it_stopped(tmp_path):
    x, labels = blobs("ab", 2500)

    class Stops(Moves):
        def moved(self, done, total):
            super().moved(done, total)
            if done > 0.85 * total:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "m.ucb", (x, labels), observer=Stops(), pause=0)
    moves = Moves()
    learn(tmp_path / "m.ucb", (x, labels), observer=moves, pause=0)
    assert moves.seen[0][0] / len(x) == pytest.approx(4096 / (len(x) + 500), abs=0.01)
    assert moves.seen[-1] == (len(x), len(x))


@pytest.mark.usefixtures("small")
def test_the_bar_is_on_the_terminal_while_answers_go_to_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    unseen = write_pngs(tmp_path / "unseen", *digits([0, 1], 10))
    succeed("learn", tmp_path / "m.ucb", unseen)
    reading, writing = pty.openpty()
    words = ("predict", tmp_path / "m.ucb", unseen, "--format", "json")
    shown = b""
    with open(tmp_path / "answers", "w") as answers, launched(*words, stdout=answers, stderr=writing):
        os.close(writing)
        with suppress(OSError):  # a terminal that nobody writes to any more
            while some := os.read(reading, 4096):
                shown += some
    os.close(reading)
    assert b"predicting" in shown
    assert len(json.loads((tmp_path / "answers").read_text())) == 20
