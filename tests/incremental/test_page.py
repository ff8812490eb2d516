"""docs/learn-from-your-data.md: its commands exist, its pictures show them, and the whole page can be run."""

import html
import importlib
import re
import shlex
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import onnx
import pytest
import typer

from tools.docs import wave_tables
from ucb.cli.app import app
from ucb.data.readers.images import MOST
from ucb.incremental import Model, learning
from ucb.incremental.bayesian_net import NETS, SAMPLES
from ucb.incremental.calibration import SMALLEST_ENTROPY, UNSURE
from ucb.incremental.onnx import CLOSE
from ucb.incremental.trunks import build_trunk

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "learn-from-your-data.md"
COMMANDS = typer.main.get_command(app).commands


@pytest.fixture(scope="module")
def pictures():
    """A module of the folder benchmarks, which is no package."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("picture_waves")
    finally:
        sys.path.pop(0)


def mentioned(text):
    """Everything that is written as code and begins with ucb."""
    lines = re.findall(
        r"^\s*(ucb \S.*?)(?:\s+[#>].*)?$", "\n".join(re.findall(r"```\w+\n(.*?)```", text, re.DOTALL)), re.M
    )
    return lines + re.findall(r"`(ucb [^`]+)`", text)


@pytest.mark.parametrize("page", ["docs/learn-from-your-data.md", "README.md"])
def test_commands_and_options_exist(page):
    found = [shlex.split(line) for line in mentioned((ROOT / page).read_text())]
    known = {"learn", "show", "predict", "export"} | ({"forget-check"} if page != "README.md" else set())
    assert known <= {words[1] for words in found}
    for words in found:
        assert words[1] in COMMANDS, words
        options = {name for option in COMMANDS[words[1]].params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= options, words


def test_options_in_the_text_exist():
    options = {name for command in COMMANDS.values() for parameter in command.params for name in parameter.opts}
    written = set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", PAGE.read_text()))
    assert {"--format", "--method", "--net", "--name"} <= written
    assert written <= options
    assert f"--net {'|'.join(NETS)}" in PAGE.read_text()


def test_numbers_in_the_text_are_those_of_the_code():
    text = " ".join(PAGE.read_text().split())
    assert f"{build_trunk((1, 28, 28)).features:,} features" in text
    assert f"above the value that {100 * UNSURE:.0f} % of the held-out examples exceed" in text
    assert f"log(entropy + {SMALLEST_ENTROPY:.4f})" in text
    assert f"About a tenth of a wave is held out at first, {learning.MOST_HELD_OUT:,} examples or so at most" in text
    assert learning.HELD_OUT_SHARE == 0.1
    assert f"**Images up to {MOST} x {MOST}.**" in text
    assert f"to {CLOSE:.4f}" in text
    assert f"the weights of each of the {SAMPLES} samples" in text


def test_figures_are_those_of_the_result_files():
    text = PAGE.read_text()
    for name, table in wave_tables.TABLES.items():
        assert f"<!-- table: {name} -->\n{table()}\n<!-- end -->" in text
    text, runs = " ".join(text.split()), [run for same in wave_tables.measured().values() for run in same]
    assert all(f"{run['images_a_class']:,} images a class" in text for run in runs)
    assert all(f"all {run['tested']:,} test images" in text for run in runs)
    assert {run["epochs"] for run in runs} == {None, 5}
    assert "goes through each wave five times" in text
    assert {len(same) for same in wave_tables.measured().values()} == {3}
    assert "mean of three seeds" in text


def test_pictures_show_the_commands_before_them(pictures):
    blocks = [block for block in pictures.blocks(PAGE.read_text()) if block.picture]
    assert len(blocks) == len(list((ROOT / "docs" / "images").glob("waves-*.svg"))) >= 4
    for block in blocks:
        path = ROOT / "docs" / "images" / block.picture
        assert path.stat().st_size < 60_000
        svg = path.read_text()
        assert "url(http" not in svg, "a picture fetches nothing"
        ElementTree.fromstring(svg)
        shown = html.unescape(re.sub(r"<[^>]+>", "", svg)).replace("\xa0", " ")
        for line in block.text.replace("$week", "3").splitlines():
            if line.strip().startswith("ucb "):
                assert f"$ {line.strip().replace(chr(34), chr(39))}" in shown


def test_every_link_leads_somewhere():
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / link).exists(), link
    for page in ("README.md", "docs/architecture.md"):
        assert "learn-from-your-data.md" in (ROOT / page).read_text()


def test_examples_are_python(pictures):
    for block in pictures.blocks(PAGE.read_text()):
        if block.kind == "python":
            compile(block.text, str(PAGE), "exec")


@pytest.mark.slow
def test_the_whole_page_runs(pictures, tmp_path):
    """With fewer digits, in a fresh folder, block after block as a reader would."""
    page = PAGE.read_text().replace("EACH = 2000", "EACH = 200")
    text = "\n".join(pictures.run(block, tmp_path) for block in pictures.blocks(page))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        "make_waves.py",
        "digits.ucb",
        "digits.onnx",
        "answers.json",
        "rows.ucb",
        "unseen",
        "strange",
        "week6",
    }
    assert "4/broken.png" in text
    assert text.count("the data are no longer needed") == 5
    assert len(re.findall("  true$", text, re.MULTILINE)) > 3  # what is strange is unsure
    model = Model.open(tmp_path / "digits.ucb")
    assert [wave.name for wave in model.waves] == [f"week {number}" for number in range(1, 7)]
    assert model.classes == [str(digit) for digit in range(10)]
    assert model.forget_check(tmp_path / "unseen")["accuracy"] > 90
    onnx.checker.check_model(str(tmp_path / "digits.onnx"))
