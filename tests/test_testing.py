"""`ucb.testing`: a class that is no part of the package passes, and for each promise one that breaks it is caught."""

import doctest
import re

import pytest
import torch

from tests.methods.anchor import Anchor
from ucb import testing
from ucb.methods.base import Settings
from ucb.testing import CHECKS, check_method


def test_a_method_of_another_keeps_every_promise():
    before = torch.get_rng_state()
    check_method(Anchor, strength=0.5)
    check_method("tests.methods.anchor:Anchor")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_example_in_its_docstring_runs():
    assert doctest.testmod(testing) == (0, 3)


class Nameless(Anchor):
    name = ""


class OtherSettings(Anchor):
    settings_type = dict


class Speechless(Anchor):
    memory = ""


class WithoutOptimizer(Anchor):
    def __init__(self, net, settings, generator):
        super().__init__(net, settings, generator)
        del self.optimizer


class RemembersWhatIsNotThere(Anchor):
    remembered = ("first",)


class NeverLearns(Anchor):
    def learn(self, x, y):
        return self.loss(x, y).detach()


class LearnsTheFirstTaskOnly(Anchor):
    def learn(self, x, y):
        return super().learn(x, y) if self.current_task.index == 0 else self.loss(x, y).detach()


class AnswersNaN(Anchor):
    def logits(self, x, context, samples, generator):
        return super().logits(x, context, samples, generator) * float("nan")


class AsksForTheTask(Anchor):
    def logits(self, x, context, samples, generator):
        assert context.index >= 0
        return super().logits(x, context, samples, generator)


class ClaimsToNeedNoBoundaries(Anchor):
    needs_boundaries = False
    data = None

    def end_epoch(self, data):
        self.data = data

    def logits(self, x, context, samples, generator):
        if self.task is not None and self.data is None:
            raise ValueError("there was no epoch's end")
        return super().logits(x, context, samples, generator)


class IgnoresTheSeed(Anchor):
    def adjust_gradients(self):
        for parameter in self.shared().values():
            parameter.grad.add_(torch.randn(parameter.shape), alpha=1e-4)


class HasItsOwnSeed(Anchor):
    """Whatever the seed, its weights are the same, and never change."""

    def __init__(self, net, settings, generator):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.fill_(0.1)
        super().__init__(net, settings, generator)

    def learn(self, x, y):
        return torch.tensor(0.5)

    def loss(self, x, y):
        return torch.tensor(0.5)


class WrongShape(Anchor):
    def logits(self, x, context, samples, generator):
        return super().logits(x, context, samples, generator).expand(2, -1, -1)


class ChangingAnswers(Anchor):
    def logits(self, x, context, samples, generator):
        logits = super().logits(x, context, samples, generator)
        return logits + 1e-3 * torch.randn(logits.shape)


class ChangedByQuestions(Anchor):
    remembered = ("asked",)
    asked = 0

    def logits(self, x, context, samples, generator):
        self.asked += 1
        return super().logits(x, context, samples, generator)


class ForgetsToDeclare(Anchor):
    hidden: dict[str, torch.Tensor] = {}  # noqa: RUF012

    def adjust_gradients(self):
        for name, parameter in self.shared().items():
            if name in self.hidden:
                parameter.grad.add_(parameter.detach() - self.hidden[name], alpha=0.1)

    def end_task(self, data):
        self.hidden = {name: parameter.detach().clone() for name, parameter in self.shared().items()}


class KeepsItInTheClass(ForgetsToDeclare):
    """All objects of one process share it, so that only another process would notice."""

    hidden: dict[str, torch.Tensor] = {}  # noqa: RUF012

    def end_task(self, data):
        self.hidden |= {name: parameter.detach().clone() for name, parameter in self.shared().items()}


class ForgetsWithinATask(Anchor):
    """What it counts is gone when a run is cut, and only then."""

    steps = 0

    def begin_task(self, task):
        super().begin_task(task)
        self.steps = 0

    def adjust_gradients(self):
        self.steps += 1
        for parameter in self.shared().values():
            parameter.grad.mul_(1 + 0.1 * self.steps)


class RemembersWhatNoFileHolds(Anchor):
    remembered = ("seen",)
    seen = frozenset()

    def end_task(self, data):
        self.seen = self.seen | {object()}


class ReadsOldData(Anchor):
    old = None

    def begin_task(self, task):
        super().begin_task(task)
        for _ in self.old.train() if self.old is not None else ():
            pass

    def end_task(self, data):
        self.old = data


class ReadsOldDataInSecret(ReadsOldData):
    def begin_task(self, task):
        try:
            super().begin_task(task)
        except AssertionError:
            self.old = None


BROKEN = [
    (Nameless, "check_declaration", "must say its name"),
    (OtherSettings, "check_declaration", "settings_type must be a dataclass"),
    (Speechless, "check_declaration", "memory must say"),
    (WithoutOptimizer, "check_declaration", "must set optimizer"),
    (RemembersWhatIsNotThere, "check_declaration", "remembers 'first', which a new object must have"),
    (NeverLearns, "check_learning", r"accuracy on the first task is \d+ %"),
    (LearnsTheFirstTaskOnly, "check_learning", r"accuracy on tasks just learnt is \d+ %"),
    (AnswersNaN, "check_learning", "every row of probabilities must"),
    (AsksForTheTask, "check_learning", r"the task hidden\).*needs_task = True"),
    (ClaimsToNeedNoBoundaries, "check_learning", r"\(no boundaries\): ValueError: there was no epoch's end"),
    (IgnoresTheSeed, "check_seed", "must come from self.generator"),
    (HasItsOwnSeed, "check_seed", "two seeds led to the same figures"),
    (WrongShape, "check_answers", r"logits must be \[1, 40, 2\], not \[2, 40, 2\]"),
    (ChangingAnswers, "check_answers", "draw from the generator that they are given"),
    (ChangedByQuestions, "check_answers", "leave the state as it is"),
    (ForgetsToDeclare, "check_state", "`remembered` must name"),
    (KeepsItInTheClass, "check_state", "hidden was changed in the class"),
    (ForgetsWithinATask, "check_resuming", "`remembered` must name what changes within a task"),
    (RemembersWhatNoFileHolds, "check_resuming", "a state cannot hold a frozenset"),
    (ReadsOldData, "check_old_data", "data of an old task was read again"),
    (ReadsOldDataInSecret, "check_old_data", "data of an old task was read again"),
]


@pytest.mark.parametrize(("kind", "check", "sentence"), BROKEN, ids=[kind.__name__ for kind, *_ in BROKEN])
def test_a_broken_promise_is_caught(kind, check, sentence):
    with pytest.raises(AssertionError, match=sentence) as caught:
        next(each for each in CHECKS if each.__name__ == check)(kind)
    assert str(caught.value).startswith(f"{kind.__name__} breaks the promise that it ")
    assert "\n" not in str(caught.value)
    with pytest.raises(AssertionError):
        check_method(kind)


def test_every_check_has_something_to_catch():
    assert {check for _, check, _ in BROKEN} == {check.__name__ for check in CHECKS}


def test_a_scenario_that_a_method_needs_not_learn_is_refused_by_the_engine(monkeypatch):
    """Were it not, a method would be judged by what it cannot do."""
    told = type("Told", (AsksForTheTask,), {"needs_task": True, "name": "told"})
    testing.check_learning(told)
    monkeypatch.setattr("ucb.engine.loop.Run.__init__", lambda *_, **__: None)
    with pytest.raises(AssertionError, match=re.escape("Told is not refused, and cannot learn")):
        testing._check_refusal(told, testing.tiny_stream(), "x", {})


def test_settings_are_those_of_the_class():
    assert Anchor.settings_type.grid() == {**Settings.grid(), "strength": (0.01, 0.1)}
    with pytest.raises(AssertionError, match="there is no setting 'strenght': did you mean strength"):
        check_method(Anchor, strenght=1.0)
