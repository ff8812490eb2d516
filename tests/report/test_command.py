"""The command in a report gives the job that it reports."""

import dataclasses
import shlex

import pytest
from typer.testing import CliRunner

from ucb.cli import app as commands
from ucb.engine import Job
from ucb.report.command import command_of

JOBS = [
    Job("mnist-5split", "ucb", 3, net_options={"hidden": [30, 20]}, training={"epochs": 2}, settings={"lr": 0.1}),
    Job("mnist-5split", "ord-jt", tasks=2, training={"graphs": False}, settings={"final_only": True}),
    Job("mnist-permuted", "ucb-ng", blur=0.5, settings={"temperature": 5e-05}),
    Job("cifar-alternating", "ord-ft", single_head=True, net="resnet18", device="cuda:1"),
    Job("mnist-permuted", "ucb", single_head=True, apart=True),
    Job("mnist-permuted", "bbb-ft", single_head=True, apart=True, task_told=True, settings={"own_classes": True}),
    Job("folders", "ucb", data=["/a folder/of mine", "/b"], training={"precision": "bf16"}),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.benchmark}-{job.method}")
@pytest.mark.parametrize("between", [" ", " \\\n    "])
def test_the_command_repeats_the_job(job, between, monkeypatch):
    ordered = []

    def start(job, folder, observer):
        ordered.append(job)
        raise ValueError("that is enough")

    monkeypatch.setattr(commands.engine, "start", start)
    program, *words = shlex.split(command_of(dataclasses.asdict(job), between).replace("\\\n", ""))
    CliRunner().invoke(commands.app, words)
    assert program == "ucb"
    (found,) = ordered
    # Where a recipe is known it adds what the job left open, which a finished run's configuration never does.
    for part in ("training", "settings"):
        assert getattr(job, part).items() <= getattr(found, part).items()
    assert dataclasses.replace(found, training=job.training, settings=job.settings) == job
