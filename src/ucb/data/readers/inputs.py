"""Reading a wave to learn from, and input to answer about."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from ucb.data.readers.arrays import describe_shape, read_array_examples
from ucb.data.readers.columns import ColumnKind
from ucb.data.readers.folders import NO_IMAGES, ImageFiles, Walk, is_pattern, match_pattern, read_class_folders, remark
from ucb.data.readers.parquet import read_parquet
from ucb.data.readers.reader import ExampleReader, Shape, Skipped, as_text
from ucb.data.readers.tables import Chooser, choose, read_csv
from ucb.storage import CHUNK, ceilings

Reader = Callable[[Path, Chooser], ExampleReader]
TABLES: dict[str, Reader] = dict.fromkeys((".csv", ".tsv", ".txt"), read_csv)
TABLES |= dict.fromkeys((".parquet", ".pq"), read_parquet)
ARRAYS = ".npz"
STANDARD_INPUT, PIPED = "-", "standard input"


def open_labelled(
    path: Path | str,
    like: Shape | None = None,
    *,
    label: str | None = None,
    columns: list[str] | None = None,
    kinds: Sequence[ColumnKind] | None = None,
) -> ExampleReader:
    """Read a wave: a folder of class folders with images, a table (.csv, .tsv, .parquet) or an .npz file.

    With ``like``, the shape a model has settled on, images are converted to it and rows must have it; without, it is
    settled here (see `images.settle_shape`). ``label`` names a table's column of labels, which need not be named if
    exactly one is called label, class or target; ``columns`` are those that a model knows, and ``kinds`` is what they
    hold, None if all are plain numbers.
    """
    path = Path(path)
    if label is not None and path.exists() and path.suffix.lower() not in TABLES:
        raise ValueError(f"{as_text(str(path))} is no table: it has no column {label!r}")
    if path.is_dir():
        _check_kind(path, like, images=True)
        return read_class_folders(path, like)
    choose_columns = partial(choose, with_labels=True, label=label, columns=columns, kinds=kinds, like=like)
    return _open_file(path, like, choose_columns, with_labels=True)


def open_unlabelled(
    inputs: Sequence[str | Path],
    like: Shape,
    *,
    columns: list[str] | None = None,
    kinds: Sequence[ColumnKind] | None = None,
    stdin: Iterable[str] | None = None,
) -> ExampleReader:
    """Read input to answer about, in the shape ``like``; labels it may have are not looked at.

    Images come from files, folders (all images below), patterns with ``*``, ``?``, ``[...]`` or ``**``, and "-", which
    stands for ``stdin`` (standard input, unless given) with one path a line; a path that is not there is an error, but
    for one of standard input, which is left out and listed. Each image is read once, however often it is named.
    Instead of all that one table or .npz file may be given. Rows come from such a file, or as a text table from "-".
    """
    given = [os.fspath(text) for text in inputs]
    choose_columns = partial(choose, with_labels=False, columns=columns, kinds=kinds, like=like)
    for text in given:
        ending = Path(text).suffix.lower()
        if (ending in TABLES or ending == ARRAYS) and not Path(text).is_dir() and not is_pattern(text):
            if len(given) > 1:
                raise ValueError(f"{as_text(text)} must be the only input: a table cannot be mixed with others")
            return _open_file(Path(text), like, choose_columns, with_labels=False)
    if len(like) == 1 and given:
        if given == [STANDARD_INPUT]:
            return _open_piped_table(stdin, like, choose_columns)
        expected = "give one file .csv, .tsv, .npz or .parquet, or - alone for a table on standard input"
        raise ValueError(f"the model learnt {describe_shape(like)}: {expected}, not {given[0]!r}")
    return _images(given, like, stdin)


def _open_file(path: Path, like: Shape | None, choose_columns: Chooser, *, with_labels: bool) -> ExampleReader:
    """Read a table or an .npz file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file or folder {as_text(str(path))}")
    ending = path.suffix.lower()
    if ending == ARRAYS:
        return read_array_examples(path, like, with_labels=with_labels)
    if ending in TABLES:
        _check_kind(path, like, images=False)
        return TABLES[ending](path, choose_columns)
    name = as_text(str(path))
    raise ValueError(f"{name} is neither a folder of class folders nor a file .csv, .tsv, .npz or .parquet")


def _images(given: list[str], like: Shape, stdin: Iterable[str] | None) -> ImageFiles:
    """Gather all images that are named in any way."""
    walk = Walk()
    missing = []
    for text in given:
        if text == STANDARD_INPUT:
            _take_lines(walk, stdin)
        elif text and not _take(walk, text):
            missing.append(text)
    if missing:
        more = f" (and {len(missing) - 1} more of the inputs cannot be found)" if len(missing) > 1 else ""
        what = "nothing fits the pattern" if is_pattern(missing[0]) else "there is no file or folder"
        raise FileNotFoundError(f"{what} {as_text(missing[0])}{more}")
    paths = list(dict.fromkeys(os.path.normpath(path) for path in walk.images))
    remarks = remark(walk.others, *NO_IMAGES)
    if not paths and not walk.skipped:
        raise ValueError("; ".join(["the input holds no images", *remarks]))
    return ImageFiles(paths, [as_text(path) for path in paths], None, like, remarks, walk.skipped)


def _take_lines(walk: Walk, stdin: Iterable[str] | None) -> None:
    """Gather what each line of standard input stands for; what is not there is left out like what cannot be read."""
    lines = getattr(sys.stdin, "buffer", sys.stdin) if stdin is None else stdin  # a file's name may be any bytes
    for name in filter(None, (os.fsdecode(line).rstrip("\r\n") for line in lines)):
        if "\0" in name:  # no path has it, and every image does
            said = "standard input must hold the paths of images, one a line, and holds other bytes, as of an image"
            raise ValueError(f"{said}: write these to a file, and give its path")
        if not _take(walk, name):
            why = "nothing fits the pattern" if is_pattern(name) else "there is no such file"
            walk.skipped.append(Skipped(as_text(name), why))


def _open_piped_table(stdin: Iterable[str] | None, like: Shape, choose_columns: Chooser) -> ExampleReader:
    """Read a text table from standard input: from a file, since a table's reader wants to look at it twice."""
    with TemporaryDirectory() as folder:
        path, size = Path(folder, "table.csv"), 0
        with path.open("wb") as file:
            source: BinaryIO = sys.stdin.buffer if stdin is None else io.BytesIO("".join(stdin).encode())
            while some := source.read(CHUNK):
                size += file.write(some)
                if size > ceilings.TABLE:
                    raise ValueError(f"{PIPED} has more than {ceilings.TABLE:,} bytes, which are the most")
        try:
            return _open_file(path, like, choose_columns, with_labels=False)
        except ValueError as error:
            raise ValueError(str(error).replace(as_text(str(path)), PIPED)) from None


def _take(walk: Walk, name: str) -> bool:
    """Gather what one name stands for; a file that is named itself is tried whatever its ending is."""
    if os.path.isfile(name):
        walk.images.append(name)
    elif os.path.isdir(name):
        walk.below(name)
    elif os.path.lexists(name):
        walk.take(name)
    elif is_pattern(name) and (found := match_pattern(name)):
        for path in found:
            if walk.take(path):
                walk.below(path)
    else:
        return False
    return True


def _check_kind(path: Path, like: Shape | None, *, images: bool) -> None:
    if like is not None and (len(like) == 3) != images:
        what = "a folder of images" if images else "a table"
        raise ValueError(f"{as_text(str(path))} is {what}, and the model learnt {describe_shape(like)}")
