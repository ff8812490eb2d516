"""Documents say what the result files and the code say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


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
        "data": {"bayes", "seeds"},
    }
    inner["methods"] = {"bayes", "optim", "nets"}
    inner["engine"] = {"bayes", "methods", "metrics", "nets", "seeds", "data"}
    inner["waves"] = {"bayes", "data", "engine", "methods", "metrics", "nets", "optim", "seeds"}
    inner["tuning"] = {"data", "engine"}
    inner["bench"] = {"bayes", "engine", "methods", "nets", "optim", "seeds", "data"}
    inner["paper"] = {"bayes"}
    inner["report"] = {"bayes", "engine"}
    inner["reproduce"] = {"bayes", "engine", "methods", "nets", "paper", "data"}
    inner["storage"] = set()
    for room in inner:
        may_know = {room, "storage", *inner[room]}
        for path in (ROOT / "src" / "ucb" / room).rglob("*.py"):
            found = re.findall(r"^\s*from ucb\.(experiments\.\w+|\w+)", path.read_text(), re.MULTILINE)
            known = {name.replace(".", "/") for name in found}
            assert known <= may_know, f"{path} imports {known - may_know}"
