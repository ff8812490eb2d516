"""Documents say what the result files and the code say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_figures_in_the_documents_come_from_result_files():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import write_docs
    finally:
        sys.path.pop(0)
    texts = {document.name: document.read_text() for document in write_docs.DOCUMENTS}
    assert texts["performance.md"].count("| one step |") == 2
    assert texts["methods.md"].count("| `ucb-ng` |") >= 4
    for text in texts.values():
        assert write_docs.written(text) == text


def python_blocks():
    for name in ("README.md", "CONTRIBUTING.md", "docs/core.md", "docs/runs.md"):
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)):
            yield pytest.param(block, id=f"{name}-{number}")


@pytest.mark.parametrize("block", list(python_blocks()))
def test_examples_in_documents_run(block, tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", block], check=True, timeout=300, cwd=tmp_path)


def test_imports_point_inwards():
    """A room knows itself and those further in; nobody knows the command line."""
    inner = {
        "bayes": set(),
        "optim": {"bayes"},
        "metrics": {"bayes"},
        "nets": {"bayes"},
        "stream": {"bayes", "datasets", "seeds"},
    }
    inner["datasets"] = {"bayes"}
    inner["methods"] = {"bayes", "optim", "nets"}
    inner["engine"] = {"bayes", "methods", "metrics", "nets", "seeds", "stream"}
    inner["waves"] = {"bayes", "datasets", "engine", "methods", "metrics", "nets", "optim", "seeds", "stream"}
    inner["tuning"] = {"engine", "stream"}
    inner["bench"] = {"bayes", "engine", "methods", "nets", "optim", "seeds", "stream"}
    inner["paper"] = {"bayes"}
    inner["report"] = {"bayes", "engine"}
    inner["reproduce"] = {"bayes", "engine", "methods", "nets", "paper", "stream"}
    inner["incremental"] = {*inner["waves"], "waves"}
    everywhere = {"devices", "progress", "storage"}
    inner |= {room: set() for room in everywhere}
    for room in inner:
        may_know = {room, *inner[room]} | (set() if room in everywhere else everywhere)
        place = ROOT / "src" / "ucb" / room
        for path in place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
            known = set(re.findall(r"^\s*from ucb\.(\w+)", path.read_text(), re.MULTILINE))
            assert known <= may_know, f"{path} imports {known - may_know}"
