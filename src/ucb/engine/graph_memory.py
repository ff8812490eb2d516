"""CUDA graphs of one run, and the memory that they compute in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class GraphMemory:
    """The memory that one task's graphs leave to the next task's.

    PyTorch puts such memory to no other use, and frees it only when it runs out: with new memory for every task a
    process would grow. So the latest graph is held until the next one has been recorded, which can take its memory.
    """

    def __init__(self) -> None:
        self._pool: Any = None
        self._latest: torch.cuda.CUDAGraph | None = None

    def record(self, work: Callable[[], None], generators: Sequence[torch.Generator] = ()) -> torch.cuda.CUDAGraph:
        """Return some work as a graph. ``generators`` are what draws in it: they move on each time it is done."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        except Exception:
            self.give_up()  # its memory may be in any state
            raise
        self._latest = graph
        return graph

    def give_up(self) -> None:
        """Leave the memory to PyTorch, once its graphs are gone."""
        self._pool = self._latest = None
