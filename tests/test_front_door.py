"""`import ucb`: what it gives, what it costs, and the examples in its docstrings and in docs/api.md."""

import doctest
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ucb
from ucb.methods.base import methods_by_name

ROOT = Path(__file__).parent.parent
NAMES = [name for name in ucb.__all__ if name != "__version__"]
TASKS = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", (ROOT / "docs" / "api.md").read_text(), re.DOTALL | re.MULTILINE)
MOST_LINES = 12


@pytest.fixture(autouse=True)
def _methods_stay():
    """Methods that an example registers are gone for other tests of this process, which list all methods."""
    yield
    for name in [name for name, kind in methods_by_name.items() if not kind.__module__.startswith("ucb.methods.")]:
        del methods_by_name[name]


def needs(name):
    """Skip where an extra is not installed."""
    if "IncrementalClassifier" in name:
        pytest.importorskip("sklearn")


def python(code, **options):
    """Run a program, with one thread: beside other tests several would wait for each other."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=300, env=environment, **options)


def test_importing_it_loads_neither_torch_nor_numpy():
    python("import sys, ucb; dir(ucb); assert not {'torch', 'numpy', 'ucb.bayes'} & set(sys.modules)")


def test_every_name_is_there_and_listed():
    assert len(NAMES) == len(set(NAMES))
    assert {*ucb.__all__} <= {*dir(ucb)}
    for name in NAMES:
        needs(name)
        assert getattr(ucb, name) is getattr(ucb, name)
    with pytest.raises(AttributeError, match="module 'ucb' has no attribute 'nothing'"):
        _ = ucb.nothing


def test_editors_see_the_same_names():
    """What a type checker reads, the imports under TYPE_CHECKING, is what a program gets."""
    source = inspect.getsource(ucb)
    seen = {
        (found["to"], found["module"], found["name"])
        for found in re.finditer(
            r"^    from (?P<module>[\w.]+) import (?P<name>\w+) as (?P<to>\w+)(?:  # noqa: F401)?$",
            source,
            re.MULTILINE,
        )
    }
    table = {(name, place.partition(":")[0], place.partition(":")[2] or name) for name, place in ucb._MODULES.items()}
    assert seen == table


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_has_an_example_that_runs(name, tmp_path, monkeypatch):
    needs(name)
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(getattr(ucb, name))
    test = doctest.DocTestParser().get_doctest(text, {}, f"ucb.{name}", None, None)
    assert test.examples
    assert any(f"ucb.{name}" in example.source for example in test.examples)
    said = []
    assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize(("title", "text"), TASKS, ids=[title for title, _ in TASKS])
def test_a_task_of_a_library_user_is_a_dozen_lines(title, text, tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    needs(block)
    lines = [line for line in block.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES
    imported = set(re.findall(r"^\s*(?:import|from) ([\w., ]+?)(?: as \w+| import .*)?$", block, re.MULTILINE))
    assert imported <= {"ucb", "torch", "numpy"}
    assert set(re.findall(r"\bucb\.(\w+)", block)) <= set(NAMES)
    python(block, cwd=tmp_path)


def test_the_five_tasks_are_there():
    assert len(TASKS) == 5
