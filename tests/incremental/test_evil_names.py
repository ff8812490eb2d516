"""What names from outside can do to a terminal, a spreadsheet, or whoever reads: nothing."""

import csv
import io
from contextlib import redirect_stdout

import pytest

from tests.experiments.report.results import result, written
from tests.support import ask
from ucb.cli.answers import print_answers

EVIL = "a\x1b]0;owned\x07\x1b[2Jb\x9b31m\u202e"
"""Sets the title, clears the screen, changes the colour and the direction of writing."""

pytestmark = pytest.mark.usefixtures("small")


def seen(*words):
    """All that a command printed, none of which a terminal obeys; EVIL is there as codes."""
    answer = ask(*words)
    text = answer.out + answer.err
    assert all(line.isprintable() for line in text.split("\n")), repr(text)
    assert r"\x1b[2J" in text, repr(text)
    return answer


@pytest.fixture
def model(tmp_path):
    """A model whose file, classes, wave and columns have evil names, and the table that it learnt."""
    table, path = tmp_path / f"{EVIL}.csv", tmp_path / f"{EVIL}.ucb"
    rows = "".join(f"{'xy'[n % 2]}{EVIL},{n % 2},{n % 7}\n" for n in range(40))
    table.write_text(f"label,{EVIL},v\n{rows}lonely,1,{EVIL}\n", encoding="utf-8")
    assert seen("learn", path, table, "--name", EVIL).code == 0
    return path, table


def test_names_of_a_model_are_shown_as_codes(model):
    path, table = model
    plain = table.rename(table.with_name("plain.csv"))  # in what `predict` is given a bracket begins a pattern
    for words in [("show", path), ("forget-check", path, plain), ("predict", path, plain)]:
        assert seen(*words).code == 0
    assert seen("export", path, path.with_suffix(".onnx")).code == 0
    assert seen("learn", path, plain, "--name", EVIL).code != 0


def test_names_in_refusals_are_shown_as_codes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{EVIL}.json").write_text("{")
    (tmp_path / f"{EVIL}.csv").write_text(f"u,{EVIL}\n1,2\n")
    written(tmp_path / EVIL / "result.json", result())
    for words in [
        ("learn", "m.ucb", EVIL),
        ("learn", "m.ucb", f"{EVIL}.csv"),
        ("learn", f"{EVIL}.csv", f"{EVIL}.csv"),
        ("show", EVIL),
        ("show", f"{EVIL}.json", "--debug"),
        ("resume", EVIL),
        ("run", EVIL),
        ("run", "mnist-5split", "--method", EVIL),
        ("run", "mnist-5split", "--out", EVIL),
        ("run", "mnist-5split", "--set", EVIL),
        ("run", "folders", "--data", EVIL, "--out", "new"),
        ("report", f"{EVIL}.json"),
        ("data", "import", "cifar10", EVIL),
        ("tune", "mnist-5split", "--grid", EVIL),
        (EVIL,),
        ("show", "m.ucb", EVIL),
        ("show", "m.ucb", f"--{EVIL}"),
        ("list", EVIL),
    ]:
        assert seen(*words).code != 0
    assert seen("report", EVIL, "-o", f"{EVIL}.html").code == 0


def test_a_refusal_is_one_line_whatever_a_name_holds(tmp_path):
    answer = ask("show", tmp_path / "a\nerror: b")
    assert answer.err.count("\n") == 1
    assert r"a\nerror: b" in answer.err


def answers(*names):
    figures = {"probability": 0.5, "entropy": -0.5, "mutual_information": 0.0, "unsure": True, "doubt": 7.0}
    return [{"file": name, "label": name, **figures} for name in names]


class Screen(io.StringIO):
    """A file that says it is a terminal, or not."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


def printed(rows, form, terminal=False):
    screen = Screen(terminal)
    with redirect_stdout(screen):
        print_answers(rows, form)
    return screen.getvalue()


@pytest.mark.parametrize("form", ["csv", "json", "text"])
def test_answers_on_a_terminal_are_shown_as_codes(form):
    assert all(line.isprintable() for line in printed(answers(EVIL), form, terminal=True).split("\n"))


def test_csv_in_a_file_has_the_names_as_they_are():
    (row,) = csv.DictReader(io.StringIO(printed(answers(EVIL), "csv")))
    assert row["file"] == row["label"] == EVIL


@pytest.mark.parametrize(
    "name", ["=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-inf", "+", "-\r=1"]
)
def test_no_cell_of_text_is_a_formula(name):
    (row,) = csv.DictReader(io.StringIO(printed(answers(name), "csv"), newline=""))
    assert row["file"] == row["label"] == f"'{name}"


@pytest.mark.parametrize("name", ["-1", "+2.5", "-0.5e-3", "-.5", "cat", "a=b", "'quoted'", "", "-5."])
def test_numbers_and_other_text_stay_as_they_are(name):
    (row,) = csv.DictReader(io.StringIO(printed(answers(name), "csv")))
    assert row["file"] == row["label"] == name
    assert (row["probability"], row["entropy"], row["unsure"]) == ("0.5", "-0.5", "true")
