"""Official files of data sets, from the network or from disk, become array files.

A cut download goes on where it stopped, and only the right file gets its name.
"""

from __future__ import annotations

import http.client
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ucb.data import cache
from ucb.data.cache import RecordedHashes, differs, digest_of, digest_of_unzipped
from ucb.data.catalogue import DataSet, OfficialFile, find
from ucb.data.parsers import parse
from ucb.data.readers.arrays import write_arrays
from ucb.storage import ceilings, open_for_append

Progress = Callable[[str, int, int | None], None]  # which file, bytes so far, bytes in all if that is known
CHUNK = 1 << 18
MOST_BYTES = ceilings.OFFICIAL
TIMEOUT = 30.0
CUTS = 5  # how often in a row a connection may break, without having got on, before an address is given up
PAUSE = 1.0
Tell = Callable[[str], None]
Given = tuple[OfficialFile, Path]
"""A file of the catalogue, and where it is."""
RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class DownloadError(RuntimeError):
    """A file could not be fetched, or what came was not the file."""


def get(name: str, tell: Tell, progress: Progress | None = None) -> None:
    """Download what is missing of a data set's official files, and make its array file. Nothing is removed."""
    known, path = find(name), cache.array_file(name)
    if path.exists():
        tell(f"{name}: {path} is there already")
        return
    if not known.files:
        raise ValueError(f"{name} cannot be downloaded: {cache.how_to_get(known)}")
    folder = cache.folder() / "downloads" / known.name
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
    _make(known, sources, tell, unverified=False)


def import_files(name: str, paths: Sequence[Path], tell: Tell, unverified: bool = False, replace: bool = False) -> None:
    """Make the array file of a data set from its official files, or a folder with them or their contents."""
    known, path = find(name), cache.array_file(name)
    if path.exists() and not replace:
        raise FileExistsError(f"{path} is there already: --replace writes it anew")
    _make(known, _match(known, paths), tell, unverified)


def _make(known: DataSet, sources: Sequence[Given], tell: Tell, unverified: bool) -> None:
    record = RecordedHashes(cache.folder())
    for file, path in sources:
        if unverified:
            tell(f"{known.name}: {path.name} is taken as it is: its hash was not compared")
        else:
            _compare(file, path, file.digest or record.get(_key(known, file)), record)
    parsed = parse(known, [path for _, path in sources])
    if parsed.unreadable:
        tell(f"{known.name}: {parsed.unreadable} images could not be read and were skipped")
    target = cache.array_file(known.name)
    write_arrays(target, parsed.arrays)
    record.put(target.name, digest_of(target))
    for file, path in sources:
        if not unverified and file.digest is None and record.get(_key(known, file)) is None:
            record.put(_key(known, file), digest_of(path))
            tell(f"{known.name}: no hash is published for {path.name}; that of yours is recorded in {record.path}")
    tell(f"{known.name}: {parsed.arrays} in {target}")


def _compare(file: OfficialFile, path: Path, expected: str | None, record: RecordedHashes) -> None:
    """Compare a file with its published hash, or else with the one it had when it was first used."""
    if expected is None or not (wrong := differs(path, expected)):
        return
    raws = [raw for raw in file.instead if f"{raw.name}.gz" == file.name]
    if any(raw.digest == digest_of_unzipped(path, raw.digest) for raw in raws):
        return  # gzipped anew, as Linux distributions do
    whose = "published" if file.digest else f"recorded in {record.path}"
    raise ValueError(f"{wrong} as {whose}; fetch it again, or import it with --unverified")


def _key(known: DataSet, file: OfficialFile) -> str:
    return f"{known.name}/{file.name}"


def _match(known: DataSet, paths: Sequence[Path]) -> list[Given]:
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
            raise ValueError(f"{path} {_say_what_it_is(known, path)}")
    there = [[(file, given[file.name]) for file in slot.forms() if file.name in given] for slot in known.files]
    if missing := [slot for slot, found in zip(known.files, there, strict=True) if not found]:
        files = ", ".join(f"{file.name} ({file.urls[0]})" for file in missing)
        raise FileNotFoundError(f"{known.name} needs {files} too")
    return [found[0] for found in there]


def _say_what_it_is(known: DataSet, path: Path) -> str:
    """Say what is wrong with a path that cannot be imported."""
    if path.name in known.wrong:
        return known.wrong[path.name]
    if not known.files:
        return f"is not a folder: {known.title} is imported from a folder of images for each class"
    names = ", ".join(" or ".join(file.name for file in slot.forms()) for slot in known.files)
    return f"{'holds no' if path.is_dir() else 'is not a'} file of {known.title}: wanted are {names}"


def download(
    urls: Sequence[str], target: Path, digest: str | None, progress: Progress | None = None, timeout: float = TIMEOUT
) -> None:
    """Fetch a file from the first address that gives it, and compare its hash if there is one to compare.

    What was fetched is in ``TARGET.part`` until it is whole. It stays there when the connection breaks.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    reasons = []
    for url in urls:
        try:
            _fetch(url, part, target.name, progress or (lambda *_: None), timeout)
            break
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, OSError) and error.filename is not None and not isinstance(error, HTTPError):
                raise  # the disk's, not the network's
            reasons.append(f"{url} ({_reason(error)})")
    else:
        raise DownloadError(f"{target.name} could not be fetched from {' nor '.join(reasons)}")
    if digest is not None and (wrong := differs(part, digest)):
        part.unlink()
        raise DownloadError(f"{wrong.replace(str(part), str(target))}; what was fetched is removed")
    part.replace(target)


def _fetch(url: str, part: Path, name: str, progress: Progress, timeout: float) -> None:
    """Fill the part until it is whole; begin again where the connection broke, as long as that gets on."""
    cuts = 0
    while True:
        before = _size(part)
        try:
            if _fetch_on(url, part, name, progress, timeout):
                return
            broken: Exception = ConnectionError("the connection broke")
        except URLError:
            raise  # there is no connection at all, or no such file
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            broken = error
        cuts = 0 if _size(part) > before else cuts + 1
        if cuts == CUTS or _size(part) == before == 0:
            raise broken
        time.sleep(PAUSE * cuts)


def _fetch_on(url: str, part: Path, name: str, progress: Progress, timeout: float) -> bool:
    """Ask for what is missing, and return whether the part is whole now."""
    have = _size(part)
    headers = {"User-Agent": "ucb", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urlopen(Request(url, headers=headers), timeout=timeout)
    except HTTPError as error:
        with error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
                raise
        if error.headers.get("Content-Range", "") == f"bytes */{have}":
            return True
        part.unlink()  # the part is longer than the file: it is not the beginning of it
        return False
    with answer:
        done, total = _begins_at(answer, have)
        if done not in (0, have):
            part.unlink()  # not the range that was asked for: begin anew, without one
            return False
        if max(done, total or 0) > MOST_BYTES:
            raise ValueError(f"{total} bytes are absurdly many")
        if not done:
            part.unlink(missing_ok=True)
        with open_for_append(part) as file:
            progress(name, done, total)
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(name, done, total)
                if done > MOST_BYTES:
                    raise ValueError("it never ends")
            file.flush()
            os.fsync(file.fileno())
    return total is None or done == total


def _begins_at(answer: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
    """Return at which byte an answer begins, and how many the whole file has. A server may ignore the range."""
    if answer.status == http.HTTPStatus.PARTIAL_CONTENT:
        given = RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if given is None:
            return -1, None
        return int(given[1]), None if given[2] == "*" else int(given[2])
    length = answer.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _size(part: Path) -> int:
    return part.lstat().st_size if part.is_file() and not part.is_symlink() else 0


def _reason(error: Exception) -> str:
    """Say in a few words why an address gave nothing."""
    if isinstance(error, HTTPError):
        return f"{error.code} {error.reason}"
    reason = error.reason if isinstance(error, URLError) else error
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return text or type(error).__name__
