"""The command line as a user meets it."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from tests.support import interrupted, launched, refused, ucb
from ucb import engine
from ucb.cli import app as commands
from ucb.cli import main as entry
from ucb.cli import run as running
from ucb.cli import terminal
from ucb.cli.run import describe_resuming
from ucb.cli.watch import Live
from ucb.engine.config import recipe_for
from ucb.engine.result import TaskMetrics

SMALL = ["run", "mnist-5split", "--tasks", "2", "--epochs", "1", "--hidden", "16", "--samples", "1"]
SMALL += ["--set", "eval_samples=1"]
KEYS = {"benchmark", "method", "seed", "tasks", "accuracy_matrix", "acc", "bwt", "bwt_n1", "generalised_acc", "config"}
KEYS |= {"versions", "seconds", "device"}
TIMES = ("seconds", "task_seconds", "peak_memory_bytes", "device")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def figures(folder):
    found = json.loads((folder / "result.json").read_text())
    return {key: value for key, value in found.items() if key not in TIMES}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run, and what it printed into a pipe."""
    folder = tmp_path_factory.mktemp("done") / "a run"
    with launched(*SMALL, "--out", folder) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err == ""
    return folder, out


def test_a_run_ends_with_the_matrix_and_where_the_files_are(done):
    folder, out = done
    assert re.search(r"task 1 epoch 1: loss \d", out)
    assert re.search(r"after task 2: \d+\.\d\d \d+\.\d\d\n", out)
    assert "mnist-5split, ucb, seed 0: accuracy (%) on each task after each\n" in out
    assert re.search(r"^2/3 +\d+\.\d\d +\d+\.\d\d$", out, re.MULTILINE)
    assert re.search(r"^ACC \d+\.\d\d   BWT [+-]\d+\.\d\d ", out, re.MULTILINE)
    assert f"result, log and checkpoint are in {folder}\n" in out


def test_piped_output_is_plain_lines(done):
    assert not CONTROL.search(done[1])
    assert all(line == line.rstrip() for line in done[1].splitlines())


def test_the_result_file_is_complete(done):
    result = json.loads((done[0] / "result.json").read_text())
    assert set(result) >= KEYS
    assert result["tasks"] == ["0/1", "2/3"]
    assert [len(row) for row in result["accuracy_matrix"]] == [1, 2]
    assert result["config"]["net_options"] == {"hidden": [16]}
    assert result["config"]["training"] == {"epochs": 1, "eval_samples": 1}
    assert result["config"]["settings"] == {**recipe_for("mnist-5split", "ucb").settings, "samples": 1}
    assert result["config"] == json.loads((done[0] / "config.json").read_text())
    log = (done[0] / "log.txt").read_text()
    assert "task 2 epoch 1" in log
    assert "after task 2" in log


def test_the_same_job_in_python_gives_the_same_figures(done, tmp_path):
    training = {"epochs": 1, "eval_samples": 1}
    settings = {**recipe_for("mnist-5split", "ucb").settings, "samples": 1}
    job = engine.Job("mnist-5split", "ucb", tasks=2, net_options={"hidden": [16]}, training=training, settings=settings)
    engine.start(job, tmp_path / "run")
    assert figures(tmp_path / "run") == figures(done[0])


def test_several_seeds_each_give_the_result_of_a_run_alone(done, tmp_path):
    answer = ucb(*SMALL, "--seeds", "0,1", "--out", tmp_path / "both")
    assert answer.exit_code == 0, answer.output
    assert figures(tmp_path / "both" / "seed0") == figures(done[0])
    accs = [json.loads((tmp_path / "both" / f"seed{n}" / "result.json").read_text())["acc"] for n in (0, 1)]
    assert f"2 seeds: ACC {sum(accs) / 2:.2f} +- " in answer.stdout
    assert "seed 1: task 1 epoch 1: loss" in answer.stdout
    assert "seed 1: " not in (tmp_path / "both" / "seed1" / "log.txt").read_text()
    assert "holds a run already" in refused(*SMALL, "--seeds", "2,1", "--out", tmp_path / "both")
    assert not (tmp_path / "both" / "seed2").exists()


def test_resuming_a_finished_run_shows_its_result_again(done):
    answer = ucb("resume", done[0])
    assert answer.exit_code == 0, answer.output
    end = "mnist-5split, ucb, seed 0"
    assert answer.stdout[answer.stdout.index(end) :] == done[1][done[1].index(end) :]
    assert "epoch" not in answer.stdout


def test_a_folder_with_a_run_is_not_overwritten(done):
    assert "holds a run already" in refused(*SMALL, "--out", done[0])


INTERRUPTED_AFTER_THE_FIRST_EPOCH = """
import os, signal
from ucb.cli import main, watch
watch.Lines.epoch_ended = lambda *_: os.kill(os.getpid(), signal.SIGINT)
main.main()
"""


def test_ctrl_c_saves_and_resume_gives_the_result_of_a_whole_run(done, tmp_path):
    folder = tmp_path / "run"
    with launched(*SMALL, "--out", folder, program=["-c", INTERRUPTED_AFTER_THE_FIRST_EPOCH]) as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert re.fullmatch(
        rf"interrupted: stopped (?:in|after) task \d.*; the state is saved\ngo on with: ucb resume {folder}\n", err
    )
    assert "stopped " in (folder / "log.txt").read_text()
    answer = ucb("resume", folder)
    assert answer.exit_code == 0, answer.output
    assert figures(folder) == figures(done[0])


def test_ctrl_c_among_several_seeds_names_the_run_to_go_on_with(tmp_path):
    words = ["run", "mnist-5split", "--epochs", "3", "--hidden", "16", "--seeds", "3,4", "--out", tmp_path / "both"]
    err = interrupted(*words, when="seed 3: task 1 epoch 1")
    assert "the state is saved" in err
    both = tmp_path / "both"
    assert err.endswith(f"go on with: ucb resume {both / 'seed3'}\nnot begun: {both / 'seed4'}\n")


def test_ctrl_c_while_the_page_about_seeds_is_written_does_not_deny_their_results(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "leave_report", interrupted)
    answer = ucb(*SMALL, "--seeds", "0,1", "--out", tmp_path)
    assert answer.exit_code == 130
    assert answer.stderr.startswith("interrupted\n")
    assert "nothing was saved" not in answer.stderr


def test_of_several_seeds_the_one_that_fails_is_named_and_the_others_are_shown(tmp_path):
    (tmp_path / "seed1" / "config.json.part").mkdir(parents=True)  # where its configuration would be written
    answer = ucb(*SMALL, "--seeds", "0,1,2", "--out", tmp_path)
    assert answer.exit_code == 1, answer.output
    assert answer.stderr.startswith("error: seed 1: ")
    assert "ucb resume" not in answer.stderr
    assert "2 seeds: ACC" in answer.stdout
    assert [path.parent.name for path in sorted(tmp_path.glob("*/result.json"))] == ["seed0", "seed2"]


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(done, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for path in done[0].iterdir():
        if path.name != "result.json":
            (folder / path.name).write_bytes(path.read_bytes())
    newest = max(folder.glob("checkpoint-*"))
    newest.write_bytes(newest.read_bytes()[:-100])
    answer = ucb("resume", folder)
    assert answer.exit_code == 0, answer.output
    assert f"{newest.name} is damaged" in answer.stdout.replace("\n", "")
    assert figures(folder) == figures(done[0])


def test_an_interrupt_before_the_run_began_promises_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "start", interrupted)
    sentence = refused(*SMALL, "--out", tmp_path / "run", code=130)
    assert sentence == "interrupted before the run began: nothing was saved\n"
    monkeypatch.setattr(commands, "app", lambda **_: interrupted())
    with pytest.raises(SystemExit) as stop:
        entry.main()
    assert stop.value.code == 130


def test_the_folder_in_the_advice_can_be_pasted(done):
    assert describe_resuming(done[0], "ucb") == f"go on with: ucb resume '{done[0]}'"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "mnist-5spilt"], "no benchmark 'mnist-5spilt': did you mean mnist-5split"),
        (["run", "cifar"], "there are mnist-2split, mnist-5split, mnist-permuted"),
        ([*SMALL, "--method", "ucbb"], "no method 'ucbb': did you mean ucb or"),
        ([*SMALL, "--set", "temprature=1"], "ucb has no setting 'temprature': did you mean temperature"),
        ([*SMALL, "--set", "epoch=1"], "ucb has no setting 'epoch': did you mean epochs"),
        ([*SMALL, "--set", "lr"], "--set takes KEY=VALUE, not 'lr'"),
        ([*SMALL, "--set", "=1"], "--set takes KEY=VALUE, not '=1'"),
        ([*SMALL, "--set", "lr=fast"], "lr must be a number, not 'fast'"),
        ([*SMALL, "--set", "lr=-1"], "lr must be a number above 0, not -1.0"),
        ([*SMALL, "--set", "lr=0.00005"], "training ends when the rate falls below least_rate, 0.0001: nothing would"),
        (
            [*SMALL, "--seed", "1", "--seeds", "0,1"],
            "--seed names one seed and --seeds names several: leave one of them out",
        ),
        ([*SMALL, "--set", "batch_size=2.5"], "batch_size must be a whole number, not '2.5'"),
        ([*SMALL, "--set", "cumulative=maybe"], "cumulative must be true or false, not 'maybe'"),
        ([*SMALL, "--set", "estimator=global"], "estimator must be one of weights, local, flipout"),
        ([*SMALL, "--set", "pi=7"], "pi must be between 0 and 1, not 7"),
        ([*SMALL, "--tasks", "0"], "tasks must be at least 1, not 0"),
        ([*SMALL, "--tasks", "99"], "tasks must be between 1 and 5 for mnist-5split, not 99"),
        ([*SMALL, "--epochs", "0"], "epochs must be at least 1, not 0"),
        ([*SMALL, "--samples", "0"], "samples must be at least 1, not 0"),
        ([*SMALL, "--method", "ord-ft"], "ord-ft has no --samples: leave it out"),
        ([*SMALL, "--hidden", "0"], "hidden must be at least 1, not 0"),
        ([*SMALL, "--seed", "-1"], "seed must be at least 0, not -1"),
        ([*SMALL, "--apart"], "are choices for a single head: add --single-head"),
        ([*SMALL, "--task-told"], "are choices for a single head: add --single-head"),
        ([*SMALL, "--single-head", "--apart", "--blur", "0.5", "--epochs", "1"], "share their outputs"),
        ([*SMALL, "--device", "gpu"], "device must be cpu, cuda or cuda:N, not 'gpu'"),
        ([*SMALL, "--device", "meta"], "device must be cpu, cuda or cuda:N, not 'meta'"),
        ([*SMALL, "--device", "cuda:99"], "device cuda:99 is not here"),
    ],
)
def test_bad_input_gets_one_sentence(tmp_path, words, expected):
    sentence = refused(*words, "--out", tmp_path / "run")
    assert expected in sentence
    assert not (tmp_path / "run").exists()


def test_one_head_apart_and_told_the_task(tmp_path):
    words = ["--single-head", "--apart", "--task-told", "--set", "own_classes=true"]
    answer = ucb(*SMALL, *words, "--out", tmp_path / "run")
    assert answer.exit_code == 0, answer.output
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["config"]["apart"], result["config"]["task_told"]) == (True, True)
    assert result["generalised_acc"] is None
    assert "no task named" not in answer.stdout


def test_a_gpu_that_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    sentence = refused(*SMALL, "--device", "cuda", "--out", tmp_path / "run")
    assert "device cuda is not here: PyTorch finds no CUDA GPU on this machine" in sentence


@pytest.mark.parametrize("words", [["run"], ["run", "mnist-5split", "--seed", "x"], ["list", "foo"], ["foo"]])
def test_what_cannot_be_parsed_is_wrong_usage(words):
    answer = ucb(*words)
    assert answer.exit_code == 2
    assert "Error: " in answer.stderr
    assert "Traceback" not in answer.stderr


def test_folders_that_cannot_take_a_run(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    assert "is a file" in refused(*SMALL, "--out", tmp_path / "file")
    assert "holds something else" in refused(*SMALL, "--out", tmp_path / "full")
    assert "cannot be made: Not a directory" in refused(*SMALL, "--out", tmp_path / "file" / "sub")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "notes"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def denied(*_):
        raise PermissionError(13, "Permission denied", str(tmp_path / "lock"))

    monkeypatch.setattr(engine, "start", denied)
    assert refused(*SMALL, "--out", tmp_path, code=1) == f"error: {tmp_path / 'lock'}: Permission denied\n"


@pytest.mark.parametrize(
    ("config", "code", "expected"),
    [
        (None, 2, "holds no run: there is no config.json in it"),
        ("{", 1, "config.json is damaged"),
        ("[1]", 1, "config.json is damaged: it holds no JSON object"),
        ('{"method": "ucb", "colour": 1}', 2, "(0.1.0): colour is unknown, benchmark is missing"),
        ('{"benchmark": "mnist-5split", "method": "ucb", "seed": "x"}', 2, "seed must be a whole number, not 'x'"),
        ('{"benchmark": "mnist-5split", "method": "ucb", "settings": 3}', 2, "settings must be a dict, not 3"),
        ('{"benchmark": "mnist-5split", "method": "ucb", "training": {"epoch": 3}}', 2, "did you mean epochs"),
        ('{"benchmark": "mnist-5split", "method": "ucb", "training": {"epochs": 2.5}}', 2, "whole number, not 2.5"),
    ],
)
def test_a_folder_that_cannot_be_resumed(tmp_path, config, code, expected):
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert expected in refused("resume", tmp_path, code=code)


def test_a_run_that_diverges_fails_with_advice(tmp_path):
    sentence = refused(*SMALL, "--set", "lr=1e6", "--out", tmp_path / "run", code=1)
    assert re.search(r"the loss became .* in task 1, epoch 1, batch \d+: try a smaller rate", sentence)
    assert "the loss became" in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize("words", [["--debug", *SMALL], [*SMALL, "--debug"]])
def test_debug_shows_the_traceback_and_keeps_the_exit_code(words, tmp_path):
    answer = ucb(*words, "--tasks", "99", "--out", tmp_path / "run")
    assert answer.exit_code == 2
    assert "Traceback (most recent call last)" in answer.stderr
    assert "tasks must be between 1 and 5" in answer.stderr.splitlines()[-1]


def test_a_defect_of_ours_is_no_traceback_either(tmp_path, monkeypatch):
    def defect(*_):
        raise KeyError("heads")

    monkeypatch.setattr(engine, "start", defect)
    sentence = refused(*SMALL, "--out", tmp_path / "run", code=1)
    assert "KeyError: 'heads' (this is a defect of ucb; --debug shows where it is)" in sentence


def test_lists_and_help():
    assert ucb().exit_code == 2
    assert re.search(r"^ucb-ng +UCB with sigma", ucb("list", "methods").stdout, re.MULTILINE)
    assert re.search(r"^mnist-permuted +all of MNIST", ucb("list", "benchmarks").stdout, re.MULTILINE)
    for words in ([], ["run"], ["resume"], ["list"]):
        answer = ucb(*words, "--help")
        assert answer.exit_code == 0
        assert "Usage: " in answer.stdout
    assert ucb("--version").stdout.startswith("ucb 0.")


def test_the_shell_completes_names():
    environment = {**os.environ, "_UCB_COMPLETE": "complete_bash", "COMP_WORDS": "ucb run mnist-5", "COMP_CWORD": "2"}
    program = "from ucb.cli.main import main; main()"
    answer = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert answer.stdout.split() == ["mnist-5split"], answer.stderr


def result_with(tasks, accuracy=100.0):
    rows = [[accuracy] * (task + 1) for task in range(tasks)]
    names = [f"permutation {task + 1}" for task in range(tasks)]
    result = {"benchmark": "mnist-permuted", "method": "ucb", "seed": 0, "tasks": names, "accuracy_matrix": rows}
    return {**result, "acc": accuracy, "bwt": -0.001, "bwt_n1": 0.0, "generalised_acc": None, "seconds": 3.0}


@pytest.mark.parametrize("tasks", [1, 2, 5, 10, 11, 40])
@pytest.mark.parametrize("width", [44, 80, 120])
def test_the_matrix_fits_the_terminal(tasks, width, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "console", Console(width=width))
    running.show_result(result_with(tasks), Path("x"))
    out = capsys.readouterr().out
    table = out.split("\n\n")[1].splitlines()
    assert len(table) == tasks + 2
    assert max(map(len, table)) <= width
    assert "…" not in out
    assert "BWT +0.00" in out


def test_ten_tasks_have_the_whole_matrix_in_eighty_columns(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "console", Console(width=80))
    running.show_result(result_with(10, 97.12), Path("x"))
    assert re.search(r"^10( +97\.12){10}$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_live_display_says_where_the_run_is_in_one_line(width, tmp_path):
    with (tmp_path / "screen").open("w+") as screen:
        console = Console(file=screen, force_terminal=True, width=width, color_system=None)
        with Live(console, tmp_path / "log", tasks=2, epochs=2) as live:
            live.task_began(0, "0/1")
            live.batch_learnt(0, 0, 1, 2)
            live.epoch_ended(engine.Epoch(0, 0, 0.125, 0.5, 0.05, 1.0))
            live.task_ended(0, [TaskMetrics(98.5, 98.5, 0.0, 0.0, 0.0)])
            live.task_began(1, "2/3")
            live.batch_learnt(1, 0, 1, 2)
            live.epoch_ended(engine.Epoch(1, 0, 0.25, 0.5, 0.05, 1.0))
            time.sleep(0.01)
            live.progress.refresh()
        screen.seek(0)
        shown = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in re.split(r"[\r\n]", screen.read())]
    assert any("after task 1: 98.50" in line for line in shown)
    last = [line for line in shown if "task 2/2 epoch 1/2" in line][-1]
    assert "loss 0.250" in last
    assert ("accuracy 98.50" in last) or width < 60
    assert max(map(len, shown)) <= width
