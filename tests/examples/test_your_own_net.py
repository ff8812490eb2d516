"""The program keeps its promise, and prints what its header says."""

import importlib.util
import re
from pathlib import Path

FILE = Path(__file__).parents[2] / "examples" / "your_own_net.py"


def figures(text):
    """All percentages in a text, in order."""
    return [float(figure) for figure in re.findall(r"([\d.]+) %", text)]


def test_consolidating_protects_the_first_task_and_doubt_marks_mistakes(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("your_own_net", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr("sys.argv", [str(FILE)])
    module.main()
    found, said = figures(capsys.readouterr().out), figures(module.__doc__)
    assert len(found) == len(said) == 8
    assert max(abs(a - b) for a, b in zip(found, said, strict=True)) < 5  # other noise without a compiler: 4.4
    first, unprotected, _, _, protected, second, sure, unsure = found
    assert protected > first - 4
    assert protected > unprotected + 5
    assert second > 85
    assert sure > unsure + 5
