"""The house: imports point inwards, files are of a size that one reads, names are those of the field."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tools import measure_code

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "ucb"
EVERYWHERE = {"checks", "metrics", "observer", "seeds", "storage"}
"""Modules that every room may know; they know no room."""
INNER = {
    "kernels": set(),
    "bayes": {"kernels"},
    "optim": {"bayes", "kernels"},
    "nets": {"bayes", "kernels"},
    "data": set(),
    "methods": {"bayes", "kernels", "nets", "optim"},
    "engine": {"bayes", "data", "kernels", "methods", "nets"},
    "incremental": {"bayes", "data", "engine", "kernels", "methods", "nets", "optim"},
    "experiments/tuning": {"data", "engine", "methods"},
    "experiments/bench": {"bayes", "data", "engine", "kernels", "methods", "nets", "optim"},
    "experiments/report": {"engine"},
    "experiments/reproduce": {"data", "engine", "methods", "nets"},
    "testing": {"data", "engine", "methods", "nets"},
}
"""What each room may know, beside itself; a room is a folder, or one file."""


def rooms_known_by(path):
    """Return the rooms that a file imports, at its top or inside a function; imports for types alone do not count."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(node)
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and getattr(test.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(test)
    }
    modules = []
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    names = [module.split(".") for module in modules if module.startswith("ucb.")]
    return {"/".join(parts[1:3]) if parts[1] == "experiments" else parts[1] for parts in names} - {"__version__"}


@pytest.mark.parametrize("room", INNER)
def test_imports_point_inwards(room):
    paths = [*(SOURCE / room).rglob("*.py"), *SOURCE.glob(f"{room}.py")]
    assert paths
    for path in paths:
        beyond = rooms_known_by(path) - {room, *EVERYWHERE, *INNER[room]}
        assert not beyond, f"{path} imports {beyond}"


def test_what_every_room_may_know_knows_no_room():
    for name in EVERYWHERE:
        assert rooms_known_by(SOURCE / f"{name}.py") <= EVERYWHERE


def test_every_room_is_listed():
    rooms = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")}
    known = {*INNER, ".", "cli", "experiments"}
    assert {room for room in rooms if not any(room == k or room.startswith(f"{k}/") for k in known - {"."})} == {"."}
    assert {path.stem for path in SOURCE.glob("*.py")} == {*EVERYWHERE, "__init__", "__main__", "testing"}


def test_an_import_outwards_would_be_seen(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("from ucb import cli\ndef f():\n    import ucb.engine.loop\n    from ucb.bayes.elbo import ELBO\n")
    assert rooms_known_by(path) == {"cli", "engine", "bayes"}


def test_files_are_few_and_short():
    files = measure_code.files_of_the_package()
    assert len(files) <= 190
    assert max(path.read_text().count("\n") for path in files) <= 600


def test_commands_walk_through_few_files(tmp_path):
    assert len(measure_code.walk_run(tmp_path)) <= 45
    assert len(measure_code.walk_learn(tmp_path)) <= 35


def test_one_name_means_one_class():
    names = [
        node.name
        for path in measure_code.files_of_the_package()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert not {name for name in names if names.count(name) > 1}


def test_the_map_names_what_is_there():
    """Docs say where to find things: every symbol in the table of docs/architecture.md exists."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("## Where is")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \|", table, re.MULTILINE)[2:]
    assert len(rows) >= 8
    for row in rows:
        symbols = re.findall(r"`(ucb\.[\w.]+)`", row)
        assert symbols, row
        for symbol in symbols:
            module, _, name = symbol.rpartition(".")
            try:
                importlib.import_module(symbol)
            except ModuleNotFoundError:
                found = importlib.import_module(module) if module.split(".")[-1].islower() else None
                if found is None:
                    outer, _, kind = module.rpartition(".")
                    found = getattr(importlib.import_module(outer), kind)
                assert hasattr(found, name), symbol
