"""``ucb reproduce`` and ``ucb table`` as a user meets them."""

import json
import re

import pytest
from typer.testing import CliRunner

from tests.reproduce.made_up import keep, row, tiny
from ucb.cli import app as commands
from ucb.cli import reproduce
from ucb.engine import InterruptedRunError
from ucb.reproduce import definitions


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """A folder of its own, and no variable of the machine's that decides how the output looks."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "GITHUB_ACTIONS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def made_up(monkeypatch):
    """The tiny table, with a row that diverges and one that cannot be run, in place of the real ones."""
    table = tiny(
        row("ord-ft", "ORD-FT"),
        row("ord-ft", variant="wild", lr=1e6),
        {"method": None, "variant": "strange", "obstacle": "nobody knows how"},
    )
    for module in (definitions, reproduce):
        monkeypatch.setattr(module, "tables", lambda: {"tiny": table})


def ucb(*words):
    return CliRunner().invoke(commands.app, [str(word) for word in words])


def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path):
    answer = ucb("reproduce", "5split-mnist", "--dry-run")
    assert answer.exit_code == 0, answer.output
    assert "63 runs: 63 missing\n" in answer.stdout
    assert re.search(r"^ucb +missing: seed 0, 1, 2 \(hidden \[1200\], epochs ", answer.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_run_and_what_fails_is_said_at_the_end(made_up, tmp_path):
    answer = ucb("reproduce", "tiny", "--seeds", 1)
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
    again = ucb("reproduce", "tiny", "--seeds", 1, "--methods", "ord-ft", "--dry-run")
    assert "2 runs: 1 measured, 1 cut\n" in again.stdout


def test_an_interruption_says_how_to_go_on(made_up, monkeypatch):
    def interrupted(*_):
        yield from ()
        raise InterruptedRunError("stopped")

    monkeypatch.setattr(reproduce, "carry_out", interrupted)
    answer = ucb("reproduce", "tiny")
    assert answer.exit_code == 130
    assert answer.stderr == "interrupted: 0 of 6 runs are done; the same command goes on from here\n"


def test_a_run_with_other_settings_is_named(made_up, tmp_path):
    path = keep(tmp_path / "results", "tiny", "ord-ft", 0, 90.0, benchmark="mnist-5split", method="ord-ft")
    answer = ucb("reproduce", "tiny", "--methods", "ord-ft", "--seeds", 1, "--dry-run")
    assert answer.exit_code == 0, answer.output
    assert "1 other settings" in answer.stdout
    assert "ord-ft seed 0 was run with other settings (" in answer.stdout
    assert f"to run it anew, remove {path.relative_to(tmp_path)}" in answer.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reproduce", "5split"], "there is no table '5split': did you mean 5split-mnist"),
        (["table", "5split"], "there is no table '5split'"),
        (["reproduce", "5split-mnist", "--seeds", "0"], "seeds must be at least 1, not 0"),
        (["reproduce", "5split-mnist", "--jobs", "0"], "jobs must be at least 1, not 0"),
        (["reproduce", "5split-mnist", "--methods", "hta"], "no row or method 'hta': did you mean hat"),
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
    assert "Table 1a): 0 of 20 rows measured" in shown


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", r"^UCB, N = 5 +ucb-n5 +3 +99\.00 \+- 0\.00 +\+0\.00 \+- 0\.00 +99\.0 +-0\.15 +\+0\.00 +matched$"),
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
