"""How tests ask the command line, in this process or in one of its own."""

import os
import signal
import subprocess
import sys

from typer.testing import CliRunner

from ucb.cli import app as commands

HEARING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""A shell that starts the tests in the background makes all their processes deaf to Ctrl-C; these hear again."""


def ucb(*words):
    """Answer a command in this process."""
    return CliRunner().invoke(commands.app, [str(word) for word in words])


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
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS"):
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
