"""Result files that cannot be used are named, with what is wrong and what to do."""

import json

import pytest

from tests.experiments.reproduce.made_up import keep, row, tiny
from ucb.experiments.reproduce.compare import compare_table
from ucb.experiments.reproduce.planning import DamagedResultError, results_of

WHOLE = {"seed": 0, "acc": 99.0, "bwt": None, "config": {}}
DAMAGES = [
    ("", "damaged: it holds no JSON object"),
    ('{"seed": 0, "acc": 9', "damaged: it holds no JSON object"),
    ("\xff\xfe", "damaged: it holds no JSON object"),
    ("[1]", "damaged: it holds no JSON object"),
    ("{}", "incomplete: it has no seed and no acc and no bwt and no config"),
    (json.dumps({name: WHOLE[name] for name in WHOLE if name != "config"}), "incomplete: it has no config"),
    (json.dumps(WHOLE | {"seed": 1}), "damaged: it is named after seed 0 and holds seed 1"),
    (json.dumps(WHOLE | {"config": None}), "damaged: its config is no JSON object"),
    (json.dumps(WHOLE | {"acc": None}), "damaged: its acc is None"),
    (json.dumps(WHOLE | {"acc": float("nan")}), "damaged: its acc is nan"),
    (json.dumps(WHOLE | {"acc": True}), "damaged: its acc is True"),
    (json.dumps(WHOLE | {"bwt": "-1"}), "damaged: its bwt is '-1'"),
    (json.dumps(WHOLE | {"seconds": None}), "damaged: its seconds are None"),
]


@pytest.mark.parametrize(("text", "said"), DAMAGES)
def test_the_file_the_damage_and_the_remedy_are_named(text, said, tmp_path):
    path = keep(tmp_path, tiny(), "ucb", 0, 99.0)
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DamagedResultError) as raised:
        compare_table(tiny(), tmp_path)
    assert str(raised.value) == f"{path} is {said}; remove it, and ucb reproduce tiny makes it anew"


def test_all_damaged_files_of_a_table_are_named_at_once(tmp_path):
    table = tiny(row("ord-ft"), row("ucb"), row("si"))
    paths = [keep(tmp_path, table, name, seed, 99.0) for name, seed in (("ord-ft", 0), ("si", 0), ("si", 1))]
    keep(tmp_path, table, "ucb", 0, 99.0)
    for path in paths:
        path.write_text("{}")
    with pytest.raises(DamagedResultError) as raised:
        compare_table(table, tmp_path)
    assert [line.split(" is ")[0] for line in str(raised.value).splitlines()] == [str(path) for path in paths]


def test_a_whole_file_is_read_and_one_of_another_row_is_not(tmp_path):
    table = tiny(row("ucb"), row("ucb", variant="seed", lr=0.5))
    for seed in (10, 9):
        keep(tmp_path, table, "ucb", seed, float(seed))
    (tmp_path / "tables" / "tiny" / "ucb-seed-seed0.json").write_text("{}")
    assert [result["acc"] for result in results_of(table, table.row("ucb"), tmp_path)] == [9.0, 10.0]
