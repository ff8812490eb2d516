"""Trials of earlier are taken where they learnt as these do; others are refused by name, and never erased."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from ucb.experiments.tuning.records import TrialRecord
from ucb.experiments.tuning.search import Search
from ucb.storage import rename_old_keys

RESULTS = Path(__file__).resolve().parents[3] / "results"
SEARCH = Search("mnist-permuted", "ord-ft", 2, single_head=True, net_options={"hidden": [8]})
FIGURES = {"error": 0.1, "learnt": [0.5], "risen": 0.0, "acc": 90.0, "bwt": 0.0, "seconds": 1.0}
TRIAL = {"settings": {"lr": 0.1}, "score": 0.5, **FIGURES}
FAILED = {"settings": {"lr": 9.0}, "score": None, "failed": "it diverged"}
ROUNDED = {"settings": {"lr": 0.3}, "score": 0.5, "learnt": [0.5], "risen": 0.0, "rounded": True}


@pytest.fixture
def record(tmp_path):
    """A file with one trial."""
    record = TrialRecord(SEARCH, tmp_path)
    record.add(TRIAL)
    return record


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"epochs": 3}, "epochs was 2 and is 3"),
        ({"blur": 0.5, "name": "mnist-permuted"}, "blur was null and is 0.5"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"single_head": False}, "single_head was true and is false"),
        ({"net": "patches"}, "net was null and is patches"),
        ({"net_options": {"hidden": [9]}}, 'net_options was {"hidden": [8]} and is {"hidden": [9]}'),
        ({"apart": True}, "apart was false and is true"),
        ({"task_told": True}, "task_told was false and is true"),
        ({"benchmark": "mnist-5split", "name": "mnist-permuted"}, "benchmark was mnist-permuted and is mnist-5split"),
    ],
)
def test_trials_of_another_search_are_refused_and_stay(record, tmp_path, changed, said):
    before = record.path.read_bytes()
    with pytest.raises(ValueError, match="holds 1 trials of another search") as refusal:
        TrialRecord(dataclasses.replace(SEARCH, **changed), tmp_path)
    assert f"{record.path} holds 1 trials of another search ({said}): " in str(refusal.value)
    assert str(refusal.value).endswith("choose another --name or --results, or remove the file")
    assert record.path.read_bytes() == before


def test_every_choice_of_a_search_but_device_and_names_is_compared():
    named = {field.name for field in dataclasses.fields(Search)}
    assert set(SEARCH.identity) == named - {"device", "name"}


def test_all_tasks_and_two_are_told_apart_under_one_name(tmp_path):
    TrialRecord(dataclasses.replace(SEARCH, name="mine", all_tasks=True), tmp_path).add(TRIAL)
    with pytest.raises(ValueError, match="all_tasks was true and is false"):
        TrialRecord(dataclasses.replace(SEARCH, name="mine-all-tasks"), tmp_path)


@pytest.mark.parametrize("same", [{"device": "cuda"}, {"name": "mnist-permuted"}, {"net_options": {"hidden": (8,)}}])
def test_the_device_does_not_matter(record, tmp_path, same):
    assert TrialRecord(dataclasses.replace(SEARCH, **same), tmp_path).trials == [TRIAL]


def test_trials_from_before_a_choice_was_known_are_recognised(tmp_path):
    """Early files have the benchmark as their name, and no choice that was not there yet."""
    path = tmp_path / "tuning" / "mnist-5split" / "ord-ft.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"name": "mnist-5split", "epochs": 6, "method": "ord-ft", "trials": [TRIAL]}))
    assert TrialRecord(Search("mnist-5split", "ord-ft"), tmp_path).trials == [TRIAL]
    for changed in ({"net_options": {"hidden": [8]}}, {"single_head": True}, {"seed": 1}):
        with pytest.raises(ValueError, match="of another search"):
            TrialRecord(Search("mnist-5split", "ord-ft", **changed), tmp_path)
    with pytest.raises(ValueError, match="benchmark was mnist-5split and is mnist-2split"):
        TrialRecord(Search("mnist-2split", "ord-ft", name="mnist-5split"), tmp_path)


def test_what_passes_by_once_has_no_epochs_to_differ_in(tmp_path):
    blurred = dataclasses.replace(SEARCH, blur=0.5)
    TrialRecord(blurred, tmp_path).add(TRIAL)
    assert TrialRecord(dataclasses.replace(blurred, epochs=1), tmp_path).trials == [TRIAL]


@pytest.mark.parametrize(
    "path", sorted((RESULTS / "tuning").glob("*/*.json")), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_every_record_of_ours_can_be_gone_on_with(path):
    kept = json.loads(path.read_text())
    all_tasks = path.parent.name.endswith("-all-tasks")
    known = {field.name for field in dataclasses.fields(Search)}
    values = {"benchmark": kept.get("name"), "all_tasks": all_tasks} | {n: v for n, v in kept.items() if n in known}
    values["name"] = path.parent.name.removesuffix("-all-tasks")
    record = TrialRecord(Search(**values), RESULTS)
    assert record.path == path
    assert record.trials == [trial | {"settings": rename_old_keys(trial["settings"])} for trial in kept["trials"]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"trials": [{"settings"', "Expecting ':' delimiter"),
        ("", "Expecting value"),
        ("[1]", "it holds no JSON object"),
        ('{"name": "mnist-permuted"}', "it holds no list of trials"),
        ('{"trials": [3]}', "it holds no list of trials"),
    ],
)
def test_a_damaged_file_is_named(record, tmp_path, text, why):
    record.path.write_text(text)
    with pytest.raises(OSError, match=re.escape(f"{record.path} is damaged: {why}")):
        TrialRecord(SEARCH, tmp_path)
    assert record.path.read_text() == text


@pytest.mark.parametrize("whole", [TRIAL, FAILED, ROUNDED], ids=["scored", "failed", "rounded"])
def test_a_trial_that_lacks_what_a_choice_needs_is_named(record, tmp_path, whole):
    kept = json.loads(record.path.read_text())
    record.path.write_text(json.dumps(kept | {"trials": [TRIAL, whole]}))
    assert TrialRecord(SEARCH, tmp_path).trials == [TRIAL, whole]
    for name in whole.keys() - {"settings", "learnt", "rounded"}:
        torn = {key: value for key, value in whole.items() if key != name}
        record.path.write_text(json.dumps(kept | {"trials": [TRIAL, torn]}))
        said = f"{record.path} is damaged: trial 2 has no {name}; mend or remove it, or choose another --results"
        with pytest.raises(OSError, match=f"^{re.escape(said)}$"):
            TrialRecord(SEARCH, tmp_path)


def test_settings_of_which_only_rounded_figures_are_known_are_not_chosen_unseen(record, tmp_path):
    record.add(ROUNDED)
    again = TrialRecord(SEARCH, tmp_path)
    both = [TRIAL["settings"], ROUNDED["settings"]]
    assert again.recipe({}, both, 1)["settings"] == TRIAL["settings"], "the other is no better"
    said = f'{record.path} has only rounded figures of {{"lr": 0.3}}, and no error: remove this trial'
    with pytest.raises(OSError, match=re.escape(said)):
        again.recipe({}, both[1:], 1)


@pytest.mark.parametrize("name", ["../../x", "..", ".", "", "/tmp/x", "a/b", "a\\b"])
def test_a_name_never_leaves_its_folder(name):
    with pytest.raises(
        ValueError, match=re.escape(f"--name takes the plain name of a folder, without / and \\, not {name!r}")
    ):
        Search("mnist-5split", "ord-ft", name=name)
