"""``ucb reproduce`` and ``ucb table`` as a user meets them."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.cli.asking import launched, refused, ucb
from tests.experiments.reproduce.made_up import keep, row, tiny
from ucb.cli import reproduce as command
from ucb.engine import InterruptedRunError, Observer
from ucb.engine.config import Recipe
from ucb.experiments.reproduce import definitions
from ucb.experiments.reproduce import running as reproduce
from ucb.experiments.reproduce.running import side_by_side


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def made_up(monkeypatch):
    """The tiny table, with a row that diverges and one that cannot be run, in place of the real ones."""
    table = tiny(
        row("ord-ft", "ORD-FT"),
        row("ord-ft", variant="wild", lr=1e6),
        {"method": None, "variant": "strange", "obstacle": "nobody knows how"},
    )
    monkeypatch.setattr(definitions, "tables", lambda: {"tiny": table})
    return table


def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path):
    answer = ucb("reproduce", "5split-mnist", "--dry-run")
    assert answer.exit_code == 0, answer.output
    runs = 3 * sum(row.method is not None for row in definitions.table_named("5split-mnist").rows)
    assert f"{runs} runs: {runs} missing\n" in answer.stdout
    assert re.search(r"^ucb +missing: seed 1, 2, 3 \(hidden \[1200\], epochs ", answer.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_a_plan_may_be_of_another_machine_but_not_of_a_device_that_there_is_not():
    assert ucb("reproduce", "5split-mnist", "--dry-run", "--device", "cuda").exit_code == 0
    said = refused("reproduce", "5split-mnist", "--dry-run", "--device", "foo")
    assert said == "error: device must be cpu, cuda or cuda:N, not 'foo'\n"


def test_what_is_missing_is_run_and_what_fails_is_said_at_the_end(made_up, tmp_path):
    answer = ucb("reproduce", "tiny", "--seeds", 0)
    assert answer.exit_code == 1, answer.output
    assert "strange cannot be run: nobody knows how\n" in answer.stdout
    assert answer.stdout.index("2 runs: 2 missing") < answer.stdout.index("ord-ft seed 0: after task 1: ")
    assert re.search(r"^\[1/2\] ord-ft seed 0: ACC \d+\.\d\d   BWT [+-]\d+\.\d\d   \d+ s$", answer.stdout, re.MULTILINE)
    assert re.fullmatch(r"error: ord-ft-wild seed 0: the loss became .*\n", answer.stderr)
    assert (tmp_path / "results" / "tables" / "tiny" / "ord-ft-seed0.json").is_file()
    assert "task 1 epoch 1" in (tmp_path / "runs" / "tables" / "tiny" / "ord-ft-seed0" / "log.txt").read_text()
    shown = ucb("table", "tiny").stdout
    acc = json.loads((tmp_path / "results" / "tables" / "tiny" / "ord-ft-seed0.json").read_text())["acc"]
    assert re.search(rf"^ORD-FT +ord-ft +1 +{acc:.2f} ", shown, re.MULTILINE)
    assert re.search(r"^- +ord-ft-wild +0 .*not measured$", shown, re.MULTILINE)
    again = ucb("reproduce", "tiny", "--seeds", 0, "--methods", "ord-ft", "--dry-run")
    assert "2 runs: 1 measured, 1 cut\n" in again.stdout
    (call,) = (tmp_path / "results" / "calls" / "tiny").iterdir()
    said = json.loads(call.read_text())
    assert (said["asked"], list(said["ended"])) == (["ord-ft seed 0", "ord-ft-wild seed 0"], ["ord-ft seed 0"])
    assert said["failed"]["ord-ft-wild seed 0"].startswith("the loss became ")
    assert said["is_whole"]
    assert said["device"].startswith("cpu, ")
    assert said["seconds"] >= said["ended"]["ord-ft seed 0"] > 0


def test_an_interruption_says_how_to_go_on(made_up, monkeypatch):
    def interrupted(*_):
        yield from ()
        raise InterruptedRunError("stopped")

    monkeypatch.setattr(reproduce, "carry_out", interrupted)
    answer = ucb("reproduce", "tiny")
    assert answer.exit_code == 130
    assert answer.stderr == "interrupted: 0 of 6 runs are done; the same command goes on from here\n"
    (call,) = Path("results/calls/tiny").iterdir()
    assert not json.loads(call.read_text())["is_whole"]


def test_ctrl_c_while_processes_still_load_is_one_line():
    words = ("reproduce", "5split-mnist", "--methods", "ord-ft", "--seeds", "0,1", "--jobs", 2)
    with launched(*words, start_new_session=True) as process:
        for line in process.stdout:
            if line.startswith("ord-ft "):  # the plan's last line
                break
        time.sleep(0.5)  # loading PyTorch takes longer
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
        _, said = process.communicate(timeout=120)
    assert said == "interrupted: 0 of 2 runs are done; the same command goes on from here\n"
    assert process.returncode == 130


def test_runs_that_ended_beside_one_that_was_stopped_are_counted(made_up, monkeypatch):
    def gpu(planned, watching, _jobs):
        return iter(side_by_side([each for each in planned if each.to_do], watching))

    class Stopped(Observer):
        def epoch_ended(self, _epoch):
            raise InterruptedRunError("stopped")

    monkeypatch.setattr(reproduce, "carry_out", gpu)
    monkeypatch.setattr(command, "watch_planned", lambda each: Stopped() if each.job.seed == 1 else Observer())
    answer = ucb("reproduce", "tiny", "--methods", "ord-ft", "--seeds", "0,1")
    assert answer.exit_code == 130
    assert "interrupted: 1 of 4 runs are done" in answer.stderr


def begun_otherwise(results, folder):
    """A kept result and a run's folder, both with another rate than now."""
    path = keep(results, "tiny", "ord-ft", 0, 90.0, settings={"lr": 7.0})
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(json.loads(path.read_text())["config"]))
    return path


RATE = r"lr was 7\.0 and is [\d.]+"


def test_all_that_must_be_removed_is_named_at_once_and_nothing_run_is_no_success(made_up, tmp_path):
    kept, folder = Path("results/tables/tiny/ord-ft-seed0.json"), Path("runs/tables/tiny/ord-ft-seed0")
    begun_otherwise(Path("results"), folder)
    asked = ("reproduce", "tiny", "--methods", "ord-ft", "--seeds", 0)
    (folder.parent / "ord-ft-wild-seed0").mkdir()
    keep(Path("results"), "tiny", "ord-ft-wild", 0, 90.0)
    dry = ucb(*asked, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "2 runs: 1 other settings, 1 measured\n" in dry.stdout
    said = rf"^ord-ft seed 0 was run with other settings \({RATE}\): to run it anew, remove {kept} and {folder}$"
    assert re.search(said, dry.stdout, re.MULTILINE)
    answer = ucb(*asked)
    assert answer.exit_code == 1, answer.output
    assert re.search(said, answer.stdout, re.MULTILINE)
    assert answer.stderr == "error: ord-ft seed 0 was not run: remove what is named above\n"
    kept.unlink()
    shutil.rmtree(folder)
    again = ucb(*asked)
    assert again.exit_code == 0, again.output
    assert "[1/1] ord-ft seed 0: ACC " in again.stdout
    assert ucb(*asked).exit_code == 0, "there is nothing to do, and all that was asked for is there"


def test_what_hinders_one_run_does_not_hinder_the_others(made_up):
    begun_otherwise(Path("results"), Path("runs/tables/tiny/ord-ft-seed0"))
    answer = ucb("reproduce", "tiny", "--methods", "ord-ft", "--seeds", "0,1")
    assert answer.exit_code == 1
    assert "[1/3] ord-ft seed 1: ACC " in answer.stdout
    assert Path("results/tables/tiny/ord-ft-seed1.json").is_file()


def test_a_result_without_its_time_is_kept_and_so_is_the_next(made_up):
    """What a table needs is there: the time is only shown."""
    for seed in (0, 1):
        path = keep(Path("results"), "tiny", "ord-ft", seed, 90.0 + seed, bwt=-1.0)
        folder = Path(f"runs/tables/tiny/ord-ft-seed{seed}")
        folder.mkdir(parents=True)
        path = path.rename(folder / "result.json")
        result = {name: json.loads(path.read_text())[name] for name in ("seed", "acc", "bwt", "config")}
        path.write_text(json.dumps(result))
        (folder / "config.json").write_text(json.dumps(result["config"]))
        keep(Path("results"), "tiny", "ord-ft-wild", seed, 90.0)
    answer = ucb("reproduce", "tiny", "--methods", "ord-ft", "--seeds", "0,1")
    assert answer.exit_code == 0, answer.output
    assert "[1/2] ord-ft seed 0: ACC 90.00   BWT -1.00\n[2/2] ord-ft seed 1: ACC 91.00   BWT -1.00\n" in answer.stdout
    assert json.loads(Path("results/tables/tiny/ord-ft-seed1.json").read_text())["acc"] == 91.0


def test_a_result_of_nothing_is_named_when_its_run_is_resumed(made_up):
    folder = Path("run")
    begun_otherwise(Path("results"), folder)
    (folder / "result.json").write_text("{}")
    said = refused("resume", folder, code=1)
    assert said.startswith(f"error: {folder}/result.json is damaged: it has no seed and no acc ")
    (folder / "result.json").write_text('{"seed": 0, "acc": 90.0, "bwt": null, "config": {}}')
    said = refused("resume", folder, code=1)
    assert said == f"error: {folder}/result.json is damaged: it has no tasks; mend or remove it\n"


def test_a_row_that_cannot_be_run_is_a_failure_only_if_it_was_asked_for(made_up):
    for name in ("ord-ft", "ord-ft-wild"):
        keep(Path("results"), "tiny", name, 0, 90.0)
    assert ucb("reproduce", "tiny", "--seeds", 0).exit_code == 0
    answer = ucb("reproduce", "tiny", "--seeds", 0, "--methods", "strange")
    assert answer.exit_code == 1
    assert "0 runs\nstrange cannot be run: nobody knows how\n" in answer.stdout
    assert answer.stderr == "error: strange cannot be run\n"


def test_a_row_without_a_recipe_is_announced(made_up, monkeypatch):
    asked = ("reproduce", "tiny", "--seeds", 0, "--methods", "ord-ft-wild", "--dry-run")
    assert "recipe" not in ucb(*asked).stdout
    monkeypatch.setattr(definitions, "recipe_for", lambda *_: Recipe())
    shown = re.sub(r"\s+", " ", ucb(*asked).stdout)
    assert "missing: seed 0 (hidden [16], epochs 1, eval_samples 1, lr 1000000.0; no recipe: the method's def" in shown


def test_a_damaged_result_is_named_where_it_is_met(made_up):
    path = keep(Path("results"), "tiny", "ord-ft", 0, 90.0)
    path.write_text('{"seed": 0, "acc": 1, "bwt": 2}')
    said = f"{path} is incomplete: it has no config"
    shown = ucb("table", "tiny")
    assert shown.exit_code == 1
    assert shown.stderr == f"error: {said}; remove it, and ucb reproduce tiny makes it anew\n"
    answer = ucb("reproduce", "tiny", "--methods", "ord-ft", "--seeds", 0)
    assert answer.exit_code == 1
    assert "2 runs: 1 damaged, 1 missing\n" in answer.stdout
    assert f"ord-ft seed 0 cannot be used ({said}): to run it anew, remove {path}\n" in answer.stdout
    assert "error: ord-ft seed 0 was not run: remove what is named above\n" in answer.stderr
    path.unlink()
    assert "[1/2] ord-ft seed 0: ACC " in ucb("reproduce", "tiny", "--methods", "ord-ft", "--seeds", 0).stdout


def test_a_damaged_result_does_not_hide_the_other_tables(tmp_path):
    keep(Path("results"), "samples", "ucb-n1", 0, 98.0)
    path = keep(Path("results"), "2split-mnist", "ucb", 0, 98.0)
    path.write_text("not finished")
    answer = ucb("table")
    assert answer.exit_code == 1
    shown = re.sub(r"\s+", " ", answer.stdout)
    assert all(f"{name} " in shown for name in definitions.tables())
    assert "1.9M values (appendix): it cannot be read" in shown
    assert "Table 2a): 0 of " in shown
    said = (
        f"error: {path} is damaged: it holds no JSON object; remove it, and ucb reproduce 2split-mnist makes it anew\n"
    )
    assert answer.stderr == said, "once, though it serves three tables"


def test_the_list_says_that_runs_had_other_settings(made_up):
    keep(Path("results"), "tiny", "ord-ft", 0, 90.0)
    assert "other settings" not in ucb("table").stdout
    keep(Path("results"), "tiny", "ord-ft", 1, 90.0, settings={"lr": 7.0})
    shown = re.sub(r"\s+", " ", ucb("table").stdout)
    assert "1 of 2 rows measured, 0 with three seeds, 1 with other settings than now" in shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reproduce", "5split"], "there is no table '5split': did you mean 5split-mnist"),
        (["table", "5split"], "there is no table '5split'"),
        (["reproduce", "5split-mnist", "--seeds", "1,,2"], "--seeds takes different whole numbers such as 0,1,2, not"),
        (["reproduce", "5split-mnist", "--seeds", "1,1"], "--seeds takes different whole numbers such as 0,1,2, not"),
        (["reproduce", "5split-mnist", "--jobs", "0"], "jobs must be at least 1, not 0"),
        (["reproduce", "5split-mnist", "--methods", "hta"], "no row or method 'hta': did you mean hat"),
        (["reproduce", "5split-mnist", "--methods="], "--methods takes names separated by commas, not ''"),
        (["reproduce", "5split-mnist", "--methods", "hat,"], "--methods takes names separated by commas, not 'hat,'"),
    ],
)
def test_bad_input_gets_one_sentence(words, expected):
    answer = ucb(*words)
    assert answer.exit_code == 2, answer.output
    assert expected in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_without_a_name_the_tables_are_listed_with_how_much_is_measured(tmp_path):
    for seed in range(3):
        keep(tmp_path / "results", "samples", "ucb-n5", seed, 99.0)
    keep(tmp_path / "results", "samples", "ucb-n1", 0, 98.0)
    shown = re.sub(r"\s+", " ", ucb("table").stdout)
    assert "in a training step: 2 of 5 rows measured, 1 with three seeds" in shown
    assert re.search(r"Table 2a\): 0 of \d+ rows measured permuted-mnist", shown)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", r"^UCB, N = 5 +ucb-n5 +3 +99\.00 \+- 0\.00 +\+0\.00 \+- 0\.00 +99\.0 +-0\.15 +\+0\.00 +within$"),
        ("md", r"^\| UCB, N = 5 \| `ucb-n5` \| 3 \| 99\.00 \+- 0\.00 "),
        ("csv", r"^samples,\"UCB, N = 5\",ucb-n5,ucb,3,99\.0,0\.0,"),
        ("tex", r"^UCB, N = 5 & ucb-n5 & 3 & 99\.00 \$\\pm\$ 0\.00 "),
        ("json", r"^ +\"name\": \"ucb-n5\",$"),
    ],
)
def test_a_table_in_every_format(form, expected, tmp_path):
    for seed in range(3):
        keep(tmp_path / "elsewhere", "samples", "ucb-n5", seed, 99.0)
    answer = ucb("table", "samples", "--format", form, "--results", tmp_path / "elsewhere")
    assert answer.exit_code == 0, answer.output
    assert re.search(expected, answer.stdout, re.MULTILINE), answer.stdout
