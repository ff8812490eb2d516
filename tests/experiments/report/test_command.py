"""The command in a report gives the job that it reports."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ucb import engine
from ucb.cli import app as commands
from ucb.engine import Job
from ucb.experiments.report.page import command_of
from ucb.storage import rename_old_keys

JOBS = [
    Job("mnist-5split", "ucb", 3, net_options={"hidden": [30, 20]}, training={"epochs": 2}, settings={"lr": 0.1}),
    Job("mnist-5split", "ord-jt", tasks=2, training={"graphs": False}, settings={"final_only": True}),
    Job("mnist-permuted", "ucb-ng", blur=0.5, settings={"temperature": 5e-05}),
    Job("cifar-alternating", "ord-ft", single_head=True, net="resnet18", device="cuda:1"),
    Job("mnist-permuted", "ucb", single_head=True, apart=True),
    Job("mnist-permuted", "bbb-ft", single_head=True, apart=True, task_told=True, settings={"own_classes": True}),
    Job("folders", "ucb", data=["/a folder/of mine", "/b"], training={"precision": "bf16"}),
]


RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture
def ordered(monkeypatch):
    """The jobs that commands order; none is done."""
    jobs = []

    def start(job, folder, observer):
        jobs.append(job)
        raise ValueError("that is enough")

    monkeypatch.setattr(engine, "start", start)
    return jobs


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.benchmark}-{job.method}")
@pytest.mark.parametrize("between", [" ", " \\\n    "])
def test_the_command_repeats_the_job(job, between, ordered):
    program, *words = shlex.split(command_of(dataclasses.asdict(job), between).replace("\\\n", ""))
    CliRunner().invoke(commands.app, words)
    assert program == "ucb"
    (found,) = ordered
    # Where a recipe is known it adds what the job left open, which a finished run's configuration never does.
    for part in ("training", "settings"):
        assert getattr(job, part).items() <= getattr(found, part).items()
    assert dataclasses.replace(found, training=job.training, settings=job.settings) == job


def test_whole_numbers_that_were_written_as_floats_are_taken(ordered):
    config = dataclasses.asdict(Job("mnist-5split", "ucb", tasks=2))
    config |= {"tasks": 2.0, "settings": {"samples": 2.0, "lr": 1.0, "gain": 1e-05}, "net_options": {"hidden": [8.0]}}
    _, *words = shlex.split(command_of(config))
    CliRunner().invoke(commands.app, words)
    (found,) = ordered
    assert (found.tasks, found.net_options) == (2, {"hidden": [8]})
    assert found.settings["samples"] == 2
    assert isinstance(found.settings["samples"], int)
    assert (found.settings["lr"], found.settings["gain"]) == (1.0, 1e-05)


def test_the_command_of_every_kept_result_gives_its_job(ordered):
    """One seed of each configuration is enough: a seed is a number like another."""
    configs = {}
    for path in sorted(RESULTS.rglob("*.json")):
        found = json.loads(path.read_text())
        if isinstance(found, dict) and "accuracy_matrix" in found:
            config = rename_old_keys(found["config"])
            configs[json.dumps(config | {"seed": 0, "device": "cpu"}, sort_keys=True)] = (path, config)
    assert len(configs) > 100
    for path, config in configs.values():
        _, *words = shlex.split(command_of(config))
        answer = CliRunner().invoke(commands.app, words)
        assert ordered, f"{path}: {answer.output}"
        job = dataclasses.asdict(ordered.pop())
        for name, value in config.items():
            if isinstance(value, dict):  # a recipe of later adds what was left open
                assert value.items() <= job[name].items(), path
            else:
                assert job[name] == value, path
