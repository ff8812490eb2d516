"""What commands print where not every character can be written, and how they put figures into words."""

import csv
import io
import json

import pytest

from tests.support import ask
from ucb.cli.terminal import format_bytes

NAMES = ["猫", "Käfer", "🐛", "plain"]
pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def known(tmp_path):
    """A model whose classes, wave, column and path need more than ASCII, and the table it learnt."""
    table, model = tmp_path / "Tabelle 表.csv", tmp_path / "Modell 模.ucb"
    rows = "".join(f"{NAMES[n % 4]},{n % 4},{n % 7}\n" for n in range(40))
    table.write_text(f"label,größe,v\n{rows}", encoding="utf-8")
    assert ask("learn", model, table, "--name", "Woche 一", encoding="ascii").code == 0
    return model, table


def forms(model, table):
    for form in ("text", "json"):
        yield "show", model, "--format", form
        yield "forget-check", model, table, "--format", form
    for form in ("text", "json", "csv"):
        yield "predict", model, table, "--format", form
    yield "export", model, model.with_suffix(".onnx")
    yield "learn", model, table, "--name", "zwölf", "--again"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_command_writes_what_a_terminal_can_take(known, encoding):
    model, table = known
    for words in forms(model, table):
        answer = ask(*words, encoding=encoding)
        assert answer.code == 0, answer
        if "json" in words:
            json.loads(answer.out)
    refusal = ask("show", model.with_name("無.ucb"), encoding=encoding)
    assert refusal.code == 2
    assert ("無" if encoding == "utf-8" else r"\u7121") in refusal.err


def test_json_has_the_names_whatever_the_terminal(known):
    model, table = known
    for encoding in ("ascii", "latin-1", "utf-8"):
        facts = json.loads(ask("show", model, "--format", "json", encoding=encoding).out)
        assert set(facts["classes"]) == set(NAMES)
        assert facts["waves"][0]["name"] == "Woche 一"
    assert "猫" in ask("show", model, "--format", "json").out
    rows = csv.DictReader(io.StringIO(ask("predict", model, table, "--format", "csv").out))
    assert {row["label"] for row in rows} <= set(NAMES)


def test_numbers_and_nouns_agree(tmp_path):
    table, model = tmp_path / "one.csv", tmp_path / "m.ucb"
    table.write_text("label,u,v\na,1,2\na,inf,3\n")
    said = ask("learn", model, table).out
    assert "1 example could not be read and is left out:" in said
    assert "learnt 'wave 1': 1 example of 1 class, 1 of them new" in said
    assert " kB)" in said
    shown = ask("show", model).out
    assert "1 class: a (1)" in shown
    assert " kB, fixed" in shown
    assert "before they become probabilities" in shown
    checked = ask("forget-check", model, table).out
    assert "1 example of classes it knows" in checked


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (15_940, "15.9 kB"), (33_290_000, "33.3 MB")],
)
def test_sizes(number, said):
    assert format_bytes(number) == said
