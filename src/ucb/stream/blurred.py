"""Streams whose tasks fade into each other, for learners that are never told of a boundary."""

from __future__ import annotations

import torch

from ucb.seeds import generator_for
from ucb.stream.mixed import MixedExamples, Part
from ucb.stream.task import Scenario, Stream, Task


def blurred(stream: Stream, blur: float, seed: int = 0) -> Stream:
    """Return the stream as one long pass over all training data, cut into as many equal pieces as it has tasks.

    An example of task i comes at the time i + U + blur * (V - 1/2), with U and V uniform: around each boundary, over a
    time of ``blur`` tasks, one task fades out while the next fades in; 0 is a sudden change, and with 1 there is no
    moment at which a task is alone. Validation and test data stay those of the tasks.
    """
    if not 0 <= blur <= 1:
        raise ValueError(f"blur must be between 0 and 1, not {blur}")
    if not stream.scenario.shared_outputs:
        raise ValueError("tasks can fade into each other only where they share their outputs")
    random = generator_for(seed, "blur")
    times = []
    for index, task in enumerate(stream.tasks):
        u, v = torch.rand(2, len(task.train), generator=random, dtype=torch.float64)
        times.append(index + u + blur * (v - 0.5))
    order = torch.cat(times).argsort(stable=True)
    parts = [Part(task.train, task.prepare, 0) for task in stream.tasks]
    pieces = order.tensor_split(len(stream))
    tasks = []
    for task, piece in zip(stream.tasks, pieces, strict=True):
        validation, test = (MixedExamples([Part(own, task.prepare, 0)]) for own in (task.validation, task.test))
        tasks.append(Task(task.name, task.classes, MixedExamples(parts, piece), validation, test))
    scenario = Scenario("one", task_known=False, shared_outputs=True, boundaries=False)
    return Stream(f"{stream.name}, blur {blur:g}", tuple(tasks), scenario)
