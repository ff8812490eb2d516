"""Tables in parquet files, read through pyarrow piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ucb.data.readers.columns import Values
from ucb.data.readers.reader import as_labels, as_text, short
from ucb.data.readers.tables import Chooser, ColumnChoice, TableRows, make_block, settle_kinds
from ucb.storage import ceilings, open_checked

VALUES = 1 << 20
TEXTS, BYTES = ("string", "large_string", "string_view"), ("binary", "large_binary", "binary_view")
"""What pyarrow calls its types; older versions do not know all of them."""
NOT_A_TIME = -(1 << 63)
"""What numpy has in place of a missing date."""


class DamagedTableError(Exception):
    """What pyarrow says about the content of a damaged file."""


def read_parquet(path: Path, choose: Chooser) -> TableRows:
    """Read a table from a parquet file, by the rules of tables as text."""
    where = as_text(str(path))
    arrow, parquet = _library("pyarrow"), _library("pyarrow.parquet")
    with open_checked(path, ceilings.TABLE) as file:
        try:
            table = _ask(lambda: parquet.ParquetFile(file))
            schema = _ask(lambda: table.schema_arrow)
            header = _ask(lambda: list(schema.names))
            choice = choose(where, header)
            rows = _ask(lambda: table.metadata.num_rows)
            size, unpacked = 4 * rows * len(choice.positions), ceilings.unpacked(os.fstat(file.fileno()).st_size)
            if size > (most := min(unpacked, ceilings.memory())):  # a value that is repeated takes no room in the file
                said = f"holds {rows:,} rows, which take {size:,} bytes, and {most:,} are the most for it"
                raise ValueError(f"{where} {said}")
            for place, name in zip(choice.positions, choice.names, strict=True):
                kind = schema.field(place).type
                if not _is_usable(arrow.types, kind):
                    said = f"holds {short(str(kind))}, and only numbers, dates and texts can be learnt"
                    raise ValueError(f"{where}: column {name!r} {said}")
            if choice.label is not None and not _is_label(arrow.types, kind := schema.field(choice.label).type):
                said = f"holds {short(str(kind))}, and a label must be one text, number or date"
                raise ValueError(f"{where}: column {header[choice.label]!r} {said}")
            if choice.kinds is None:
                choice = settle_kinds(choice, (values for values, _ in _read_columns(arrow, table, header, choice, ())))
            label = () if choice.label is None else (header[choice.label],)
            blocks = (
                make_block(choice, values, labels)
                for values, labels in _read_columns(arrow, table, header, choice, label)
            )
            return TableRows(path, choice, choice.names).gather(blocks)
        except DamagedTableError as error:
            raise ValueError(f"{where} is no parquet file, or damaged: {error}") from None


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise RuntimeError("reading parquet needs pyarrow: install it with `pip install 'ucb[parquet]'`") from None


def _ask(question: Any) -> Any:
    """Return pyarrow's answer; of a damaged file it may say anything."""
    try:
        return question()
    except Exception as error:
        raise DamagedTableError(short(str(error), 160)) from None


def _is_usable(types: Any, kind: Any) -> bool:
    if types.is_dictionary(kind):
        return _is_usable(types, kind.value_type)
    tests = [types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null]
    tests += [types.is_date, types.is_timestamp]
    return any(test(kind) for test in tests) or str(kind) in TEXTS


def _is_label(types: Any, kind: Any) -> bool:
    """Whether each value is a single one; a list or a struct would become a class by its Python text."""
    if types.is_dictionary(kind):
        return _is_label(types, kind.value_type)
    kind = getattr(kind, "storage_type", kind)  # of an extension, such as a UUID
    is_bytes = str(kind) in BYTES or types.is_fixed_size_binary(kind)
    return bool(is_bytes or types.is_temporal(kind) or _is_usable(types, kind))


def _read_columns(
    arrow: Any, table: Any, header: list[str], choice: ColumnChoice, label: Sequence[str]
) -> Iterator[tuple[list[Values], list[str | None] | None]]:
    """Yield the values of each column in some rows, and their labels where the label's column is named."""
    names = [header[place] for place in choice.positions]
    wanted = [*names, *label]
    size = max(1, VALUES // len(wanted))
    pieces = _ask(lambda: table.iter_batches(batch_size=size, columns=wanted, use_threads=False))
    while (piece := _ask(lambda: next(pieces, None))) is not None:
        if piece.num_rows:
            values = [_ask(lambda name=name, piece=piece: _read_values(arrow, piece.column(name))) for name in names]
            labels = [_ask(lambda n=name, p=piece: as_labels(_plain(arrow, p.column(n)).to_pylist())) for name in label]
            yield values, labels[0] if labels else None


def _read_values(arrow: Any, column: Any) -> Values:
    """Return a column of pyarrow as texts, dates or numbers; what is missing is an empty text, NaT or NaN."""
    values = _plain(arrow, column)
    if str(values.type) in TEXTS:
        return [text or "" for text in values.to_pylist()]
    if arrow.types.is_date(values.type) or arrow.types.is_timestamp(values.type):
        exact = values.cast(arrow.timestamp("us", getattr(values.type, "tz", None)), safe=False)
        return np.asarray(exact.cast(arrow.int64()).fill_null(NOT_A_TIME).to_numpy()).view("datetime64[us]")
    return np.asarray(values.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False))


def _plain(arrow: Any, values: Any) -> Any:
    """Return a column without a dictionary."""
    return values.dictionary_decode() if arrow.types.is_dictionary(values.type) else values
