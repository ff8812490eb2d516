"""Ours beside the paper's, from made-up result files."""

import csv
import io
import json
import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.reproduce.made_up import keep, row, tiny
from ucb.experiments.reproduce.compare import FORMATS, RULE, Measure, compare_table
from ucb.experiments.reproduce.definitions import table_named, tables

TWO_SEEDS = math.sqrt(0.5) * 0.2


@pytest.fixture
def table():
    return tiny(
        row("vcl", "VCL", more={"note": "trained for an epoch"}),
        row("imm-mean", "IMM", more={"better_of": "IMM"}),
        row("imm-mode", "IMM", more={"better_of": "IMM"}),
        row("hat", "HAT"),
        row("ucb", "UCB"),
        row("ucb-ng"),
        row("si"),
        {"method": None, "variant": "strange", "paper": "EWC", "obstacle": "nobody knows how"},
    )


@pytest.fixture
def lines(table, tmp_path):
    for seed, acc in enumerate((97.0, 97.2)):
        keep(tmp_path, table, "vcl", seed, acc, -1.0 - seed)
    keep(tmp_path, table, "imm-mean", 0, 90.0)
    keep(tmp_path, table, "imm-mode", 0, 95.0)
    keep(tmp_path, table, "ucb", 0, 99.60)
    keep(tmp_path, table, "ucb", 2, 99.60)
    keep(tmp_path, table, "ucb-ng", 0, 99.7, bwt=None)
    return {line.name: line for line in compare_table(table, tmp_path)}


def test_mean_spread_and_difference(lines):
    vcl = lines["vcl"]
    assert vcl.acc.value == pytest.approx(97.1)
    assert vcl.acc.spread == pytest.approx(TWO_SEEDS)
    assert vcl.bwt.value == -1.5
    assert (vcl.paper_row, vcl.paper_acc, vcl.paper_bwt) == ("VCL", Measure(98.20, 0.03), Measure(-0.56, 0.03))
    assert vcl.difference == pytest.approx(-1.1)
    assert vcl.seeds == (0, 1)
    assert (vcl.weights, vcl.stored_values) == (954010, 2862030)


def test_a_row_that_is_below_says_so_with_its_note(lines):
    assert lines["vcl"].verdict == "below"
    assert lines["vcl"].notes == ("trained for an epoch",)
    assert lines["ucb"].verdict == "within"
    assert lines["ucb"].notes == ()


def test_a_row_that_is_above_is_not_called_the_same(lines, table, tmp_path):
    assert lines["imm-mode"].verdict == "above"  # 95 beside 88.54
    keep(tmp_path, table, "vcl", 0, 99.9)
    keep(tmp_path, table, "vcl", 1, 99.9)
    vcl = {line.name: line for line in compare_table(table, tmp_path)}["vcl"]
    assert (vcl.verdict, vcl.notes) == ("above", ()), "the note says why it may be below"


def test_what_is_missing_is_said(lines):
    assert (lines["hat"].verdict, lines["hat"].acc, lines["hat"].paper_acc.value) == ("not measured", None, 99.59)
    assert lines["si"].verdict == "not measured"
    assert (lines["strange"].verdict, lines["strange"].notes) == ("cannot be run", ("nobody knows how",))


def test_one_seed_has_no_spread_and_a_row_of_ours_no_verdict(lines):
    ours = lines["ucb-ng"]
    assert (ours.acc, ours.bwt, ours.paper_acc, ours.difference, ours.verdict) == (Measure(99.7), None, None, None, "")


def test_the_better_one_is_shown_and_names_the_other(lines, table, tmp_path):
    assert "imm-mean" not in lines
    assert lines["imm-mode"].acc.value == 95.0
    assert lines["imm-mode"].notes == ("the better of 2 by test ACC: imm-mean has 90.00",)
    (tmp_path / "tables" / "tiny" / "imm-mode-seed0.json").unlink()
    again = {line.name: line for line in compare_table(table, tmp_path)}
    assert again["imm-mean"].acc.value == 90.0
    assert "imm-mode is not measured yet" in again["imm-mean"].notes[0]


def test_a_remark_stands_beside_a_figure_whatever_it_is(tmp_path):
    table = tiny(row("vcl", "VCL", more={"remark": "read it so"}), row("ord-ft", more={"remark": "and this so"}))
    assert [line.notes for line in compare_table(table, tmp_path)] == [(), ()], "there is no figure yet"
    keep(tmp_path, table, "vcl", 0, 99.9)
    keep(tmp_path, table, "ord-ft", 0, 99.9)
    assert [line.notes[0] for line in compare_table(table, tmp_path)] == ["read it so", "and this so"]


def test_a_figure_that_the_paper_contradicts_has_a_note(tmp_path):
    lines = {line.name: line for line in compare_table(table_named("permuted-mnist"), tmp_path)}
    assert lines["vcl-gng-0.1m"].paper_acc == Measure(90.50)
    assert lines["vcl-gng-0.1m"].notes == ("the paper's ACC is 90.5 in one table and 94.62 in another",)
    assert lines["vcl-0.1m"].paper_acc == Measure(88.80, 0.23)


def test_a_row_reads_the_runs_that_serve_it_too(tmp_path):
    keep(tmp_path, "2split-mnist", "ucb", 0, 99.1)
    keep(tmp_path, "2split-mnist", "ucb-p", 0, 98.1)
    lines = {line.name: line for line in compare_table(table_named("importance"), tmp_path)}
    assert lines["ucb-mu-certainty"].acc.value == 99.1
    assert lines["ucb-p-snr"].acc.value == 98.1
    assert lines["ucb-rho-certainty"].acc is None


def test_text_has_aligned_columns_and_numbered_notes(table, lines):
    written = FORMATS["text"](table, list(lines.values()))
    head, *_ = [line for line in written.splitlines() if line.startswith("the paper's row")]
    (vcl,) = [line for line in written.splitlines() if line.startswith("VCL")]
    assert vcl.split("  ")[0] == "VCL"
    assert f"97.10 +- {TWO_SEEDS:.2f}" in vcl
    assert vcl.endswith("  below (1)")
    assert head.index("difference") + len("difference") == vcl.index("-1.10") + len("-1.10")
    assert "\n(1) trained for an epoch\n" in written
    assert all(line == line.rstrip() for line in written.splitlines())
    assert f"\n\n{RULE}\n\n(1) " in written
    assert "within" not in FORMATS["text"](table, [lines["hat"]]), "nothing is judged there"


def test_markdown_has_the_same_number_of_cells_everywhere(table, lines):
    written = FORMATS["md"](table, list(lines.values()))
    body = [line for line in written.splitlines() if line.startswith("|")]
    assert len(body) == len(lines) + 2
    assert {line.count("|") for line in body} == {10}
    importance = table_named("importance")
    bars = FORMATS["md"](importance, compare_table(importance)).splitlines()
    assert {line.replace(r"\|", "").count("|") for line in bars if line.startswith("|")} == {10}


def test_csv_has_every_number_unrounded(table, lines):
    rows = {row["row"]: row for row in csv.DictReader(io.StringIO(FORMATS["csv"](table, list(lines.values()))))}
    assert list(rows) == list(lines)
    assert float(rows["vcl"]["acc_spread"]) == pytest.approx(TWO_SEEDS, rel=1e-12)
    assert rows["hat"]["acc"] == ""
    assert rows["hat"]["paper_acc"] == "99.59"
    assert rows["ucb-ng"]["bwt"] == ""
    assert (rows["vcl"]["weights"], rows["vcl"]["stored_values"]) == ("954010", "2862030")


def test_latex_has_the_same_number_of_columns_everywhere(table, lines):
    written = FORMATS["tex"](table, list(lines.values()))
    rows = [line for line in written.splitlines() if line.endswith(r"\\")]
    assert len(rows) == len(lines) + 1
    assert {line.count("&") for line in rows} == {8}
    assert r"$\pm$" in written
    assert written.count("{") == written.count("}")


def test_latex_says_what_it_needs_and_prints_its_notes(table, lines):
    """A mark in a cell refers to a note that the reader of the paper can see."""
    written = FORMATS["tex"](table, list(lines.values())).splitlines()
    assert written[0].startswith("%")
    assert "booktabs" in written[0]
    below = written[written.index(r"\end{tabular}") + 1 :]
    assert r"{\footnotesize\noindent (1) trained for an epoch\par}" in below
    assert not any(line.startswith("%") for line in below)
    assert r"\footnotesize" not in FORMATS["tex"](table, [lines["ucb"]])


def test_latex_takes_every_character_as_it_is(table, lines):
    note = r"50% of $x_1 & #2 {a} ~b^c \d <e> |mu|/sigma |f| over 1/sigma 1 +- 2, -0.5 by rho of ucb-mu-snr"
    written = FORMATS["tex"](table, [replace(lines["ucb"], notes=(note,))])
    escaped = (
        r"50\% of \$x\_1 \& \#2 \{a\} \textasciitilde{}b\textasciicircum{}c \textbackslash{}d "
        r"\textless{}e\textgreater{} $|\mu|/\sigma$ \textbar{}f\textbar{} over $1/\sigma$ 1 $\pm$ 2, $-$0.5 "
        r"by $\rho$ of ucb-mu-snr"
    )
    assert rf"(1) {escaped}\par}}" in written


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
@pytest.mark.parametrize("name", tables())
def test_latex_compiles(name, tmp_path):
    written = FORMATS["tex"](tables()[name], compare_table(tables()[name], Path(__file__).parents[3] / "results"))
    document = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{written}\end{{document}}"
    (tmp_path / "page.tex").write_text(document)
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "page.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_json_has_everything(table, lines):
    found = json.loads(FORMATS["json"](table, list(lines.values())))
    assert found["table"] == "tiny"
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["vcl"]["acc"]["spread"] == pytest.approx(TWO_SEEDS)
    assert rows["vcl"]["difference"] == pytest.approx(-1.1)
    assert rows["hat"]["acc"] is None
    assert rows["vcl"]["verdict"] == "below"
