"""What columns of a table hold, and how texts, dates and missing values become numbers."""

import hashlib
import math
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pytest
import torch

from ucb.data.readers import ColumnKind, open_labelled, open_unlabelled
from ucb.data.readers.columns import FEW, MANY, MOST, ROOM, expand, parse_date, read_cells

from .files import everything, whys


def write_csv(path, columns):
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def places_of(name, text, places):
    """The places of a text, worked out anew."""
    key = hashlib.blake2b(name.encode()).digest()
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=key).digest(), "little")
    first = number % places
    return {first, (first + 1 + (number // places) % (places - 1)) % places}


def encode(name, places, texts):
    kind = ColumnKind("text", places)
    return expand([kind], read_cells(name, kind, texts)[0][:, None])


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-02-29", datetime(2024, 2, 29)),
        (" 2024-02-29T06:30:15 ", datetime(2024, 2, 29, 6, 30, 15)),
        ("2024-02-29 06:30", datetime(2024, 2, 29, 6, 30)),
        ("2024-02-29T01:00+02:00", datetime(2024, 2, 28, 23)),
        ("2024-02-29T06:00Z", datetime(2024, 2, 29, 6)),
        ("2024/2/9", datetime(2024, 2, 9)),
        ("9.2.2024", datetime(2024, 2, 9)),
        ("09.02.2024 06:30", datetime(2024, 2, 9, 6, 30)),
        ("9 Feb 2024", datetime(2024, 2, 9)),
        ("9-FEB-2024", datetime(2024, 2, 9)),
        ("9 February 2024", datetime(2024, 2, 9)),
        ("Feb 9, 2024", datetime(2024, 2, 9)),
        ("Sept. 9 2024", datetime(2024, 9, 9)),
        ("1969-12-31", datetime(1969, 12, 31)),
        ("01/02/2024", None),
        ("2024-02-30", None),
        ("31.02.2024", None),
        ("9 Foo 2024", None),
        ("0000-00-00", None),
        ("today", None),
        ("2024-02-29 at noon", None),
        ("2" * 100, None),
    ],
)
def test_dates(text, moment):
    found = parse_date(text)
    expected = None if moment is None else (moment - datetime(1970, 1, 1)).total_seconds() / 86400
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-9))


def test_a_first_wave_settles_what_columns_hold(tmp_path):
    n = 40
    columns = {
        "plain": range(n),
        "gaps": ["NA" if row % 10 == 3 else row / 4 for row in range(n)],
        "town": [("Oslo", "Rome", " Oslo ", "", "n/a")[row % 5] for row in range(n)],
        "day": [date(2024, 1, 1) + timedelta(row) for row in range(n)],
        "late": [f"{row % 28 + 1}.3.2024 12:00" if row % 7 else "?" for row in range(n)],
        "code": [("7", "8A", "9")[row % 3] for row in range(n)],
        "empty": ["-"] * n,
        "label": ["ab"[row % 2] for row in range(n)],
    }
    examples = open_labelled(write_csv(tmp_path / "t.csv", columns))
    kinds = dict(zip(examples.columns, examples.kinds, strict=True))
    assert kinds == {
        "plain": ("number", 1),
        "gaps": ("number", 2),
        "town": ("text", FEW),
        "day": ("date", 7),
        "late": ("date", 8),
        "code": ("text", FEW),
    }
    assert examples.shape == (1 + 2 + FEW + 7 + 8 + FEW,)
    assert examples.remarks == [
        "left out, because all values are missing: 'empty'",
        "taken as text: 'town', 'code'",
        "taken as dates: 'day', 'late'",
        "values are missing, which is learnt from, too: 'gaps', 'town', 'late'",
    ]
    x = everything(examples)[1].double().numpy()
    np.testing.assert_array_equal(x[:, 0], range(n))
    missing = np.arange(n) % 10 == 3
    np.testing.assert_array_equal(x[:, 1], np.where(missing, np.nan, np.arange(n) / 4))
    np.testing.assert_array_equal(x[:, 2], missing)
    for row in range(n):
        town = ("Oslo", "Rome", "Oslo", "", "")[row % 5]
        assert set(np.flatnonzero(x[row, 3 : 3 + FEW])) == places_of("town", town, FEW)
    days = (date(2024, 1, 1) - date(1970, 1, 1)).days + np.arange(n)
    np.testing.assert_array_equal(x[:, 3 + FEW], days)
    year, week = 2 * np.pi * days / 365.2425, 2 * np.pi * np.array([(d + 4) % 7 - 4 for d in days]) / 7
    circles = np.stack([np.sin(year), np.cos(year), np.sin(week), np.cos(week), 0 * year, 0 * year + 1], 1)
    np.testing.assert_allclose(x[:, 4 + FEW : 10 + FEW], circles, atol=1e-6)
    late = x[:, 10 + FEW : 18 + FEW]
    gone = np.arange(n) % 7 == 0
    assert np.isnan(late[gone, :7]).all()
    np.testing.assert_array_equal(late[:, 7], gone)
    np.testing.assert_allclose(late[~gone, 5:7], [[0, -1]] * (~gone).sum(), atol=1e-6)  # noon
    weekdays = np.array([date(2024, 3, row % 28 + 1).weekday() - 3 for row in range(n)])[~gone]  # from Thursday
    week = 2 * np.pi * weekdays / 7
    np.testing.assert_allclose(late[~gone, 3:5], np.stack([np.sin(week), np.cos(week)], 1), atol=1e-6)


def test_a_table_of_numbers_alone_is_as_it_was(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    columns = {name: [repr(float(v)) for v in x[:, place]] for place, name in enumerate("uvw")}
    examples = open_labelled(write_csv(tmp_path / "t.csv", columns | {"label": ["a", "b"] * 25}))
    assert examples.kinds is None
    assert examples.remarks == []
    np.testing.assert_array_equal(everything(examples)[1].numpy(), x)


def test_texts_have_their_places_in_any_wave_and_any_form():
    """Whatever stands beside them, with composed or separate accents, and another place in another column."""
    alone = encode("c", 64, ["caf\u00e9"])
    among = encode("c", 64, ["x", "y", " cafe\u0301 ", "z"])
    np.testing.assert_array_equal(among[2], alone[0])
    assert alone.sum() == 2
    assert (encode("d", 64, ["caf\u00e9"]) != alone).any()
    blank = encode("c", 64, ["", "NA", "null", " - ", "None", "?"])
    assert (blank == blank[0]).all()
    assert blank[0].sum() == 2


@pytest.mark.parametrize("texts", [16, 64])
def test_few_texts_are_confused_and_most_are_independent(texts):
    """In four times as many places 1/16 of a pair is expected to share both places; a new text is a new direction."""
    columns, places = 400, 4 * texts
    pairs, independent, new = 0, 0, 0
    for column in range(columns):
        x = encode(f"column {column}", places, [f"text {number}" for number in range(texts + 1)])
        assert (x.sum(1) == 2).all()
        pairs += texts - len(np.unique(x[:texts], axis=0))
        rank = np.linalg.matrix_rank(x[:texts])
        independent += rank
        new += np.linalg.matrix_rank(x) > rank
    expected = columns * texts * (texts - 1) / (places * (places - 1))
    assert abs(pairs - expected) < 4 * math.sqrt(expected)
    assert independent / (columns * texts) > 0.985
    assert new / columns > 0.95


def test_places_follow_the_number_of_texts_within_limits(tmp_path):
    n = 600
    columns = {"few": [f"a{row % 3}" for row in range(n)], "more": [f"b{row % 30}" for row in range(n)]}
    columns["most"] = [f"c{row % 300}" for row in range(n)]
    examples = open_labelled(write_csv(tmp_path / "t.csv", columns | {"label": ["a", "b"] * 300}))
    assert [kind.width for kind in examples.kinds] == [FEW, 128, MOST]
    many = {f"t{place}": ["x", "y"] * 10 for place in range(60)}
    examples = open_labelled(write_csv(tmp_path / "t.csv", many | {"u": range(20), "label": ["a", "b"] * 10}))
    assert {kind.width for kind in examples.kinds[:-1]} == {16}
    assert examples.shape[0] <= ROOM


def test_a_text_that_names_rows_is_left_out(tmp_path):
    columns = {"id": [f"row-{row}" for row in range(MANY)], "town": ["Oslo", "Rome"] * (MANY // 2)}
    path = write_csv(tmp_path / "t.csv", columns | {"label": ["a", "b"] * (MANY // 2)})
    examples = open_labelled(path)
    assert examples.columns == ["town"]
    assert examples.remarks[0] == "left out, because no text comes twice and so none can be learnt from: 'id'"
    columns["id"][1] = "row-0"
    examples = open_labelled(write_csv(path, columns | {"label": ["a", "b"] * (MANY // 2)}))
    assert examples.columns == ["id", "town"]
    only = {"id": [f"row-{row}" for row in range(MANY)], "label": ["a", "b"] * (MANY // 2)}
    with pytest.raises(ValueError, match="no column that anything can be learnt from; left out, because no text comes"):
        open_labelled(write_csv(path, only))


@pytest.mark.parametrize("text", ["01/02/2024", "1,5", "12 %", "$7.50", "1'000"])
def test_what_may_be_meant_as_a_number_or_a_date_is_named(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text("u;label\n" + f"{text};a\n" * 3)
    said = f"column 'u' is taken as text, such as {text!r}: write numbers as 1234.5"
    assert any(remark.startswith(said) for remark in open_labelled(path).remarks)


KINDS = [ColumnKind(), ColumnKind("number", 2), ColumnKind("text", FEW), ColumnKind("date", 7)]
NAMES = ["u", "g", "t", "d"]
WIDTH = sum(kind.width for kind in KINDS)


def read_later(path, text):
    path.write_text(text)
    return open_labelled(path, (WIDTH,), columns=NAMES, kinds=KINDS)


def test_later_waves_keep_the_kinds(tmp_path):
    rows = [
        "1,2,3,2024-01-01,a",
        ",,,,a",
        "x,2,3,2024-01-01,a",
        "1,2,3,0000-00-00,a",
        "1,x,3,2024-01-01,a",
        "4,,?,5 May 2024,b",
    ]
    examples = read_later(tmp_path / "t.csv", "\n".join(["u,g,t,d,label", *rows]))
    assert whys(examples) == {
        "row 3": "column 'u' holds 'x', which is no number (line 4)",
        "row 4": "column 'd' holds '0000-00-00', which is no date (line 5)",
        "row 5": "column 'g' holds 'x', which is no number (line 6)",
    }
    assert examples.kinds == KINDS
    assert examples.missing == ["u", "g", "d"]
    said = "values are missing that were there in the first wave, and count as its mean: 'u', 'd'"
    assert said in examples.remarks
    x = everything(examples)[1].numpy()
    np.testing.assert_array_equal(x[:, :3], [[1, 2, 0], [np.nan, np.nan, 1], [4, np.nan, 1]])
    assert set(np.flatnonzero(x[0, 3 : 3 + FEW])) == places_of("t", "3", FEW)
    assert set(np.flatnonzero(x[1, 3 : 3 + FEW])) == set(np.flatnonzero(x[2, 3 : 3 + FEW])) == places_of("t", "", FEW)
    assert np.isnan(x[1, -7:]).all()


@pytest.mark.parametrize(
    ("row", "said"), [("x,1,a,2024-01-01", "'u' holds no number"), ("1,1,a,5", "'d' holds no date")]
)
def test_a_column_of_another_kind_is_named(tmp_path, row, said):
    with pytest.raises(ValueError, match=f"column {said} in any row, but .* and the like, and the model learnt"):
        read_later(tmp_path / "t.csv", f"u,g,t,d,label\n{row},k\n{row},k\n")
    with pytest.raises(ValueError, match="lacks 2 columns: 'g', 'd'"):
        read_later(tmp_path / "t.csv", "u,t,label\n1,x,k\n")


def test_parquet_has_kinds_of_its_own(tmp_path):
    """The same table as text and as pyarrow's types, dates with zones and texts by number among them, is the same."""
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    zone = timezone(timedelta(hours=2))
    days = [date(2024, 1, 1) + timedelta(row) for row in range(12)]
    moments = [datetime(2024, 1, 1, 13, 30, 5) + timedelta(days=3 * row) for row in range(12)]
    towns = ["Oslo", "Rome", None, "Oslo"] * 3
    numbers = [None if row == 5 else row / 8 for row in range(12)]
    own = {
        "day": arrow.array(days),
        "moment": arrow.array([m - timedelta(hours=2) for m in moments], arrow.timestamp("ns", "UTC")),
        "town": arrow.array(towns).dictionary_encode(),
        "large": arrow.array(towns, arrow.large_string()),
        "number": arrow.array(numbers),
        "late": arrow.array([None, *days[1:]], arrow.date64()),
        "nothing": arrow.nulls(12),
        "label": arrow.array(["a", "b"] * 6),
    }
    files.write_table(arrow.table(own), tmp_path / "t.parquet")
    text = {
        "day": days,
        "moment": [m.replace(tzinfo=zone).isoformat() for m in moments],
        "town": [town or "NA" for town in towns],
        "large": [town or "" for town in towns],
        "number": ["nan" if v is None else v for v in numbers],
        "late": ["", *days[1:]],
        "nothing": [""] * 12,
        "label": ["a", "b"] * 6,
    }
    of_text = open_labelled(write_csv(tmp_path / "t.csv", text))
    of_arrow = open_labelled(tmp_path / "t.parquet")
    assert (of_arrow.kinds, of_arrow.columns, of_arrow.remarks) == (of_text.kinds, of_text.columns, of_text.remarks)
    assert [kind for kind, _ in of_arrow.kinds] == ["date", "date", "text", "text", "number", "date"]
    np.testing.assert_array_equal(everything(of_arrow)[1].numpy(), everything(of_text)[1].numpy())
    later = open_unlabelled([str(tmp_path / "t.parquet")], of_text.shape, columns=of_text.columns, kinds=of_text.kinds)
    assert torch.equal(everything(later)[1].nan_to_num(), everything(of_text)[1].nan_to_num())


def test_numbers_and_dates_of_parquet_are_texts_where_texts_were_learnt(tmp_path):
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    own = {"t": arrow.array([3.0, None]), "s": arrow.array([date(2024, 1, 2), date(99, 1, 1)])}
    files.write_table(arrow.table(own), tmp_path / "t.parquet")
    kinds = [ColumnKind("text", FEW)] * 2
    x = everything(open_unlabelled([str(tmp_path / "t.parquet")], (2 * FEW,), columns=["t", "s"], kinds=kinds))[1]
    assert set(np.flatnonzero(x[0, :FEW])) == places_of("t", "3", FEW)
    assert set(np.flatnonzero(x[1, :FEW])) == places_of("t", "", FEW)
    assert set(np.flatnonzero(x[0, FEW:])) == places_of("s", "2024-01-02", FEW)
    kinds = [ColumnKind("date", 7), ColumnKind("text", FEW)]
    with pytest.raises(ValueError, match="column 't' holds no date in any row, but '3' and the like"):
        open_unlabelled([str(tmp_path / "t.parquet")], (7 + FEW,), columns=["t", "s"], kinds=kinds)
