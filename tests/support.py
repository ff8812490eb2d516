"""What tests in several rooms need: the command line asked in this process or in one of its own."""

import io
import json
import math
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from typer.main import get_command
from typer.testing import CliRunner

from ucb.cli.app import app

HEARING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""A shell that starts the tests in the background makes all their processes deaf to Ctrl-C; these hear again."""


def make_output_plain(monkeypatch):
    """Let no variable of the machine decide how the output looks."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "GITHUB_ACTIONS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")


def ucb(*words, stdin=None):
    """Answer a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


def succeed(*words, stdin=None):
    """What a command prints that does what it is asked to."""
    answer = ucb(*words, stdin=stdin)
    assert answer.exit_code == 0, answer.output
    assert "Traceback" not in answer.output
    return answer.stdout


def refused(*words, code=2, printed=False):
    """The one sentence about a command that cannot be done; something may have been printed before."""
    answer = ucb(*words)
    assert answer.exit_code == code, answer.output
    assert bool(answer.stdout) == printed
    assert "Traceback" not in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    return answer.stderr


def launched(*words, program=("-m", "ucb"), threads=1, **options):
    """The real command, in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "PYTHONUNBUFFERED"):
        environment.pop(name, None)
    command = [sys.executable, "-c", HEARING, *program, *map(str, words)]
    heard = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **heard | options)


def interrupted(*words, when):
    """What a command says of Ctrl-C, which comes once it has printed a line with these words."""
    with launched(*words) as process:
        for line in process.stdout:
            if when in line:
                process.send_signal(signal.SIGINT)
                break
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    return err


COMMANDS = get_command(app)


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def ask(*words, encoding="utf-8"):
    """Return what a command answers on a terminal of an encoding that refuses what it cannot write."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            COMMANDS.main([str(word) for word in words], prog_name="ucb")
        except SystemExit as end:
            code = end.code
    texts = []
    for stream in out, err:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(encoding))
    return Answer(code, *texts)


def sentence(answer, *codes):
    """The one line of a command that cannot do what it is asked to."""
    assert answer.code in codes, answer
    assert answer.out == "", answer
    assert answer.err.startswith("error: "), answer
    assert answer.err.count("\n") == 1, answer
    assert "Traceback" not in answer.err, answer
    assert "defect" not in answer.err, answer
    return answer.err


def finite_json(text):
    """JSON in which every number is finite."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    found = json.loads(text, parse_constant=refuse)
    for row in found if isinstance(found, list) else [found]:
        assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))
    return found
