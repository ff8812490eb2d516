"""Tables in parquet files, read through pyarrow piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ucb.data.readers.reader import as_labels, as_text, short
from ucb.data.readers.tables import Chooser, ColumnChoice, RowBlock, TableRows, describe_fault, parse_number
from ucb.storage import ceilings, open_checked

VALUES = 1 << 20
TEXTS, BYTES = ("string", "large_string", "string_view"), ("binary", "large_binary", "binary_view")
"""What pyarrow calls its types; older versions do not know all of them."""


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
                    said = f"holds {short(str(kind))}, and only numbers can be learnt"
                    raise ValueError(f"{where}: column {name!r} {said}")
            if choice.label is not None and not _is_label(arrow.types, kind := schema.field(choice.label).type):
                said = f"holds {short(str(kind))}, and a label must be one text, number or date"
                raise ValueError(f"{where}: column {header[choice.label]!r} {said}")
            return TableRows(path, choice, choice.names).gather(_blocks(arrow, table, header, choice))
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
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests) or str(kind) in TEXTS


def _is_label(types: Any, kind: Any) -> bool:
    """Whether each value is a single one; a list or a struct would become a class by its Python text."""
    if types.is_dictionary(kind):
        return _is_label(types, kind.value_type)
    kind = getattr(kind, "storage_type", kind)  # of an extension, such as a UUID
    is_bytes = str(kind) in BYTES or types.is_fixed_size_binary(kind)
    return bool(is_bytes or types.is_temporal(kind) or _is_usable(types, kind))


def _blocks(arrow: Any, table: Any, header: list[str], choice: ColumnChoice) -> Iterator[RowBlock]:
    places = [*choice.positions, *([] if choice.label is None else [choice.label])]
    wanted = [header[place] for place in places]
    size = max(1, VALUES // len(wanted))
    pieces = _ask(lambda: table.iter_batches(batch_size=size, columns=wanted, use_threads=False))
    while (piece := _ask(lambda: next(pieces, None))) is not None:
        if piece.num_rows:
            yield _ask(lambda piece=piece: _block(arrow, piece, header, choice))


def _block(arrow: Any, piece: Any, header: list[str], choice: ColumnChoice) -> RowBlock:
    """Return rows of pyarrow as numbers: what is missing is NaN, and text is read as in a text file."""
    numbers = np.empty((piece.num_rows, len(choice.positions)), np.float32)
    whys: dict[int, str] = {}
    without: dict[int, str] = {}
    for place, (position, name) in enumerate(zip(choice.positions, choice.names, strict=True)):
        values = _plain(arrow, piece.column(header[position]))
        if str(values.type) in TEXTS:
            texts = [text or "" for text in values.to_pylist()]
            read = [parse_number(text) for text in texts]
            for row, value in enumerate(read):
                if value is None:
                    whys.setdefault(row, describe_fault(name, texts[row]))
            if all(value is None for value in read):
                without[place] = short(next((text.strip() for text in texts if text.strip()), ""))
            found = np.array([float("nan") if value is None else value for value in read])
        else:
            found = values.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            numbers[:, place] = found
    labels = None
    if choice.label is not None:
        values = _plain(arrow, piece.column(header[choice.label]))
        labels = as_labels(values.to_pylist())
    return RowBlock(numbers, labels, None, whys, without)


def _plain(arrow: Any, values: Any) -> Any:
    """Return a column without a dictionary."""
    return values.dictionary_decode() if arrow.types.is_dictionary(values.type) else values
