"""A tiny stream that every method learns in a second."""

import torch

from ucb.data.streams import Scenario, Stream, from_arrays


def tiny_stream(tasks: int = 3, size: int = 300, scenario: Scenario | None = None) -> Stream:
    """Two classes of points in the plane, a task for each direction that parts them."""
    generator = torch.Generator().manual_seed(0)
    made = {}
    for task in range(tasks):
        direction = torch.randn(8, generator=generator)
        x = torch.randn(2 * size, 8, generator=generator)
        y = (x @ direction > 0).long()
        made[f"direction {task}"] = (x[:size], y[:size], x[size:], y[size:])
    return from_arrays("tiny", made, scenario=scenario)
