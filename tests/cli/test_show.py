"""Names that come from outside, in what is printed."""

import pytest
from rich.console import Console

from ucb.cli import run, terminal

NAMES = ["cats [old]", "[red]dogs[/]", "[/oops]", "fish :fish:", "a\x1b[2Jb"]
SHOWN = ["cats [old]", "[red]dogs[/]", "[/oops]", "fish :fish:", "a\\x1b[2Jb"]


@pytest.fixture(params=[False, True], ids=["file", "terminal"])
def printed(request, monkeypatch, capsys):
    """Return the lines that a terminal, or a file, has got."""
    console = Console(width=120, force_terminal=request.param, color_system=None)
    monkeypatch.setattr(terminal, "console", console)
    return lambda: capsys.readouterr().out.splitlines()


def test_names_of_tasks_are_words_and_not_markup(printed):
    for _, table in run.accuracy_tables(
        {"tasks": NAMES, "accuracy_matrix": [[50.0] * (i + 1) for i in range(len(NAMES))]}
    ):
        terminal.print_table(table)
    lines = printed()
    head, _, *rows = lines[: len(NAMES) + 2]
    places = [head.find(name) for name in SHOWN]
    assert -1 not in places
    assert places == sorted(places)
    assert [row.split("  ")[0].removesuffix(" 50.00") for row in rows] == SHOWN
    short = lines[-len(NAMES) :]
    assert [row.split("  ")[0] for row in short] == SHOWN
    assert all(row.split()[-2:] == ["50.00", "50.00"] for row in short)


def test_listed_names_and_what_is_said_of_them_are_no_markup_either(printed):
    terminal.print_names({"cats [old]": "settings [x], :fish:"})
    assert [line.rstrip() for line in printed()] == ["cats [old]  settings [x], :fish:"]
