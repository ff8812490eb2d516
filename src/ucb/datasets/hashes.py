"""Hashes of files: published ones are compared, others are recorded when a file is first used."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from pathlib import Path

from ucb.storage import ceilings, opened, read_json, write_atomically

RECORD = "hashes.json"


def digest_of(path: Path, algorithm: str = "sha256") -> str:
    """Return ``algorithm:hex`` of a file, or of a folder's file names and contents."""
    if path.is_dir():
        whole = hashlib.new(algorithm, usedforsecurity=False)
        for inside in sorted(each for each in path.rglob("*") if each.is_file()):
            whole.update(f"{inside.relative_to(path).as_posix()}\0{digest_of(inside, algorithm)}\n".encode())
        return f"{algorithm}:{whole.hexdigest()}"
    with opened(path, ceilings.OFFICIAL) as file:
        # MD5 is all that is published for some files; it finds damage, which is what it is for here.
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{found.hexdigest()}"


def unzipped(path: Path, like: str | None) -> str | None:
    """Return the hash of what is in a gzipped file, by the algorithm of another hash; None if it cannot be read."""
    whole = hashlib.new((like or "sha256").partition(":")[0], usedforsecurity=False)
    try:
        with opened(path, ceilings.OFFICIAL) as packed, gzip.open(packed) as file:
            while (chunk := file.read(1 << 20)) and file.tell() <= ceilings.MEMBER:
                whole.update(chunk)
    except (OSError, EOFError, zlib.error):
        return None
    return f"{whole.name}:{whole.hexdigest()}"


def differs(path: Path, expected: str) -> str | None:
    """Return a sentence that names file, expected and found hash, or None where they agree."""
    found = digest_of(path, expected.partition(":")[0])
    return None if found == expected else f"{path} is not the expected file: its hash is {found}, not {expected}"


class Record:
    """The hashes that were met first, in a small file in the cache: ``name -> algorithm:hex``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORD

    def get(self, name: str) -> str | None:
        """Return the recorded hash of that name, if there is one."""
        return self._read().get(name)

    def put(self, name: str, digest: str) -> None:
        """Record a hash."""
        known = self._read() | {name: digest}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (json.dumps(known, indent=2, sort_keys=True) + "\n").encode())

    def _read(self) -> dict[str, str]:
        try:
            known = read_json(self.path)
        except FileNotFoundError:
            return {}
        except ValueError:
            known = None
        if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
            raise ValueError(f"{self.path} is damaged: remove it, and hashes will be recorded anew")
        return known
