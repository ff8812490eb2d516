"""Tables with text, dates and missing values, from `learn` to `forget-check`."""

import csv
import json
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import nn

from tests.support import ask
from ucb.incremental import Model
from ucb.incremental.checked_file import DamagedModelError, pack, unpack
from ucb.incremental.model_file import to_bytes
from ucb.incremental.trunks import RowTrunk

pytestmark = pytest.mark.usefixtures("small")
NAMES = ["town", "size", "weight", "day", "label"]
TOWNS = {"fish": ("Oslo", "Bergen"), "bird": ("Rome", "Oslo"), "crab": ("Rome", "Bergen")}


def make_rows(seed, each=30, town=None):
    """Rows whose class depends on the town, on a size that is missing in some rows, and on the season."""
    numbers = np.random.default_rng(seed)
    rows = []
    for kind, (label, towns) in enumerate(TOWNS.items()):
        for _ in range(each):
            size = "NA" if numbers.random() < 0.1 else f"{numbers.normal(3 * kind, 1):.3f}"
            day = np.datetime64("2024-01-01") + int(120 * kind + numbers.integers(60))
            rows.append([town or towns[numbers.integers(2)], size, f"{numbers.normal():.3f}", str(day), label])
    numbers.shuffle(rows)
    return rows


def write_table(path, rows, names=NAMES):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([row[NAMES.index(name)] for name in names] for row in rows)
    return path


@pytest.fixture
def model(tmp_path):
    made = Model()
    made.learn(write_table(tmp_path / "first.csv", make_rows(0)))
    return made


def test_commands_take_tables_as_they_are(tmp_path):
    path, rows = tmp_path / "m.ucb", make_rows(2)
    learnt = ask("learn", path, write_table(tmp_path / "a.csv", make_rows(0)))
    assert learnt.code == 0
    for said in ("taken as text: 'town'", "taken as dates: 'day'", "missing, which is learnt from, too: 'size'"):
        assert said in learnt.out
    assert "90 examples" in learnt.out
    assert ask("learn", path, write_table(tmp_path / "b.tsv", make_rows(1), NAMES[::-1])).code == 0
    asked = write_table(tmp_path / "c.csv", rows, ["day", "weight", "size", "town"])
    answers = json.loads(ask("predict", path, asked, "--format", "json").out)
    found = answers if isinstance(answers, list) else next(v for v in answers.values() if isinstance(v, list))
    assert np.mean([a["label"] == row[-1] for a, row in zip(found, rows, strict=True)]) > 0.95
    checked = ask("forget-check", path, write_table(tmp_path / "d.csv", rows))
    assert checked.code == 0
    assert "fish" in checked.out
    lacking = ask("predict", path, write_table(tmp_path / "e.csv", rows, ["day", "size"]))
    assert "lacks 2 columns: 'town', 'weight'" in lacking.err


def test_a_file_keeps_the_kinds_and_answers_alike(model, tmp_path):
    model.save(tmp_path / "m.ucb")
    again = Model.open(tmp_path / "m.ucb")
    assert [kind for kind, _ in model.kinds] == ["text", "number", "number", "date"]
    assert (again.kinds, again.columns, again.shape) == (model.kinds, NAMES[:-1], model.shape)
    asked = write_table(tmp_path / "asked.csv", make_rows(3))
    assert again.predict(asked) == model.predict(asked)
    assert to_bytes(again) == to_bytes(model)


def test_a_table_of_numbers_alone_leaves_no_trace_of_kinds(tmp_path):
    """Its file has the fields of before, so that earlier versions read it."""
    rows = [[*row[1:3], row[-1]] for row in make_rows(0) if row[1] != "NA"]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["u", "v", "label"], *rows])
    model = Model()
    model.learn(tmp_path / "t.csv")
    assert model.kinds is None
    assert "kinds" not in unpack(to_bytes(model))[0]
    x = torch.tensor([[float(v) for v in row[:2]] for row in rows])
    of_arrays = Model()
    of_arrays.learn((x, [row[-1] for row in rows]))
    assert torch.equal(model.learner.head.gram, of_arrays.learner.head.gram)


@pytest.mark.parametrize("rows", [7, 2000])
def test_complete_rows_are_standardised_to_the_bit_as_before(rows):
    x = 100 * torch.randn(rows, 9, generator=torch.Generator().manual_seed(rows))
    x[:, 3] = 0.1
    trunk = RowTrunk((9,), 20)
    trunk.fit(x, 0)
    wide = x.double()
    mean, spread = wide.mean(0), (wide - wide.mean(0)).square().mean(0).sqrt()
    assert torch.equal(trunk.mean, mean.float())
    spread = torch.where(spread > 1e-6 * wide.abs().amax(0), spread, 1.0).float()
    assert torch.equal(trunk.spread, spread)
    standard = ((x - trunk.mean) / trunk.spread).clamp(-10, 10)
    combined = (standard.double() @ trunk.directions.double() + trunk.offsets).relu().float()
    assert torch.equal(trunk(x), torch.cat([standard, combined], 1))


def test_missing_numbers_are_the_mean_of_those_that_are_there():
    x = torch.randn(50, 3)
    x[::5, 0] = x[1::2, 1] = torch.nan
    x[:, 2] = torch.nan
    trunk = RowTrunk((3,), 20)
    trunk.fit(x, 0)
    own = x[:, :2].double().numpy()
    np.testing.assert_allclose(trunk.mean[:2], np.nanmean(own, 0), rtol=1e-6)
    np.testing.assert_allclose(trunk.spread[:2], np.nanstd(own, 0), rtol=1e-6)
    assert (float(trunk.mean[2]), float(trunk.spread[2])) == (0, 1)
    filled = torch.where(x.isnan(), trunk.mean, x)
    assert torch.equal(trunk(x), trunk(filled))
    assert not trunk(x)[::5, 0].any()


def test_marks_stay_and_combinations_vary_as_those_of_numbers():
    """A rare mark is not blown up, one that never was is larger, and the squares of a combination are 1 on average."""
    x = torch.zeros(400, 30)
    x[:, 0] = torch.randn(400)
    x[torch.arange(400), 1 + torch.arange(400) % 9] = 1
    x[7, 20] = 1
    marks = torch.arange(30) > 0
    trunk = RowTrunk((30,), 4000)
    trunk.fit(x, 0)
    usual = float(trunk.spread[0])
    trunk.fit_marks(x, marks)
    assert float(trunk.spread[0]) == usual
    seen = x.sum(0) > 0
    np.testing.assert_allclose(trunk.spread[1:], torch.where(seen[1:], 1, 1 / 3))
    standard = trunk(x)[:, :30]
    assert float((standard @ trunk.directions).square().mean()) == pytest.approx(1, abs=0.1)
    assert float(standard[7, 20]) == pytest.approx(1 - 1 / 400)


def test_a_model_leaves_marks_as_they_are(model):
    spread, kinds = model.learner.trunk.spread, model.kinds
    assert [kind.width for kind in kinds] == [64, 2, 1, 7]
    assert set(spread[:64].tolist()) == {1.0, float(torch.tensor(1 / 3))}
    assert float(spread[65]) == 1, "whether a size is missing"
    assert float(spread[64]) > 2


def test_rows_that_are_numbers_already_change_nothing_about_columns(model, tmp_path):
    from ucb.data.readers import open_labelled

    path = write_table(tmp_path / "b.csv", make_rows(1))
    examples = open_labelled(path, model.shape, columns=model.columns, kinds=model.kinds)
    x = torch.cat([some for _, some in examples.batches(torch.arange(len(examples)), 50)])
    usable = ~x.isnan().any(1)
    before = (model.columns, model.kinds)
    model.learn((x[usable], [label for label, good in zip(examples.labels, usable, strict=True) if good]))
    assert (model.columns, model.kinds) == before
    assert len(model.predict(path)) == 90


def test_a_text_never_seen_before_raises_doubt(tmp_path):
    model = Model()
    model.learn(write_table(tmp_path / "a.csv", make_rows(0, 100)))
    model.learn(write_table(tmp_path / "b.csv", make_rows(1, 100)))
    usual = model.predict(write_table(tmp_path / "usual.csv", make_rows(2)))
    assert np.mean([row["unsure"] for row in usual]) < 0.2
    for town in ("Atlantis", "Utopia", "Avalon", "NA"):
        new = model.predict(write_table(tmp_path / "new.csv", make_rows(2, town=town)))
        assert np.mean([row["unsure"] for row in new]) > 0.9, town
    model.learn(write_table(tmp_path / "c.csv", [[*row[:4], "whale"] for row in make_rows(3, 60, "Atlantis")]))
    known = model.predict(write_table(tmp_path / "new.csv", make_rows(4, town="Atlantis")))
    assert np.mean([row["unsure"] for row in known]) < 0.5
    assert np.mean([row["label"] == "whale" for row in known]) > 0.9


def test_waves_with_texts_may_come_in_any_order(model, tmp_path):
    """New texts and classes too: no more than rounding of the sums depends on it."""
    paths = [
        write_table(tmp_path / "1.csv", make_rows(1, 20)),
        write_table(tmp_path / "2.csv", make_rows(2, 20, "Atlantis")),
        write_table(tmp_path / "3.csv", [[*row[:4], "bird"] for row in make_rows(3, 20, "Utopia")]),
    ]
    start, heads = to_bytes(model), []
    for order in permutations(paths):
        (tmp_path / "m.ucb").write_bytes(start)
        again = Model.open(tmp_path / "m.ucb")
        for path in order:
            again.learn(path)
        heads.append(again.learner.head)
    for head in heads[1:]:
        torch.testing.assert_close(head.gram, heads[0].gram, rtol=1e-12, atol=1e-9)
        torch.testing.assert_close(head.moments, heads[0].moments, rtol=1e-12, atol=1e-9)


def test_the_same_wave_is_known_again_as_parquet(model, tmp_path):
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = dict(zip(NAMES, map(list, zip(*make_rows(0), strict=True)), strict=True))
    columns["size"] = [None if text == "NA" else float(text) for text in columns["size"]]
    columns["weight"] = [float(text) for text in columns["weight"]]
    columns["day"] = arrow.array(np.array(columns["day"], "datetime64[D]"))
    files.write_table(arrow.table(columns), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="these data were learnt before"):
        model.learn(tmp_path / "t.parquet")


ODD = [None, 3, "x", {}, [], [None] * 4, [["text"]] * 4, [["text", 64, 1]] * 4, [["word", 64]] * 4, [["text", 1e3]] * 4]


def test_kinds_that_cannot_be_are_refused(model):
    values, tensors = unpack(to_bytes(model))
    for odd in ODD:
        with pytest.raises(DamagedModelError, match="kinds"):
            read(values | {"kinds": odd}, tensors)
    kinds = values["kinds"]
    for place, wrong in [
        (0, ["text", 3]),
        (0, ["text", 257]),
        (1, ["number", 3]),
        (2, ["number", True]),
        (3, ["date", 6]),
    ]:
        with pytest.raises(DamagedModelError, match=rf"kinds\[{place}\] is no kind of column"):
            read(values | {"kinds": [*kinds[:place], wrong, *kinds[place + 1 :]]}, tensors)
    with pytest.raises(DamagedModelError, match="columns do not fit their kinds"):
        read(values | {"kinds": kinds[:-1]}, tensors)
    with pytest.raises(DamagedModelError, match="columns do not fit their kinds"):
        read(values | {"columns": None}, tensors)
    with pytest.raises(DamagedModelError, match="columns do not fit the shape"):
        read(values | {"kinds": [["text", 128], *kinds[1:]]}, tensors)


def read(values, tensors):
    from ucb.incremental.model_file import _understand

    return _understand(unpack(pack(values, tensors)), "it", None)


def test_what_a_mixed_table_cannot_do_is_said(model, tmp_path):
    with pytest.raises(ValueError, match="cannot be exported: it learnt a table with text, dates or missing values"):
        model.export(tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="the model learnt a table with text, dates or missing values: give"):
        model.predict(torch.zeros(3, 4))
    with pytest.raises(ValueError, match="a module as the trunk takes no missing values, and there are some in 'size'"):
        Model(trunk=nn.Flatten()).learn(tmp_path / "first.csv")
    path = tmp_path / "first.csv"
    path.write_text(path.read_text().replace("NA,", "1,"))
    own = Model(trunk=nn.Flatten())
    own.learn(path)
    path.write_text("town,size,weight,day\nOslo,1,,2024-01-01\n")
    with pytest.raises(ValueError, match="takes no missing values, and there are some in 'weight'"):
        own.predict(path)


def test_a_missing_value_where_none_was_counts_as_the_mean_and_is_said(model, tmp_path):
    rows = make_rows(5, 2)
    gaps = [[*row[:2], "?", *row[3:]] for row in rows]
    at_the_mean = [[*row[:2], float(model.learner.trunk.mean[66]), *row[3:]] for row in rows]
    found = model.predict(write_table(tmp_path / "gaps.csv", gaps))
    assert found.remarks[-1].endswith("count as its mean: 'weight'")
    assert found == model.predict(write_table(tmp_path / "mean.csv", at_the_mean))


def test_a_net_that_learns_takes_mixed_tables_too(tmp_path):
    model = Model("ucb-ng", net="mlp")
    model.learn(write_table(tmp_path / "a.csv", make_rows(0)), epochs=2)
    assert bool(model.learner.mean.isfinite().all())
    model.save(tmp_path / "m.ucb")
    answers = Model.open(tmp_path / "m.ucb").predict(write_table(tmp_path / "b.csv", make_rows(1)))
    assert len(answers) == 90
    assert all(0 <= row["probability"] <= 1 for row in answers)
