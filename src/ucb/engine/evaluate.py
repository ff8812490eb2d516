"""What a learner knows of the tasks it has seen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ucb.data.streams.examples import Examples
from ucb.data.streams.tasks import Scenario, Stream, Task
from ucb.methods import EvalContext, Method
from ucb.metrics.calibration import calibration
from ucb.seeds import generator_for

ROWS = 1024
"""How many examples are judged at a time; on a GPU more of them, where they are small."""

BYTES = 1 << 24
"""Of inputs that a GPU takes at a time: launching its work costs more than doing it."""


@dataclass(frozen=True)
class TaskMetrics:
    """How well one task is known: accuracies in percent, and calibration."""

    accuracy: float
    mean_weight_accuracy: float
    ece: float
    nll: float
    nll_error: float
    """The standard error of ``nll``."""
    bins: list[list[float]] = field(default_factory=list, kw_only=True)
    """For each bin of confidence: how many examples, the sum of their confidences, how many are right."""
    right: Tensor | None = field(default=None, kw_only=True, repr=False, compare=False)
    """Whether each test example was right; it stays on the device until somebody asks."""

    @classmethod
    def missing(cls) -> TaskMetrics:
        """Return what stands for a judgement that was not made."""
        return cls(*[math.nan] * 5)

    @property
    def figures(self) -> list[float]:
        """All but the bins and the right answers."""
        return [self.accuracy, self.mean_weight_accuracy, self.ece, self.nll, self.nll_error]


def rows_at_once(examples: Examples, device: torch.device) -> int:
    """Return how many examples are judged at a time."""
    if device.type != "cuda" or not examples.is_fixed:
        return ROWS
    return max(ROWS, BYTES // (4 * examples.numbers_each))


def evaluate(
    method: Method, stream: Stream, index: int, samples: int, device: torch.device, seed: object
) -> TaskMetrics:
    """Judge task ``index`` on its test data, with class probabilities averaged over ``samples`` weight samples.

    Where the task is known, only its own outputs count; where it is hidden, all do, and the learner is not told.
    """
    task, outputs, known = stream.tasks[index], stream.outputs_of(index), stream.scenario.task_known
    asked = EvalContext(index if stream.scenario.heads == "many" else 0, index if known else None)
    generator = generator_for("evaluate", seed, index, device=device)

    def probabilities(x: Tensor, count: int) -> Tensor:
        logits = method.logits(x, asked, count, generator)
        if known:
            logits = logits[..., outputs.start : outputs.stop]
        return logits.softmax(-1)

    sampled, mean, truth = [], [], []
    for x, y in task.test.in_order(rows_at_once(task.test, device), device):
        inputs = task.prepare(x)
        sampled.append(probabilities(inputs, samples).mean(0))
        mean.append(probabilities(inputs, 0)[0].argmax(1))
        truth.append(y if known else y + outputs.start)
    p, target = torch.cat(sampled), torch.cat(truth)
    return _measure(p, torch.cat(mean), target)


def _measure(p: Tensor, label: Tensor, target: Tensor) -> TaskMetrics:
    """Judge sampled probabilities, and labels under the mean weights. All is read at once: each look holds up a GPU."""
    losses, ece, bins = calibration(p, target)
    right = torch.stack([p.argmax(1), label]) == target
    nll_error = losses.std() / math.sqrt(len(losses)) if len(losses) > 1 else losses.new_zeros(())
    numbers = torch.cat([right.double().mean(1), torch.stack([ece, losses.mean(), nll_error]), bins.flatten()]).tolist()
    (sampled, mean, *others), held = numbers[:5], numbers[5:]
    in_threes = [held[i : i + 3] for i in range(0, len(held), 3)]
    return TaskMetrics(100 * sampled, 100 * mean, *others, bins=in_threes, right=right[0])


@dataclass(frozen=True)
class TaskBatches:
    """The data of the task at hand as methods see it: inputs ready for the net, labels as its outputs are numbered."""

    task: Task
    offset: int
    batch_size: int
    device: torch.device

    def train(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all training examples once."""
        return self._prepare(self.task.train, self.batch_size)

    def validation(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all held-out examples once."""
        return self._prepare(self.task.validation, rows_at_once(self.task.validation, self.device))

    def _prepare(self, examples: Examples, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in examples.in_order(rows, self.device):
            yield self.task.prepare(x), y + self.offset


def refuse_scenario(method: Method, scenario: Scenario) -> None:
    """Refuse a scenario that the method cannot serve."""
    if method.needs_task and not scenario.task_known:
        raise ValueError(
            f"{method.name} must be told the task at test time, and this scenario hides it: use several heads"
        )
    if method.needs_boundaries and not scenario.boundaries:
        raise ValueError(f"{method.name} must be told when a task ends, and tasks that fade into each other hide it")
