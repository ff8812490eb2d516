"""Files from the network: a cut download goes on where it stopped, and only the right file gets its name."""

from __future__ import annotations

import http.client
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ucb.datasets.hashes import differs
from ucb.storage import appending, ceilings

Progress = Callable[[str, int, int | None], None]  # which file, bytes so far, bytes in all if that is known
CHUNK = 1 << 18
MOST_BYTES = ceilings.OFFICIAL
TIMEOUT = 30.0
CUTS = 5  # how often in a row a connection may break, without having got on, before an address is given up
PAUSE = 1.0
RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class DownloadError(RuntimeError):
    """A file could not be fetched, or what came was not the file."""


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
            _fetch(url, part, target.name, progress or _silent, timeout)
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
            part.unlink()  # a range that nobody asked for: begin anew, without one
            return False
        if max(done, total or 0) > MOST_BYTES:
            raise ValueError(f"{total} bytes are absurdly many")
        if not done:
            part.unlink(missing_ok=True)
        with appending(part) as file:
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


def _silent(name: str, done: int, total: int | None) -> None:
    """Show nothing."""
