"""From official files to one array file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ucb.datasets import cache
from ucb.datasets.arrays import write_arrays
from ucb.datasets.catalogue import DataSet, OfficialFile, find
from ucb.datasets.download import DownloadError, Progress, download
from ucb.datasets.formats.readers import parse
from ucb.datasets.hashes import Record, differs, digest_of, unzipped

Tell = Callable[[str], None]
Source = tuple[OfficialFile, Path]


def get(name: str, tell: Tell, progress: Progress | None = None, where: Path | None = None) -> None:
    """Download what is missing of a data set's official files, and make its array file. Nothing is removed."""
    known, where = find(name), where or cache.folder()
    path = cache.array_file(name, where)
    if path.exists():
        tell(f"{name}: {path} is there already")
        return
    if known.fetched_by_hand():
        raise ValueError(f"{name} cannot be downloaded: {cache.how_to_get(known)}")
    folder = cache.downloads(name, where)
    sources = []
    for file in known.files:
        target = folder / file.name
        if not target.exists():
            tell(f"{name}: fetching {file.name} from {file.urls[0]}")
            try:
                download(file.urls, target, file.digest, progress)
            except DownloadError as error:
                raise DownloadError(f"{error}; fetch it elsewhere, put it into {folder} and try again") from error
        sources.append((file, target))
    _make(known, sources, where, tell, unverified=False)


def import_files(
    name: str,
    paths: Sequence[Path],
    tell: Tell,
    unverified: bool = False,
    replace: bool = False,
    where: Path | None = None,
) -> None:
    """Make the array file of a data set from its official files, or a folder with them or their contents."""
    known, where = find(name), where or cache.folder()
    if cache.array_file(name, where).exists() and not replace:
        raise FileExistsError(f"{cache.array_file(name, where)} is there already: --replace writes it anew")
    _make(known, _matched(known, paths), where, tell, unverified)


def _make(known: DataSet, sources: Sequence[Source], where: Path, tell: Tell, unverified: bool) -> None:
    record = Record(where)
    for file, path in sources:
        if unverified:
            tell(f"{known.name}: {path.name} is taken as it is: its hash was not compared")
        else:
            _compare(file, path, file.digest or record.get(_key(known, file)), record)
    parsed = parse(known, [path for _, path in sources])
    if parsed.unreadable:
        tell(f"{known.name}: {parsed.unreadable} images could not be read and were skipped")
    target = cache.array_file(known.name, where)
    write_arrays(target, parsed.arrays)
    record.put(target.name, digest_of(target))
    for file, path in sources:
        if not unverified and file.digest is None and record.get(_key(known, file)) is None:
            record.put(_key(known, file), digest_of(path))
            tell(f"{known.name}: no hash is published for {path.name}; that of yours is recorded in {record.path}")
    tell(f"{known.name}: {parsed.arrays} in {target}")


def _compare(file: OfficialFile, path: Path, expected: str | None, record: Record) -> None:
    """Compare a file with its published hash, or else with the one it had when it was first used."""
    if expected is None or not (wrong := differs(path, expected)):
        return
    if any(f"{raw.name}.gz" == file.name and raw.digest == unzipped(path, raw.digest) for raw in file.instead):
        return  # gzipped anew, as Linux distributions do
    whose = "published" if file.digest else f"recorded in {record.path}"
    raise ValueError(f"{wrong} as {whose}; fetch it again, or import it with --unverified")


def _key(known: DataSet, file: OfficialFile) -> str:
    return f"{known.name}/{file.name}"


def _matched(known: DataSet, paths: Sequence[Path]) -> list[Source]:
    """Return the given files in the order of the catalogue, or the one folder of unpacked ones."""
    given: dict[str, Path] = {}
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there")
        inside = {file.name: path / file.name for slot in known.files for file in slot.forms()}
        if path.is_dir() and (official := {name: file for name, file in inside.items() if file.is_file()}):
            given |= official
        elif path.is_dir() and known.folders:
            if len(paths) > 1:
                raise ValueError(f"{path} is a folder: give it alone, or the official files")
            return [(OfficialFile("folder"), path)]
        elif path.is_file() and path.name in inside:
            given[path.name] = path
        else:
            raise ValueError(f"{path} {_what_it_is(known, path)}")
    chosen = [
        next(((file, given[file.name]) for file in slot.forms() if file.name in given), None) for slot in known.files
    ]
    missing = [slot for slot, source in zip(known.files, chosen, strict=True) if source is None]
    if missing:
        where = ", ".join(f"{file.name} ({file.urls[0]})" for file in missing)
        raise FileNotFoundError(f"{known.name} needs {where} too")
    return [source for source in chosen if source is not None]


def _what_it_is(known: DataSet, path: Path) -> str:
    """Say what is wrong with a path that cannot be imported."""
    if path.name in known.wrong:
        return known.wrong[path.name]
    if known.fetched_by_hand():
        return f"is not a folder: {known.title} is imported from a folder of images for each class"
    names = ", ".join(" or ".join(file.name for file in slot.forms()) for slot in known.files)
    return f"{'holds no' if path.is_dir() else 'is not a'} file of {known.title}: wanted are {names}"
