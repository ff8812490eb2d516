"""What takes no work is answered at once: PyTorch is loaded by the commands that need it, when they run."""

import os
import re
import resource
import subprocess
import sys

import pytest

from tests.support import ucb
from ucb.data.catalogue import CATALOGUE
from ucb.data.streams import BENCHMARKS
from ucb.experiments.reproduce.definitions import tables
from ucb.incremental import METHODS
from ucb.methods import known_methods
from ucb.nets import NETS

BASE = "import typer, rich.console, rich.table"
AT_ONCE = [
    ["--help"],
    [],
    ["--version"],
    ["run", "--help"],
    ["learn", "--help"],
    ["tune", "--help"],
    ["reproduce", "--help"],
    ["bench", "--help"],
    ["data", "get", "--help"],
    ["run"],
    ["run", "mnist-5split", "--seed", "x"],
    ["nothing"],
]
NAMES_AFTER = """
import sys
sys.argv = ["ucb", *sys.argv[1:]]
from ucb.cli.main import main
try:
    main()
finally:
    print({"torch", "numpy"} & {*sys.modules}, file=sys.stderr)
"""


def cpu_seconds(*words):
    """The processor time of a command, at its best of three."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_help_takes_a_small_multiple_of_what_typer_and_rich_take():
    """Measured: 0.09 s beside 0.07 s. With PyTorch it was twenty times as much."""
    base = cpu_seconds("-c", BASE)
    for words in ["--help"], ["run", "--help"], ["--version"], ["run"]:
        assert cpu_seconds("-m", "ucb", *words) <= 5 * base, words


@pytest.mark.parametrize("words", AT_ONCE, ids=" ".join)
def test_neither_torch_nor_numpy_is_loaded_for(words):
    answer = subprocess.run([sys.executable, "-c", NAMES_AFTER, *words], capture_output=True, text=True)
    assert answer.returncode in (0, 2)
    assert answer.stderr.splitlines()[-1] == "set()"


def test_help_names_what_can_be_chosen():
    """The words are written down, since to ask for them would load PyTorch."""
    shown = {command: re.sub(r"\s+", " ", ucb(command, "--help").stdout) for command in ("run", "tune", "learn")}
    for command in "run", "tune":
        *others, last = NETS
        assert f"{', '.join(others)} or {last}." in shown[command]
    assert all(f"{name}: " in shown["learn"] for name in METHODS)


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("ucb run ", BENCHMARKS),
        ("ucb tune ", BENCHMARKS),
        ("ucb run mnist-5split --method ", known_methods()),
        ("ucb run mnist-5split --net ", NETS),
        ("ucb data get ", CATALOGUE),
        ("ucb reproduce ", tables()),
        ("ucb table ", tables()),
    ],
)
def test_the_shell_completes(words, known):
    environment = {"_UCB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "ucb"]
    answer = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert set(answer.stdout.split()) == {*known}, answer.stderr


@pytest.mark.parametrize("words", [(), ("data",)], ids=["ucb", "ucb data"])
def test_a_command_without_words_shows_its_help_in_lines(words):
    answer = ucb(*words)
    assert "\\n" not in answer.output
    assert "Commands:\n" in answer.output
    assert len(answer.output.splitlines()) > 5
