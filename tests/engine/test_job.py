import json

import pytest

from ucb import engine
from ucb.engine import InterruptedRunError, Job, Observer


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
    from ucb.engine.report import sigma_movement

    moved = sigma_movement(run.method)
    assert moved["trunk.1.weight"]["std_log_sigma"] >= 0.1
