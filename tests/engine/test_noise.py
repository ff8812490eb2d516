"""Runs that go on where other kernels draw the noise."""

import json
import os
import subprocess
import sys

import pytest

from tests.engine.runs import small_run
from ucb import engine, kernels
from ucb.engine import Job, Observer
from ucb.engine.loop import InterruptedRunError
from ucb.engine.result import keep_kernels, result_of

SENTENCE = "other kernels draw the noise from here on, {}, than up to here, {}: the figures will not be those of a run"


class Listening(Observer):
    def __init__(self):
        self.heard = []

    def noted(self, sentence):
        self.heard.append(sentence)


class StopAt(Observer):
    """Stops a run in its folder after so many batches."""

    def __init__(self, batches):
        self.left = batches

    def batch_learnt(self, *_):
        self.left -= 1
        if self.left == 0:
            raise InterruptedRunError("stopped")


def resumed(folder, **variables):
    """What is said in a process of its own that goes on with a run, and the result."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **variables}
    command = [sys.executable, "-m", "ucb", "resume", str(folder)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return answer.stdout, json.loads((folder / "result.json").read_text())


def cut(folder):
    training = {"epochs": 1, "batch_size": 1000, "checkpoint_every": 2, "eval_samples": 1}
    job = Job("mnist-5split", "ucb", tasks=1, net_options={"hidden": [4]}, training=training, settings={"samples": 1})
    with pytest.raises(InterruptedRunError):
        engine.start(job, folder, StopAt(5))
    return folder


@pytest.mark.skipif(not kernels.status().startswith("compiled"), reason="no C compiler")
def test_a_run_that_goes_on_without_the_compiled_kernels_says_so_and_its_result_names_both(tmp_path):
    folder = cut(tmp_path / "run")
    said, result = resumed(folder, UCB_KERNELS="off")
    sentence = SENTENCE.format("PyTorch (UCB_KERNELS=off)", kernels.status())
    assert said.count(sentence) == 1
    assert sentence in (folder / "log.txt").read_text()
    assert result["versions"]["kernels"] == f"{kernels.status()}, then PyTorch (UCB_KERNELS=off)"


def test_a_run_that_goes_on_with_its_kernels_says_nothing(tmp_path):
    listening = Listening()
    result = engine.resume(cut(tmp_path / "run"), listening)
    assert listening.heard == []
    assert result["versions"]["kernels"] == kernels.status()


def state_of_other_kernels(name):
    run = small_run(name, epochs=1)
    run.learn_task()
    run.progress.kernels = ["woven by hand"]
    return run.state_dict()


def test_a_learner_says_so_once():
    listening = Listening()
    run = small_run("ucb", epochs=1, observer=listening)
    run.load_state_dict(state_of_other_kernels("ucb"))
    assert listening.heard == [], "nothing is drawn yet"
    run.learn()
    (sentence,) = listening.heard
    assert sentence.startswith(SENTENCE.format(kernels.status(), "woven by hand"))
    assert result_of(run, {})["versions"]["kernels"] == f"woven by hand, then {kernels.status()}"


def test_an_ordinary_net_has_no_noise_to_speak_of():
    listening = Listening()
    run = small_run("ord-ft", epochs=1, observer=listening)
    run.load_state_dict(state_of_other_kernels("ord-ft"))
    run.learn()
    assert listening.heard == []


def test_a_checkpoint_that_does_not_know_its_kernels_goes_on():
    listening = Listening()
    run, state = small_run("ucb", epochs=1, observer=listening), state_of_other_kernels("ucb")
    del state["progress"]["kernels"]
    run.load_state_dict(state)
    run.learn()
    assert listening.heard == []


def test_why_there_are_no_better_kernels_changes_nothing(monkeypatch):
    known = ["PyTorch (no C compiler: cc was not found)"]
    monkeypatch.setattr("ucb.engine.result.kernels.status", lambda: "PyTorch (cc could not build the kernels: a\nb)")
    assert keep_kernels(known, small_run("ord-ft").device) is None
    assert len(known) == 1
