"""Documents say what the result files and the classes say."""

import json

from tools.docs import documents


def test_writing_the_documents_changes_nothing():
    texts = {document.name: document.read_text() for document in documents.DOCUMENTS}
    assert texts["performance.md"].count("| one step |") == 2
    assert texts["methods.md"].count("| `ucb-ng` |") >= 4
    for name, text in texts.items():
        assert documents.rewrite(text) == text, f"{name}: run python -m tools.docs"


def test_the_documents_show_a_gpus_figures_once_there_are_some(tmp_path, monkeypatch):
    text = "before\n<!-- figures: step-gpu -->\nnot yet\n<!-- end -->\nafter"
    monkeypatch.setattr(documents, "result_file", lambda name: tmp_path / f"{name}.json")
    assert documents.rewrite(text) == text
    row = {"ms": [0.5], "median": 0.5, "of": {"1 net": None}}
    bar = {"row": "weights", "of": None, "limit": 0.3, "said": "0.30 ms", "value": 0.5, "holds": False}
    group = {"title": "A net", "rows": {"weights": row}, "bars": [bar]}
    found = {"nets": {"mlp": group}, "kernels": "K", "machine": "M"}
    (tmp_path / "step-gpu.json").write_text(json.dumps(found))
    made = documents.rewrite(text)
    assert "| weights | 0.500 | - | 0.30 ms: MISSED |\n" in made
    assert "not yet" not in made
    assert made.startswith("before\n<!-- figures: step-gpu -->\n")
    assert made.endswith("\n<!-- end -->\nafter")
