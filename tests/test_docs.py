"""Documents say what the result files and the code say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def python_blocks():
    for name in ("README.md", "CONTRIBUTING.md", "docs/core.md", "docs/methods.md", "docs/runs.md"):
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)):
            yield pytest.param(block, id=f"{name}-{number}")


@pytest.mark.parametrize("block", list(python_blocks()))
def test_examples_in_documents_run(block, tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", block], check=True, timeout=300, cwd=tmp_path)
