"""Failures that must be one sentence, name the file they are about, and end with the right status."""

import hashlib
import json
import random
import resource
import shutil
from contextlib import contextmanager

import pytest
import safetensors.torch

from tests.engine.runs import small_run
from tests.experiments.report.results import result, written
from tests.support import refused
from ucb.cli import terminal, watch
from ucb.cli.command import describe
from ucb.storage import flatten

SMALL = ("run", "mnist-5split", "--method", "ord-ft", "--tasks", 1, "--epochs", 2, "--hidden", 4)
HUGE = 10**400


@contextmanager
def files_of_at_most(size):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_folder_that_is_removed_ends_its_run_with_a_failure(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    class Removing(watch.Lines):
        def epoch_ended(self, epoch):
            shutil.rmtree(folder)
            super().epoch_ended(epoch)

    monkeypatch.setattr(watch, "Lines", Removing)
    said = refused(*SMALL, "--out", folder, code=1)
    assert said == f"error: {folder} was removed while its run went on: what it learnt is lost\n"


def test_a_file_that_has_no_room_is_named(tmp_path):
    folder = tmp_path / "run"
    with files_of_at_most(100):
        assert f"{folder / 'config.json'}: File too large" in refused(*SMALL, "--out", folder, code=1)
    with files_of_at_most(2000):
        said = refused(*SMALL, "--out", tmp_path / "other", code=1, printed=True)
    assert f"error: {tmp_path / 'other'}/checkpoint-" in said
    log = watch.Lines(terminal.console, tmp_path / "log.txt")
    with files_of_at_most(50), pytest.raises(OSError, match=r"log\.txt.*File too large|File too large.*log\.txt"):
        log.keep("a" * 100)


@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_json_that_is_nested_too_deeply_is_named(tmp_path, name):
    deep = "[" * 100_000
    (tmp_path / "config.json").write_text(deep)
    (tmp_path / name).write_text(deep)
    assert str(tmp_path / "config.json") in refused("resume", tmp_path, code=1)
    said = refused("report", tmp_path / name, code=2)
    assert str(tmp_path / name) in said
    assert "defect" not in said


@pytest.mark.parametrize("name", ["acc", "bwt", "seconds", "weights"])
def test_a_whole_number_that_no_float_can_hold_is_no_figure(tmp_path, name):
    path = written(tmp_path / "result.json", result(**{name: HUGE}))
    assert refused("report", path) == f"error: {path} cannot be drawn: {name} must be a number\n"


@pytest.mark.parametrize("words", [("--epochs", HUGE), ("--seed", HUGE), ("--set", f"patience={HUGE}")])
def test_a_whole_number_that_nobody_counts_to_is_refused(tmp_path, words):
    assert "must be at most" in refused(*SMALL, "--out", tmp_path / "run", *words)


def changed(tree, numbers):
    """A state with one leaf or branch of its tree replaced, or gone."""
    tree = json.loads(json.dumps(tree))
    at, places = tree, []
    while isinstance(at, dict | list) and at:
        key = numbers.choice(list(at)) if isinstance(at, dict) else numbers.randrange(len(at))
        places.append((at, key))
        at = at[key]
    at, key = numbers.choice(places)
    if numbers.random() < 0.3:
        del at[key]
    else:
        at[key] = numbers.choice([None, -1, 2**70, 1.5, "x", [], {}, {"tensor": "x"}, {"dict": []}, {"number": "y"}])
    return tree


def test_crafted_checkpoints_get_a_sentence(tmp_path):
    """Their hashes are right: a stranger can write what they like."""
    run = small_run("ucb", epochs=1)
    run.learn_task()
    tree, tensors = flatten(run.state_dict())
    numbers = random.Random(0)
    refusals = 0
    for _ in range(150):
        facts = {"format": "1", "state": json.dumps(changed(tree, numbers))}
        data = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, facts)
        path = tmp_path / f"checkpoint-000001-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
        path.write_bytes(data)
        try:
            small_run("ucb", tmp_path, epochs=1).resume()
        except Exception as error:
            said = describe(error)
            assert "defect" not in said, said
            refusals += 1
        path.unlink()
    assert refusals > 75
