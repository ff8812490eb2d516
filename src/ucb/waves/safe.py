"""A safetensors file with JSON inside, from a stranger: checked before anything is made of it.

The header says what the file is (``format`` and ``version``), holds one JSON text (``model``) and the SHA-256 of that
text and of every tensor with its name, type and shape. Nothing is unpickled; sizes that the file does not have are
never allocated.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
import torch
from torch import Tensor

from ucb.storage import RefusedFileError, ceilings, opened

FORMAT, VERSION = "ucb-model", 2


class DamagedModelError(OSError):
    """A file that is no model, or no whole one."""


def packed(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of a file with JSON values and tensors."""
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"format": FORMAT, "version": str(VERSION), "model": text, "sha256": _digest(text, ready)}
    return _in_order(safetensors.torch.save(ready, header))


def unpacked(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the JSON values and the tensors of a file, if it is whole."""
    try:
        with opened(path, ceilings.MODEL) as file:
            return _unpacked(file, os.fstat(file.fileno()).st_size, str(path))
    except IsADirectoryError:
        raise DamagedModelError(f"{path} is no file: name the model's own file") from None
    except RefusedFileError as error:
        raise DamagedModelError(str(error)) from None


def unpacked_bytes(data: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what ``unpacked`` finds in a file of these bytes, or refuse them as it would."""
    return _unpacked(io.BytesIO(data), len(data), "it")


def _unpacked(file: BinaryIO, size: int, path: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    header = _header(file, size, path)
    facts = header.get("__metadata__")
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise DamagedModelError(f"{path} is no model of ucb")
    version = facts.get("version")
    if not isinstance(version, str) or not version.isascii() or not version.isdigit() or len(version) > 9:
        raise DamagedModelError(f"{path} is damaged: its version is {str(version)[:20]!r}")
    if int(version) > VERSION:
        raise DamagedModelError(f"{path} was made by a newer version of ucb (its format is {version}): update ucb")
    if int(version) < 1:
        raise DamagedModelError(f"{path} is damaged: its version is {version!r}")
    if size > (room := ceilings.memory()):
        raise RefusedFileError(f"{path} has {size:,} bytes, and this machine has memory for {room:,} more")
    try:
        file.seek(0)
        tensors = safetensors.torch.load(file.read())
    except Exception as error:  # of a broken header the library may say anything
        raise DamagedModelError(f"{path} is damaged: {str(error)[:200]}") from None
    text = facts.get("model")
    if not isinstance(text, str) or facts.get("sha256") != _digest(text, tensors):
        raise DamagedModelError(f"{path} is damaged: its content is not what was written")
    values = _json(path, text)
    if not isinstance(values, dict):
        raise DamagedModelError(f"{path} is damaged: it describes no model")
    return values, tensors


def _in_order(data: bytes) -> bytes:
    """Return a safetensors file with its header sorted: the same model is the same bytes."""
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def _header(file: BinaryIO, size: int, path: str) -> dict[str, Any]:
    """Read and check the header alone."""
    length = int.from_bytes(file.read(8), "little")
    if size < 10 or not 2 <= length <= size - 8:
        raise DamagedModelError(f"{path} is no model of ucb, or it is cut short")
    if length > ceilings.HEADER:
        raise DamagedModelError(f"{path} has {length:,} bytes of names and notes, and {ceilings.HEADER:,} are the most")
    text = file.read(length)
    header = _json(path, text)
    if not isinstance(header, dict):
        raise DamagedModelError(f"{path} is no model of ucb")
    if _end(header) != size - 8 - length:  # a sparse file may pretend to have gigabytes
        raise DamagedModelError(f"{path} is damaged: its size is not what its header says")
    return header


def _end(header: dict[str, Any]) -> int:
    """Return where the last tensor ends, by a header that may hold anything; -1 stands for nonsense."""
    ends = [0]
    for name, about in header.items():
        if name != "__metadata__":
            place = about.get("data_offsets") if isinstance(about, dict) else None
            if not isinstance(place, list) or len(place) != 2 or not isinstance(place[1], int):
                return -1
            ends.append(place[1])
    return max(ends)


def _json(path: str, text: str | bytes) -> Any:
    def each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name stands there twice")
        return found

    def no_number(word: str) -> Any:
        raise ValueError(f"{word} is no number")

    try:
        return json.loads(text, object_pairs_hook=each_name_once, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
        raise DamagedModelError(f"{path} is damaged, or no model of ucb: {said}") from None


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode("utf-8", "surrogatepass"))
        if tensor.numel():
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
