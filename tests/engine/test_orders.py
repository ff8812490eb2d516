"""Several jobs at once: new ones and those that were cut, and each one's own failure."""

import dataclasses
import json

import pytest

from tests.engine.runs import small_job
from ucb import engine
from ucb.engine import InterruptedRunError, Observer, Order, orders

SMALL = small_job(epochs=2)


class Cut(Observer):
    """Breaks a run off in its second epoch."""

    def batch_learnt(self, _task, epoch, batch, _batches):
        if epoch == 1 and batch == 30:
            raise InterruptedRunError("enough")


@pytest.fixture
def groups(monkeypatch):
    """As on a GPU, runs learn at the same time; how many did is noted."""
    sizes, really = [], orders.each_side_by_side
    monkeypatch.setattr(orders, "obstacle_beside_others", lambda run: None)
    monkeypatch.setattr(orders, "each_side_by_side", lambda runs, work: sizes.append(len(runs)) or really(runs, work))
    return sizes


def of_seeds(folder, seeds, observer=None):
    return [Order(dataclasses.replace(SMALL, seed=seed), folder / str(seed), observer) for seed in seeds]


def figures(found):
    return found["seed"], found["accuracy_matrix"], found["nll"], found["epochs"]


def test_what_was_cut_goes_on_side_by_side_with_what_is_new(tmp_path, groups):
    whole = [figures(found) for found in engine.start_all(of_seeds(tmp_path / "whole", range(3)))]
    with pytest.raises(InterruptedRunError):
        engine.start_all(of_seeds(tmp_path, [0, 1], Cut()))
    groups.clear()
    begun = list[int]()

    class Seen(Observer):
        def epoch_ended(self, epoch):
            begun.append(epoch.epoch)

    found = engine.go_on_with_all(of_seeds(tmp_path, range(3), Seen()))
    assert groups == [3]
    assert sorted(begun) == [0, 1, 1, 1], "the first epoch of two of them had been learnt"
    assert [figures(each) for each in found] == whole


def test_each_failure_is_its_own(tmp_path, groups):
    """A damaged folder, a wrong setting, a rate that leads nowhere, a folder in use; the last is carried out."""
    ordered = of_seeds(tmp_path, range(5))
    ordered[0].folder.mkdir()
    (ordered[0].folder / "config.json").write_text("{")
    changes = [{}, {"settings": {"lrr": 1.0}}, {"settings": {"lr": 1e9}}, {}, {}]
    ordered = [
        order._replace(job=dataclasses.replace(order.job, **change))
        for order, change in zip(ordered, changes, strict=True)
    ]
    with orders._in_folder(ordered[3]):
        *failures, found = engine.go_on_with_all(ordered)
    said = ["config.json", "no setting 'lrr'", "the loss became", "another process is running"]
    for failure, words in zip(failures, said, strict=True):
        assert words in str(failure)
    assert groups == [2], "those that can begin"
    assert found["seed"] == 4


def test_what_is_done_is_not_run_again(tmp_path, groups):
    (found,) = engine.start_all(of_seeds(tmp_path, [0]))
    again = engine.go_on_with_all(of_seeds(tmp_path, [0, 1]))
    assert groups == [1, 1]
    assert again[0] == found == json.loads((tmp_path / "0" / "result.json").read_text())


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "letters.txt").write_text("dear")
    (failure,) = engine.go_on_with_all(of_seeds(tmp_path, [0]))
    assert "holds something else" in str(failure)
    assert [path.name for path in (tmp_path / "0").iterdir()] == ["letters.txt"]
