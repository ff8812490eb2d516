"""A safetensors file with JSON inside, from a stranger: checked before anything is made of it.

The header says what the file is (``format`` and ``version``), holds one JSON text (``model``) and the SHA-256 of that
text and of every tensor with its name, type and shape. Nothing is unpickled; sizes that the file does not have are
never allocated. Each value of the JSON is then checked for its type and range, and a wrong one is named.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import safetensors.torch
import torch
from torch import Tensor

from ucb.data.readers.reader import as_text
from ucb.storage import RefusedFileError, ceilings, open_checked, refuse_without_room

FORMAT, VERSION = "ucb-model", 3
LONGEST_NAME = 1000
"""Characters of a name."""
MOST = 1_000_000
"""Entries of a list."""
LARGEST = 1 << 53

T = TypeVar("T")
Content = tuple[dict[str, Any], dict[str, Tensor]]
"""The JSON values and the tensors of a file."""


class DamagedModelError(OSError):
    """A file that is no model, or no whole one."""


class FieldError(ValueError):
    """A value that cannot be, with its name."""


def pack(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of a file with JSON values and tensors."""
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    facts = {"format": FORMAT, "version": str(VERSION), "model": text, "sha256": hash_content(text, ready)}
    data = safetensors.torch.save(ready, facts)
    # The header is sorted, so that the same model is the same bytes.
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8 : 8 + length]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def read_content(path: Path) -> Content:
    """Return the JSON values and the tensors of a file, if it is whole."""
    try:
        with open_checked(path, ceilings.MODEL) as file:
            return _unpack(file, os.fstat(file.fileno()).st_size, str(path))
    except IsADirectoryError:
        raise DamagedModelError(f"{path} is no file: name the model's own file") from None
    except RefusedFileError as error:
        raise DamagedModelError(str(error)) from None


def unpack(data: bytes) -> Content:
    """Return what ``read_content`` finds in a file of these bytes, or refuse them as it would."""
    return _unpack(io.BytesIO(data), len(data), "it")


def _unpack(file: BinaryIO, size: int, path: str) -> Content:
    facts = _read_header(file, size, path).get("__metadata__")
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise DamagedModelError(f"{path} is no model of ucb")
    version = str(facts.get("version"))
    if not re.fullmatch("0*[1-9][0-9]*", version) or len(version) > 9:
        raise DamagedModelError(f"{path} is damaged: its version is {version[:20]!r}")
    if int(version) > VERSION:
        raise DamagedModelError(f"{path} was made by a newer version of ucb (its format is {version}): update ucb")
    refuse_without_room(path, size)
    try:
        file.seek(0)
        tensors = safetensors.torch.load(file.read())
    except Exception as error:  # of a broken header the library may say anything
        raise DamagedModelError(f"{path} is damaged: {str(error)[:200]}") from None
    text = facts.get("model")
    if not isinstance(text, str) or facts.get("sha256") != hash_content(text, tensors):
        raise DamagedModelError(f"{path} is damaged: its content is not what was written")
    values = _parse(path, text)
    if not isinstance(values, dict):
        raise DamagedModelError(f"{path} is damaged: it describes no model")
    return values, tensors


def _read_header(file: BinaryIO, size: int, path: str) -> dict[str, Any]:
    """Read and check the header alone."""
    length = int.from_bytes(file.read(8), "little")
    if size < 10 or not 2 <= length <= size - 8:
        raise DamagedModelError(f"{path} is no model of ucb, or it is cut short")
    if length > ceilings.HEADER:
        raise DamagedModelError(f"{path} has {length:,} bytes of names and notes, and {ceilings.HEADER:,} are the most")
    header = _parse(path, file.read(length))
    if not isinstance(header, dict):
        raise DamagedModelError(f"{path} is no model of ucb")
    ends = [0]
    for name, about in header.items():
        if name != "__metadata__":
            match about:
                case {"data_offsets": [_, int(end)]}:
                    ends.append(end)
                case _:
                    ends.append(size)
    if max(ends) != size - 8 - length:  # a sparse file may pretend to have gigabytes
        raise DamagedModelError(f"{path} is damaged: its size is not what its header says")
    return header


def _parse(path: str, text: str | bytes) -> Any:
    def take_each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name stands there twice")
        return found

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no number")

    try:
        return json.loads(text, object_pairs_hook=take_each_name_once, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
        raise DamagedModelError(f"{path} is damaged, or no model of ucb: {said}") from None


def hash_content(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a text and of tensors, each with its name, type and shape."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode("utf-8", "surrogatepass"))
        if tensor.numel():
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class Fields:
    """The values of one JSON object, asked for by name."""

    def __init__(self, values: Any, where: str = "") -> None:
        if not isinstance(values, dict):
            raise FieldError(f"{where or 'it'} is no object")
        self.values, self.where = values, where

    def get(self, name: str) -> Any:
        """Return a value that must be there."""
        if name not in self.values:
            raise FieldError(f"{self._path(name)} is missing")
        return self.values[name]

    def fields(self, name: str) -> Fields:
        """Return an object inside this one."""
        return Fields(self.get(name), self._path(name))

    def whole(self, name: str, least: int = 0, most: int = LARGEST) -> int:
        """Return a whole number."""
        return check_whole(self._path(name), self.get(name), least, most)

    def number(self, name: str, least: float, most: float) -> float:
        """Return a number."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise FieldError(f"{self._path(name)} is no number from {least:g} to {most:g}")
        return float(value)

    def text(self, name: str) -> str:
        """Return a text."""
        return check_text(self._path(name), self.get(name))

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None."""
        return None if self.get(name) is None else self.text(name)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return one of some words."""
        value = self.get(name)
        if value not in allowed:
            raise FieldError(f"{self._path(name)} is none of {', '.join(allowed)}")
        return str(value)

    def list(self, name: str, check: Callable[[str, Any], T], most: int = MOST) -> list[T]:
        """Return a list whose items are checked."""
        value, path = self.get(name), self._path(name)
        if not isinstance(value, list) or len(value) > most:
            raise FieldError(f"{path} is no list of at most {most}")
        return [check(f"{path}[{place}]", each) for place, each in enumerate(value)]

    def table(self, name: str, check: Callable[[str, Any], T]) -> dict[str, T]:
        """Return an object whose names are texts and whose values are checked."""
        value, path = self.get(name), self._path(name)
        if not isinstance(value, dict) or len(value) > MOST:
            raise FieldError(f"{path} is no object")
        return {check_text(path, key): check(f"{path}[{key[:40]!r}]", each) for key, each in value.items()}

    def only(self, *names: str) -> None:
        """Refuse values of other names."""
        for name in self.values:
            if name not in names:
                raise FieldError(f"{self._path(repr(name[:40]))} is unknown")

    def _path(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name


def check_text(where: str, value: Any) -> str:
    """Return a text of reasonable length."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        raise FieldError(f"{where} is no text of 1 to {LONGEST_NAME} characters")
    if as_text(value) != value:
        raise FieldError(f"{where} holds half a character (a lone surrogate), which no file can hold as text")
    return value


def check_whole(where: str, value: Any, least: int = 0, most: int = LARGEST) -> int:
    """Return a whole number within a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise FieldError(f"{where} is no whole number from {least} to {most}")
    return value


def check_tensor(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], like: torch.dtype) -> Tensor:
    """Return a tensor, if it has the type and shape that it must have and holds finite numbers."""
    found = tensors.get(name)
    if found is None:
        raise FieldError(f"the tensor {name} is missing")
    if found.dtype != like or tuple(found.shape) != shape:
        raise FieldError(f"the tensor {name} is {found.dtype} of {tuple(found.shape)}, not {like} of {shape}")
    if found.is_floating_point() and not bool(found.isfinite().all()):
        raise FieldError(f"the tensor {name} holds NaN or infinity")
    return found


def check_tensors(
    tensors: Mapping[str, Tensor], prefix: str, like: Mapping[str, Tensor], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Return tensors without the prefix of their names, if they have the shapes of those that they must be like."""
    return {name: check_tensor(tensors, prefix + name, tuple(each.shape), dtype) for name, each in like.items()}
