"""Two small pieces of work at a time: a GPU has room for both, if each has a stream of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor


def beside(work: Callable[[], Tensor], *inputs: Tensor) -> Callable[[], Tensor]:
    """Start ``work``, which reads ``inputs``, beside what follows; the function returned waits for its result.

    Backward takes the same way: PyTorch runs each step of it on the stream of its forward.
    """
    if not inputs[0].is_cuda:
        return work
    main = torch.cuda.current_stream(inputs[0].device)
    side = _side_of(main)
    side.wait_stream(main)
    for tensor in inputs:
        _plain(tensor).record_stream(side)  # its memory may not be used for something else before both are done with it
    with torch.cuda.stream(side):
        result = work()

    def wait() -> Tensor:
        main.wait_stream(side)
        _plain(result).record_stream(main)
        return result

    return wait


def _plain(tensor: Tensor) -> Tensor:
    """Return the tensor of all runs that stands behind one run's under ``torch.vmap``."""
    functorch = torch._C._functorch
    return functorch.get_unwrapped(tensor) if functorch.is_batchedtensor(tensor) else tensor


@cache
def _side_of(main: torch.cuda.Stream) -> torch.cuda.Stream:
    # PyTorch lends the same 32 streams in turn, and while one run captures a graph no other may work on its streams.
    # Those of high priority are 32 others, which nobody else asks for.
    return torch.cuda.Stream(main.device, priority=-1)
