"""The paper as data: compared with the paper's source where UCB_PAPER names it, and with itself everywhere."""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.experiments.reproduce import latex
from ucb.experiments.reproduce import paper

SOURCE = os.environ.get("UCB_PAPER")
with_source = pytest.mark.skipif(SOURCE is None, reason="UCB_PAPER does not name the paper's source")


@pytest.fixture(scope="module")
def source():
    return Path(SOURCE).read_text()


def cell(row, column):
    """A cell of our data as the reader of LaTeX gives it."""
    found = [figure for figure in row.figures if figure.column == column]
    if len(found) > 1:
        return {"choices": [figure.value for figure in found]}
    if not found:
        return "-"
    return found[0].value if found[0].spread is None else [found[0].value, found[0].spread]


def read(text):
    """A cell of the source: a number, choices, or the words that stand there."""
    for value in (latex.number(text), latex.choices(text)):
        if value is not None:
            return value
    return text


@with_source
def test_there_are_the_tables_of_the_source_and_no_other(source):
    assert [table.label for table in paper.tables()] == list(latex.tables(source))


@with_source
@pytest.mark.parametrize("table", paper.tables(), ids=lambda table: table.id)
def test_every_row_and_every_figure_is_the_sources(table, source):
    rows = latex.tables(source)[table.label]
    head = [row for row in rows if not any(isinstance(read(text), float | list | dict) for text in row[1:])]
    assert rows[: len(head)] == head, "heads stand above the figures"
    ours = [
        [row.name, *(row.of[column] for column in table.of), *(cell(row, column) for column in table.columns)]
        for row in table.rows
    ]
    assert ours == [[row[0], *map(read, row[1:])] for row in rows[len(head) :]]
    printed = " ".join(head[-1]).lower()
    short = {"parameters": "params", "N": " n ", "importance": "importance"}
    for column in (*table.of, *table.columns):
        word = column.split(", ")[-1]
        assert short.get(word, word).lower() in f" {printed} ", f"{column} is headed otherwise in the source"


@with_source
def test_no_number_of_the_source_is_left_out(source):
    """A second count that knows nothing of rows and cells: all numbers but those of layout and names."""
    for table in paper.tables():
        (body,) = [
            match[1]
            for match in re.finditer(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", source, re.DOTALL)
            if re.findall(r"\\label\{(tab:[^}]*)\}", source[: match.start()])[-1] == table.label
        ]
        body = re.sub(r"\\multicolumn\{\d\}|\\\\\s*\[[^\]]*\]|\\citep\{[^}]*\}|_\d|1/\\sigma|\\pm", " ", body)
        body = re.sub(r"[A-Za-z]+\d+[A-Za-z]*|CIFAR10+|\d+T\b", " ", body)
        words = re.findall(r"\d[\d,]*\d(?:\.\d+)?|\d+(?:\.\d+)?", split(body))
        theirs = Counter(float(word.replace(",", "")) for word in words)
        ours = Counter()
        for figure in figures_of(table):
            ours[figure.value / 1e6 if figure.column == "parameters" else abs(figure.value)] += 1
            if figure.spread is not None:
                ours[figure.spread] += 1
        assert ours == theirs, table.id


def figures_of(table):
    """Every number of a table, those that tell rows apart included."""
    for row in table.rows:
        for column, value in row.of.items():
            if not isinstance(value, str):
                yield paper.Figure(table.id, row.name, column, value)
        yield from row.figures


def split(body):
    """Commas part choices, but not thousands."""
    return re.sub(r"\\?\{([\d.,]+)\\?\}", lambda match: match[1].replace(",", " "), body)


@with_source
def test_what_the_text_is_said_to_state_is_there(source):
    text = latex.without_tables(source)
    for each in paper.contradictions():
        for stated in each.stated:
            if stated.text is not None:
                section = text[text.index(f"{{{stated.text}}}") :]
                section = re.split(r"\\(?:sub)?section", section)[0]
                assert f"{stated.value:.2f}".rstrip("0") in section, (each.about, stated)


def test_the_spreads_are_of_the_same_figures_but_for_what_is_called_a_contradiction():
    called = {
        (stated.row, tuple(stated.of.items()), stated.column, stated.table)
        for each in paper.contradictions()
        for stated in each.stated
    }
    compared = 0
    for name in ("5split-mnist", "permuted-mnist", "cifar-alternating"):
        short, long = paper.table(name), paper.table(f"{name}-spread")
        assert [(row.name, row.of) for row in short.rows] == [(row.name, row.of) for row in long.rows]
        for row in short.rows:
            for column in ("BWT", "ACC"):
                ours, theirs = row.figure(column), long.row(row.name, row.of).figure(column)
                assert (ours is None) == (theirs is None)
                if ours is not None:
                    compared += 1
                    key = (row.name, tuple(row.of.items()), column)
                    assert (ours.value == theirs.value) != ((*key, f"{name}-spread") in called and key[0] != "UCB")
    assert compared == 75


def test_contradictions_name_figures_that_are_there_and_differ():
    for each in paper.contradictions():
        assert len({stated.value for stated in each.stated}) > 1, each.about
        for stated in each.stated:
            assert [stated.table, stated.text, stated.elsewhere].count(None) == 2
            if stated.table is not None:
                figure = paper.table(stated.table).row(stated.row, stated.of).figure(stated.column)
                assert figure.value == stated.value, each.about
    expected = {86.34, 93.34, 90.50, 94.62, 97.42, 97.7, -0.04, 0.04, 39209, 50000}
    assert expected <= {stated.value for each in paper.contradictions() for stated in each.stated}


def test_rows_are_found_by_name_and_by_what_tells_them_apart():
    table = paper.table("permuted-mnist")
    assert table.row("HAT", {"parameters": 1900000}).figure("ACC").value == 97.34
    assert table.row("HAT", {"parameters": 100000}).title == "HAT, 0.1M"
    assert table.row("HAT", {"parameters": 100000}).figure("BWT") is None
    assert [row.title for row in paper.table("samples").rows][2] == "UCB, N = 5"
    titles = [row.title for row in paper.table("importance").rows]
    assert titles[1:3] == ["UCB, rho, 1/sigma", "UCB, mu, rho, 1/sigma"]
    assert len(set(titles)) == 8
    assert [paper.table(name).digits("ACC") for name in ("samples", "permuted-mnist", "eight-datasets")] == [1, 2, 2]
    with pytest.raises(KeyError, match="0 rows 'HAT'"):
        table.row("HAT")
    with pytest.raises(ValueError, match="did you mean permuted-mnist"):
        paper.table("permuted")
