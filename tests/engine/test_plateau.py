import itertools

import pytest

from tests.engine.runs import small_run
from ucb.engine import Observer, loop
from ucb.engine.training import Plateau, Schedule


def test_the_rate_drops_after_patience_and_training_ends_below_the_least_rate():
    plateau = Plateau(Schedule(epochs=100, patience=2, factor=0.3, least_rate=0.05), rate=1.0)
    losses = [3, 2, 2.5, 2.5, 1.9, 2, 2, 2, 2, 2, 2]
    rates = []
    for loss in losses:
        if plateau.is_over:
            break
        plateau.observe(loss)
        rates.append(plateau.rate)
    assert rates == pytest.approx([1, 1, 1, 0.3, 0.3, 0.3, 0.09, 0.09, 0.027])
    assert plateau.best == 1.9


def test_only_a_better_loss_is_the_best():
    plateau = Plateau(Schedule(), 1.0)
    assert [plateau.observe(loss) for loss in (2, 2, 1, float("nan"), 0.5)] == [True, False, True, False, True]


def test_epochs_are_capped():
    plateau = Plateau(Schedule(epochs=3), 1.0)
    for loss in (3, 2, 1):
        assert not plateau.is_over
        plateau.observe(loss)
    assert plateau.is_over


@pytest.mark.parametrize("options", [{"epochs": 0}, {"patience": 0}, {"factor": 1.0}, {"least_rate": 0}])
def test_bad_schedules_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Schedule(**options)


def test_a_rate_at_which_nothing_would_be_learnt_is_refused():
    Schedule(least_rate=0.01).refuse_rate(0.01)
    with pytest.raises(ValueError, match=r"lr is 0.009, and training ends .* below least_rate, 0.01: nothing"):
        Schedule(least_rate=0.01).refuse_rate(0.009)
    with pytest.raises(ValueError, match="nothing would be learnt"):
        small_run("ord-ft", lr=5e-5)


def test_an_epochs_seconds_are_those_of_all_its_batches_whatever_was_saved_inside(monkeypatch, tmp_path):
    ticks = itertools.count()
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(ticks)))

    heard = []

    class Hearing(Observer):
        def epoch_ended(self, epoch):
            heard.append(epoch.seconds)

    learner = small_run("ord-ft", tmp_path, observer=Hearing(), epochs=3, checkpoint_every=1)
    learner.learn_task()
    batches = learner.progress.steps / 3
    assert batches >= 3
    assert all(seconds >= batches for seconds in heard), "every checkpoint looks at the clock"
    assert sum(heard) <= learner.progress.seconds
