"""Image files, decoded when they are asked for: no more than a batch of them is ever in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from ucb.bayes.checks import count
from ucb.datasets.arrays import Images
from ucb.datasets.formats.images import UnreadableImageError, quiet
from ucb.storage import ceilings, opened
from ucb.waves.sources.examples import Shape, Skipped, stamps
from ucb.waves.sources.image_shape import MOST, sample, settled
from ucb.waves.sources.pixels import FINER, is_grey, plain_image, read_image

THREADS = min(8, os.cpu_count() or 1)


class ImageFiles:
    """Examples that are image files."""

    columns: list[str] | None = None

    def __init__(
        self, paths: Sequence[str], names: list[str], labels: list[str] | None, shape: Shape, remarks: list[str]
    ) -> None:
        self.paths, self.names, self.labels, self.shape = list(paths), names, labels, shape
        self.skipped: list[Skipped] = []
        self.remarks = remarks
        self._unreadable: set[int] = set()

    def __len__(self) -> int:
        return len(self.paths)

    def batches(self, indices: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions and uint8 [n, C, H, W]; several threads decode, because Pillow lets them."""
        count("size", size)
        with ThreadPoolExecutor(THREADS) as pool:
            for chunk in indices.split(size):
                positions = chunk.tolist()
                images = self._read(pool, positions)
                read = [position for position, image in zip(positions, images, strict=True) if image is not None]
                if read:
                    x = np.stack([image for image in images if image is not None])
                    yield torch.tensor(read), torch.from_numpy(x)

    def stamps(self) -> list[str]:
        """Return the size and the time of change of each file."""
        return stamps(self.paths)

    def _read(self, pool: ThreadPoolExecutor, positions: list[int]) -> list[Images | None]:
        share = max(1, -(-len(positions) // THREADS))  # one piece a thread: single images are too small to hand out
        pieces = [positions[start : start + share] for start in range(0, len(positions), share)]
        with quiet():
            read = [image for piece in pool.map(self._decoded, pieces) for image in piece]
        for position, image in zip(positions, read, strict=True):
            if isinstance(image, str) and position not in self._unreadable:
                self._unreadable.add(position)
                self.skipped.append(Skipped(self.names[position], image))
        return [None if isinstance(image, str) else image for image in read]

    def _decoded(self, positions: list[int]) -> list[Images | str]:
        """Return each image, or why there is none."""
        read: list[Images | str] = []
        for position in positions:
            try:
                with opened(self.paths[position], ceilings.IMAGE) as file:
                    read.append(read_image(file, self.shape))
            except UnreadableImageError as error:
                read.append(str(error))
            except OSError as error:
                read.append(unreachable(error))
        return read


def shape_of_files(where: str, paths: Sequence[str]) -> Shape:
    """Return the shape for image files of a first wave."""
    seen = []
    why = ""
    with quiet():
        for number in sample(len(paths)):
            try:
                with opened(paths[number], ceilings.IMAGE) as file:
                    image = plain_image(file, FINER * MOST)
            except (UnreadableImageError, OSError) as error:
                why = unreachable(error) if isinstance(error, OSError) else str(error)
            else:
                seen.append((image.height, image.width, is_grey(image)))
    if not seen:
        raise ValueError(f"{where}: none of its images can be read; of the last one tried: {why}")
    return settled(seen)


def unreachable(error: OSError) -> str:
    """Say why a file cannot be read at all."""
    if isinstance(error, FileNotFoundError):
        return "the file is gone"
    return f"the file cannot be read: {error.strerror or error}"
