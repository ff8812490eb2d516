"""``ucb tune`` as a user meets it."""

import json
import time
from pathlib import Path

import pytest

from tests.support import interrupted, launched, refused, ucb
from ucb.experiments.tuning import trials as tuning


def test_tuning_takes_the_scenarios_of_a_run(tmp_path, monkeypatch):
    searched = []

    def no_search(record, *_):
        searched.append(record.search)
        raise ValueError("that is enough")

    monkeypatch.setattr(tuning, "search_grid", no_search)
    words = ["tune", "mnist-permuted", "--method", "ucb", "--results", tmp_path]
    refused(*words, "--single-head", "--apart", "--task-told", code=2, printed=True)
    refused(*words, "--single-head", code=2, printed=True)
    assert [(each.single_head, each.apart, each.task_told) for each in searched] == [(True,) * 3, (True, False, False)]


TUNE = ["tune", "mnist-5split", "--method", "ord-ft", "--hidden", "4", "--epochs", "1"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([*TUNE, "--jobs", "0"], "--jobs must be at least 1, not 0"),
        ([*TUNE, "--trials", "0"], "--trials must be at least 1, not 0"),
        ([*TUNE, "--epochs", "0"], "--epochs must be at least 1, not 0"),
        ([*TUNE, "--recipe-epochs", "0"], "--recipe-epochs must be at least 1, not 0"),
        ([*TUNE, "--recipe-epochs", "-4"], "--recipe-epochs must be at least 1, not -4"),
        ([*TUNE, "--grid", "lr"], "--grid takes KEY=V1,V2, not 'lr'"),
        ([*TUNE, "--grid", "lr="], "--grid takes KEY=V1,V2, not 'lr='"),
        ([*TUNE, "--grid", "=1"], "--grid takes KEY=V1,V2, not '=1'"),
        ([*TUNE, "--grid", "lr=1", "--grid", "lr=2"], "--grid has lr twice"),
        ([*TUNE, "--grid", "lr=0.03,-1"], "--grid: lr must be a number above 0, not -1.0"),
        ([*TUNE, "--grid", "lr=0.03,0.00003"], "--grid: lr is 3e-05, and training ends when the rate falls below"),
        (
            ["tune", "mnist-5split", "--method", "ucb", "--grid", "pi=0.5,1"],
            "--grid: pi must be between 0 and 1, not 1",
        ),
        ([*TUNE, "--blur", "0.5"], "tasks that fade into each other pass by once: leave out --epochs"),
        ([*TUNE, "--grid", "rate=1"], "ord-ft has no setting 'rate'"),
        ([*TUNE, "--name", "../../x"], "--name takes the plain name of a folder, without / and \\, not '../../x'"),
        ([*TUNE, "--trials", "2", "--jobs", "2"], "--jobs beside --trials needs a GPU"),
        (["tune", "../../x"], "there is no benchmark '../../x'"),
    ],
)
def test_bad_input_to_a_search_gets_one_sentence_before_the_first_trial(tmp_path, words, expected):
    assert expected in refused(*words, "--results", tmp_path / "in" / "it", "--out", tmp_path / "in" / "it")
    assert list(tmp_path.iterdir()) == []


def test_a_search_that_differs_from_the_one_before_is_refused_and_nothing_is_lost(tmp_path):
    words = [*TUNE, "--grid", "lr=0.1", "--results", tmp_path, "--out", tmp_path]
    assert ucb(*words).exit_code == 0
    record = tmp_path / "tuning" / "mnist-5split" / "ord-ft.json"
    before = record.read_bytes()
    sentence = refused(*words, "--hidden", "8", "--epochs", "2")
    assert f"{record} holds 1 trials of another search (epochs was 1 and is 2; net_options was " in sentence
    assert "choose another --name or --results, or remove the file" in sentence
    other = ["tune", "mnist-2split", *words[2:], "--name", "mnist-5split"]
    assert "(benchmark was mnist-5split and is mnist-2split)" in refused(*other)
    assert record.read_bytes() == before
    record.write_bytes(before[:-20])
    assert f"{record} is damaged" in refused(*words, code=1)


def test_a_control_that_was_searched_is_left_and_that_is_said(tmp_path, monkeypatch):
    def quick(record, points, *_):
        record.add({"settings": points[0], "score": 0.5, "error": 0.1, "learnt": [0.5], "risen": 0.0, "acc": 90.0})

    monkeypatch.setattr(tuning, "search_grid", quick)
    control = tmp_path / "mnist-5split" / "uniform-lr.json"
    first = ucb("tune", "mnist-5split", "--results", tmp_path / "1", "--out", tmp_path)
    assert f"the recipe is {control}\n" in first.stdout
    ucb("tune", "mnist-5split", "--method", "uniform-lr", "--results", tmp_path / "1", "--out", tmp_path)
    before = control.read_bytes()
    assert b"chosen of 1 on held-out data" in before
    last = ucb("tune", "mnist-5split", "--results", tmp_path / "2", "--out", tmp_path)
    assert last.exit_code == 0, last.output
    assert f"{control} is left as it is" in last.stdout
    assert f"the recipe is {control}" not in last.stdout
    assert control.read_bytes() == before


@pytest.mark.parametrize("how", [[], ["--trials", "6"], ["--jobs", "2"]], ids=["grid", "optuna", "processes"])
def test_ctrl_c_in_a_search_says_what_is_kept_and_the_same_command_goes_on(tmp_path, how):
    if "--trials" in how:
        pytest.importorskip("optuna")
    rates = [0.01, 0.02, 0.03, 0.05, 0.1, 0.2]
    words = [*TUNE, "--grid", f"lr={','.join(map(str, rates))}", *how, "--results", tmp_path, "--out", tmp_path]
    err = interrupted(*words, when="score")
    record = tmp_path / "tuning" / "mnist-5split" / "ord-ft.json"
    kept = len(json.loads(record.read_text())["trials"])
    assert 1 <= kept < 6
    trials = "1 trial is" if kept == 1 else f"{kept} trials are"
    assert err == f"interrupted: {trials} kept in {record}; the same command goes on from here\n"
    answer = ucb(*words)
    assert answer.exit_code == 0, answer.output
    assert f"6 points, {kept} tried before\n" in answer.stdout
    assert len(json.loads(record.read_text())["trials"]) == 6


def children_of(process):
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="asks Linux for a process's children")
def test_a_search_that_is_killed_leaves_no_processes_behind(tmp_path):
    """They load PyTorch, learn for nobody, and would then wait for ever."""
    words = ["--epochs", 50, "--jobs", 2, "--grid", "lr=0.01,0.03", "--results", tmp_path, "--out", tmp_path]
    with launched(*TUNE[:-2], *words) as process:
        until = time.monotonic() + 60
        while len(children_of(process.pid)) < 3 and time.monotonic() < until:  # two, and one that keeps count of them
            time.sleep(0.1)
        left = children_of(process.pid)
        assert len(left) == 3
        time.sleep(8)  # they have begun
        process.kill()
        until = time.monotonic() + 30
        while any(Path(f"/proc/{each}").exists() for each in left) and time.monotonic() < until:
            time.sleep(0.1)
        assert [each for each in left if Path(f"/proc/{each}").exists()] == []
