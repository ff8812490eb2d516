"""The commands asked in this process, as often as a fuzzer wants: their tree is built once."""

import io
import json
import math
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from typer.main import get_command

from ucb.cli.app import app

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
