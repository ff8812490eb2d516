"""Two small pieces of work at a time: a GPU has room for both if each has a stream of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result", Tensor, tuple[Tensor | None, ...])


def record_event(on: Tensor) -> torch.cuda.Event | None:
    """Record the present point of a tensor's stream; None on a CPU, which does one thing after the other."""
    return torch.cuda.current_stream(on.device).record_event() if on.is_cuda else None


def run_on_side_stream(
    work: Callable[[], Result], *inputs: Tensor, since: torch.cuda.Event | None = None, which: int = 0
) -> Callable[[], Result]:
    """Start ``work``, which reads ``inputs``, on another stream; the function returned waits for its result.

    Backward does the same: PyTorch runs each step of it on the stream of its forward. Work that reads nothing computed
    after the event ``since`` need not wait for it; ``which`` numbers the side streams of one main stream.
    """
    if not inputs[0].is_cuda:
        return work
    main = torch.cuda.current_stream(inputs[0].device)
    side = _side_stream_of(main, which)
    if since is None:
        side.wait_stream(main)
    else:
        side.wait_event(since)
    for tensor in inputs:
        tensor.record_stream(side)  # its memory may not be used for something else before both are done with it
    with torch.cuda.stream(side):
        result = work()

    def wait() -> Result:
        main.wait_stream(side)
        for tensor in (result,) if isinstance(result, Tensor) else result:
            if tensor is not None:
                tensor.record_stream(main)
        return result

    return wait


@cache
def _side_stream_of(main: torch.cuda.Stream, which: int) -> torch.cuda.Stream:
    # PyTorch lends the same 32 streams in turn, and while one run captures a graph no other may work on its streams.
    # Those of high priority are 32 others, which nobody else asks for.
    return torch.cuda.Stream(main.device, priority=-1)
