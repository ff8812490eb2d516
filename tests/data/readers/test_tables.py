"""Tables as text and in parquet files, which follow the same rules."""

import os

import numpy as np
import pytest
import torch

from ucb.data.readers import fingerprint, open_labelled, open_unlabelled
from ucb.data.readers.tables import VALUES

from .files import everything, whys


def written(tmp_path, text, name="table.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


IRIS = "width,height,label\n1.5,2,rose\n-3e2,4.25,tulip\n5,6,rose\n7,8,tulip\n"
NUMBERS = [[1.5, 2], [-300, 4.25], [5, 6], [7, 8]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text(tmp_path, encoding, mark, end):
    path = written(tmp_path, IRIS.replace(",", mark).replace("\n", end), encoding=encoding)
    examples = open_labelled(path)
    assert examples.shape == (2,)
    assert examples.columns == ["width", "height"]
    assert examples.labels == ["rose", "tulip", "rose", "tulip"]
    assert examples.names == ["row 1", "row 2", "row 3", "row 4"]
    assert (examples.skipped, examples.remarks) == ([], [])
    positions, x = everything(examples, 3)
    assert positions == [0, 1, 2, 3]
    assert x.dtype == torch.float32
    assert x.tolist() == NUMBERS


def test_quotes_blank_lines_and_any_script(tmp_path):
    path = written(tmp_path, '\n"größe, in cm",label\n"1","猫, ""groß"""\n\n2, cafe\u0301 \n3,caf\u00e9\n')
    examples = open_labelled(path)
    assert examples.columns == ["größe, in cm"]
    assert examples.labels == ['猫, "groß"', "caf\u00e9", "caf\u00e9"]
    assert examples.remarks == ["class '猫, \"groß\"' has one example"]


def test_rows_that_cannot_be_used_are_listed_by_line(tmp_path):
    """Missing values are no such reason; text among numbers is, and so are numbers that are too large."""
    rows = ["1,2,a", ",2,a", "x,2,a", "nan,2,a", "inf,2,a", "1e60,2,a", "1,2", "1,2,a,3", "1,2,", "1_0,2,a"]
    path = written(tmp_path, "\n".join(["u,v,label", "", *rows, '"\n",7,a', *["8,9,a"] * 15]))
    examples = open_labelled(path)
    assert whys(examples) == {
        "row 3": "column 'u' holds 'x', which is no number (line 5)",
        "row 5": "column 'u' is not finite (line 7)",
        "row 6": "column 'u' is not finite (line 8)",
        "row 7": "it has 2 values for 3 columns (line 9)",
        "row 8": "it has 4 values for 3 columns (line 10)",
        "row 9": "it has no label (line 11)",
        "row 10": "column 'u' holds '1_0', which is no number (line 12)",
    }
    assert examples.names[:5] == ["row 1", "row 2", "row 4", "row 11", "row 12"]
    nan = float("nan")
    expected = [[1, 0, 2], [nan, 1, 2], [nan, 1, 2], [nan, 1, 7], [8, 0, 9]]
    np.testing.assert_array_equal(everything(examples)[1][:5].numpy(), expected)
    assert examples.remarks == ["values are missing, which is learnt from, too: 'u'"]


def test_many_rows_come_in_pieces(tmp_path):
    """Across several pieces numbers, labels, line numbers and names stay together."""
    n, width = 3 * VALUES // 400 + 7, 400
    x = np.random.default_rng(0).normal(size=(n, width)).astype(np.float32)
    lines = [",".join([*(f"{value:.9g}" for value in row), f"c{number % 3}"]) for number, row in enumerate(x)]
    lines[1000] = "broken"
    head = ",".join([*(f"f{column}" for column in range(width)), "class"])
    examples = open_labelled(written(tmp_path, "\n".join([head, *lines])))
    assert whys(examples) == {"row 1001": f"it has 1 values for {width + 1} columns (line 1002)"}
    kept = np.delete(np.arange(n), 1000)
    np.testing.assert_array_equal(everything(examples, 512)[1].numpy(), x[kept])
    assert examples.labels == [f"c{number % 3}" for number in kept]
    assert examples.names == [f"row {number + 1}" for number in kept]


@pytest.mark.parametrize("name", ["label", "Class", "TARGET"])
def test_a_usual_name_is_the_label(tmp_path, name):
    assert open_labelled(written(tmp_path, f"{name},u\na,1\nb,2\n")).labels == ["a", "b"]


def test_the_label_may_be_named(tmp_path):
    path = written(tmp_path, "class,sort,u\n3,a,1\n4,b,2\n")
    examples = open_labelled(path, label="sort")
    assert examples.labels == ["a", "b"]
    assert examples.columns == ["class", "u"]


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("", {}, "is empty"),
        ("\n\n", {}, "is empty"),
        (
            "a,b\n1,2\n",
            {},
            "called label, class or target: name the label's column with --label, one of 'a', 'b'",
        ),
        ("label,class,a\n1,2,3\n", {}, "'label', 'class' could each be the label"),
        ("a,b\n1,2\n", {"label": "c"}, "has no column 'c': it has 'a', 'b'"),
        ("a,a,label\n1,2,3\n", {}, "more than one column is called 'a'"),
        ("1,2,3\n4,5,6\n", {}, "its first line must name the columns"),
        ("label\na\n", {}, "has no columns beside its label"),
        ("a,label\n", {}, "holds no row that can be used"),
        ("a,b,label\n1,Rome,x\n2,Oslo,x\n", {"like": (2,)}, "column 'b' holds no number in any row, but 'Rome'"),
        ("b,label\n,x\nNA,x\n", {}, "has no column that anything can be learnt from; left out, because all values are"),
        ("a,b,label\n1,x,x\nx,2,x\n", {"like": (2,)}, "holds no row that can be used; row 1: column 'b' holds 'x'"),
        ('a,label\n1,"x\n2,y\n', {}, "line 3: unexpected end of data"),
        ("a,b,label\n1,2,x\n", {"like": (3,)}, "has 2 columns of numbers, and the model learnt rows of 3"),
        ("a,b,label\n1,2,x\n", {"like": (1, 8, 8)}, "is a table, and the model learnt images 8x8 in grey"),
        ("a,b,label\n1,2,x\n", {"columns": ["a", "c", "d"]}, "lacks 2 columns: 'c', 'd'"),
        ("a,b,label\n1,2,x\n", {"columns": ["a", "b"], "label": "b"}, "'b' is one that the model learnt from"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, text, options, why):
    with pytest.raises(ValueError, match=why):
        open_labelled(written(tmp_path, text), **options)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_named(tmp_path, encoding):
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        open_labelled(written(tmp_path, "größe,label\n1,a\n", encoding=encoding))


def test_a_long_column_of_text_in_place_of_numbers_is_found_without_reading_on(tmp_path):
    path = written(tmp_path, "a,label\n" + "word,x\n" * (2 * VALUES) + '"never read')
    with pytest.raises(ValueError, match="column 'a' holds no number in any row, but 'word' and the like"):
        open_labelled(path, (1,))


def test_the_models_columns_are_found_by_name(tmp_path):
    path = written(tmp_path, "extra,v,label,u\n9,2,a,1\nword,4,b,3\n")
    examples = open_labelled(path, (2,), columns=["u", "v"])
    assert examples.columns == ["u", "v"]
    assert everything(examples)[1].tolist() == [[1, 2], [3, 4]]
    assert examples.remarks[0] == "1 column is not the model's and is left out: 'extra'"


def test_columns_without_a_name_are_left_out(tmp_path):
    examples = open_labelled(written(tmp_path, ",u,label\n0,1,a\n1,2,a\n"))
    assert examples.columns == ["u"]
    assert examples.remarks == ["1 column without a name is left out"]


def test_unlabelled_tables(tmp_path):
    plain = written(tmp_path, "v,u\n2,1\n4,3\n", "plain.csv")
    examples = open_unlabelled([str(plain)], (2,), columns=["u", "v"])
    assert examples.labels is None
    assert everything(examples)[1].tolist() == [[1, 2], [3, 4]]
    with_labels = written(tmp_path, "u,v,label\n1,2,a\n3,4,\n", "with.csv")
    for columns in (None, ["u", "v"]):
        examples = open_unlabelled([str(with_labels)], (2,), columns=columns)
        assert examples.labels is None
        assert everything(examples)[1].tolist() == [[1, 2], [3, 4]]
        assert examples.remarks == ["1 column is not the model's and is left out: 'label'"]
    with pytest.raises(ValueError, match="must be the only input"):
        open_unlabelled([str(plain), str(with_labels)], (2,))
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        open_unlabelled([str(tmp_path / "none.csv")], (2,))
    with pytest.raises(ValueError, match="is a table, and the model learnt images"):
        open_unlabelled([str(plain)], (1, 8, 8))


def test_one_column(tmp_path):
    assert everything(open_unlabelled([str(written(tmp_path, "u\n1\n2\n"))], (1,)))[1].tolist() == [[1], [2]]


def test_fingerprint_of_a_table(tmp_path):
    path = written(tmp_path, IRIS)
    first = fingerprint(open_labelled(path))
    assert fingerprint(open_labelled(path)) == first
    written(tmp_path, IRIS + "9,9,rose\n")
    assert fingerprint(open_labelled(path)) != first


def test_fingerprint_looks_at_the_labels(tmp_path):
    """The size and the time of a file may be the same, and its labels not."""
    seen = set()
    for text in (IRIS, IRIS.replace("tulip", "daisy")):
        path = written(tmp_path, text)
        os.utime(path, (0, 0))
        seen.add(fingerprint(open_labelled(path)))
    assert len(seen) == 2


def parquet(path, columns, **options):
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files.write_table(arrow.table(columns), path, **options)
    return path


def test_parquet(tmp_path):
    path = parquet(
        tmp_path / "table.parquet",
        {"width": [1.5, -300, 5, 7], "height": [2, 4.25, 6, 8], "label": ["rose", "tulip", "rose", "tulip"]},
        row_group_size=3,
    )
    examples = open_labelled(path)
    assert (examples.shape, examples.columns) == ((2,), ["width", "height"])
    assert examples.labels == ["rose", "tulip", "rose", "tulip"]
    assert examples.names == ["row 1", "row 2", "row 3", "row 4"]
    assert everything(examples)[1].tolist() == NUMBERS
    assert everything(open_unlabelled([str(path)], (2,)))[1].tolist() == NUMBERS
    turned = open_labelled(path, (2,), columns=["height", "width"])
    assert everything(turned)[1].tolist() == [row[::-1] for row in NUMBERS]


def test_parquet_has_values_of_many_types(tmp_path):
    from decimal import Decimal

    arrow = pytest.importorskip("pyarrow")
    columns = {
        "whole": arrow.array([1, 2, None, 4], arrow.int64()),
        "flag": arrow.array([True, False, True, True]),
        "exact": arrow.array([Decimal("1.5"), Decimal("2.5"), Decimal("3.5"), Decimal("4.5")]),
        "text": arrow.array(["1", "2", "3", "4"]),
        "chosen": arrow.array(["1", "1", "2", "2"]).dictionary_encode(),
        "small": arrow.array(np.array([1, 2, 3, 4], np.float16)),
        "class": arrow.array([0.0, 1.0, 2.0, 0.0]),
    }
    examples = open_labelled(parquet(tmp_path / "table.parquet", columns))
    assert examples.skipped == []
    assert examples.labels == ["0", "1", "2", "0"]
    expected = [[1, 0, 1, 1.5, 1, 1, 1], [2, 0, 0, 2.5, 2, 1, 2], [np.nan, 1, 1, 3.5, 3, 2, 3], [4, 0, 1, 4.5, 4, 2, 4]]
    np.testing.assert_array_equal(everything(examples)[1].numpy(), expected)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([[1], [2]], "column 'u' holds list<.*>, and only numbers, dates and texts can be learnt"),
        ([None, None], "has no column that anything can be learnt from; left out, because all values are missing: 'u'"),
        ([np.inf, np.inf], "holds no row that can be used; row 1: column 'u' is not finite"),
        ([], "holds no row that can be used"),
    ],
)
def test_what_is_wrong_with_a_parquet_file_is_said(tmp_path, values, why):
    path = parquet(tmp_path / "table.pq", {"u": values, "label": ["a"] * len(values)})
    with pytest.raises(ValueError, match=why):
        open_labelled(path)


@pytest.mark.parametrize(
    "values",
    [
        lambda arrow: arrow.array([[1], [2], [1], [2]]),
        lambda arrow: arrow.array([[1, 2]] * 4, arrow.list_(arrow.int64(), 2)),
        lambda arrow: arrow.array([{"a": 1, "b": "x"}] * 4),
        lambda arrow: arrow.array([[("a", 1)]] * 4, arrow.map_(arrow.string(), arrow.int64())),
    ],
)
def test_nested_values_of_parquet_are_neither_labels_nor_numbers(tmp_path, values):
    """As a label such a value would be a class by the way Python writes it."""
    nested = values(pytest.importorskip("pyarrow"))
    path = parquet(tmp_path / "table.parquet", {"u": [1.0, 2, 3, 4], "kinds": nested})
    with pytest.raises(ValueError, match=r"column 'kinds' holds \w+<.*, and a label must be one text, number or date"):
        open_labelled(path, label="kinds")
    path = parquet(tmp_path / "table.parquet", {"u": nested, "label": list("abab")})
    with pytest.raises(ValueError, match=r"column 'u' holds \w+<.*, and only numbers, dates"):
        open_labelled(path)


def test_labels_of_parquet_have_many_types(tmp_path):
    """A whole number is the same class however it is stored; single values of other types are shown as text."""
    from datetime import date
    from decimal import Decimal

    arrow = pytest.importorskip("pyarrow")
    day, long = date(2026, 1, 2), "1234567890123456789012345678901234567890"
    exact = arrow.array([Decimal("1.00"), Decimal("2.50"), Decimal("100.00")])
    for values, expected in [
        (arrow.array([1, 2, 100]), ["1", "2", "100"]),
        (arrow.array([1.0, 2.5, 100.0]), ["1", "2.5", "100"]),
        (exact, ["1", "2.5", "100"]),
        (arrow.array([Decimal(long), Decimal(0), Decimal(-7)], arrow.decimal256(50, 1)), [long, "0", "-7"]),
        (arrow.array(["x", "y ", "x"]).dictionary_encode(), ["x", "y", "x"]),
        (arrow.array(["x", "y", "x"], arrow.large_string()), ["x", "y", "x"]),
        (arrow.array([b"x", "ü".encode(), b"\xff"]), ["x", "ü", "\\xff"]),
        (arrow.array([b"xy", b"zz", b"xy"], arrow.binary(2)), ["xy", "zz", "xy"]),
        (arrow.array([day, day, date(1999, 12, 31)]), ["2026-01-02", "2026-01-02", "1999-12-31"]),
        (arrow.array([True, False, True]), ["True", "False", "True"]),
    ]:
        examples = open_labelled(parquet(tmp_path / "table.parquet", {"u": [1.0, 2, 3], "label": values}))
        assert examples.labels == expected


def test_parquet_needs_its_extra(tmp_path, monkeypatch):
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(RuntimeError, match=r"pip install 'ucb\[parquet\]'"):
        open_labelled(tmp_path / "table.parquet")
