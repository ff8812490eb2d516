import json

import pytest
import torch

from tests.engine.runs import small_run
from ucb import engine
from ucb.engine import InterruptedRunError, Job, Observer
from ucb.engine.result import device_name, result_of, sigma_movement


def job(**options):
    training = {"epochs": 1, "checkpoint_every": 20, "eval_samples": 1, **options.pop("training", {})}
    settings = {"samples": 1, **options.pop("settings", {})}
    return Job(
        "mnist-5split",
        "ucb",
        tasks=2,
        training=training,
        settings=settings,
        **{"net_options": {"hidden": [8]}, **options},
    )


class StopAt(Observer):
    """Stops a run after some batches, as an interrupt does."""

    def __init__(self, batches):
        self.left = batches

    def batch_learnt(self, *_):
        self.left -= 1
        if self.left == 0:
            raise InterruptedRunError("enough")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": {"samples": 2}}, "samples was 1 and is 2"),
        ({"net_options": {"hidden": [9]}}, r"hidden was \[8\] and is \[9\]"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"training": {"epochs": 3}}, "epochs was 1 and is 3"),
    ],
)
def test_a_checkpoint_from_another_configuration_says_what_differs(tmp_path, change, said):
    folder = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        engine.start(job(), folder, StopAt(50))
    config = json.loads((folder / "config.json").read_text())
    for key, value in change.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"another configuration: {said}"):
        engine.resume(folder)


def test_a_checkpoint_from_another_version_is_told(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        engine.start(job(), folder, StopAt(50))
    monkeypatch.setattr("ucb.__version__", "99.0")
    with pytest.raises(ValueError, match=r"version of ucb was .* and is '99.0'"):
        engine.resume(folder)


def test_sigma_is_shaped_by_the_data_under_natural_gradients(tmp_path):
    """Defect D3, on real digits: one epoch a task of three permuted tasks."""
    run = Job(
        "mnist-permuted",
        "ucb-ng",
        tasks=3,
        net_options={"hidden": [100]},
        training={"epochs": 1, "eval_samples": 1},
        settings={"samples": 1},
    ).run()
    run.learn()
    moved = sigma_movement(run.method)
    assert moved["trunk.1.weight"]["std_log_sigma"] >= 0.1


def test_accuracy_after_a_tasks_end_is_told_where_the_one_before_it_counts():
    """Even if ending a task cost nothing: that it did not is a result, too."""
    run = small_run("ucb-p")
    run.learn()
    after = [row[-1] for row in run.progress.rows]
    assert result_of(run, {})["after_task_end"] == after
    run.progress.before_end = list(after)
    assert result_of(run, {})["after_task_end"] == after


@pytest.mark.parametrize(("name", "settings"), [("ord-ft", {}), ("ord-jt", {"final_only": True})])
def test_elsewhere_it_stands_in_the_matrix_already(name, settings):
    run = small_run(name, **settings)
    run.learn()
    assert result_of(run, {})["after_task_end"] is None


@pytest.mark.parametrize(("threads", "said"), [(1, "cpu, 1 thread"), (2, "cpu, 2 threads")])
def test_one_thread_is_not_several(threads, said, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert device_name(torch.device("cpu")) == said
