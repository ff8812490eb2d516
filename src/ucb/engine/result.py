"""What a run measures: how well each task is known, how far sigma moved, and ``result.json`` with all of it."""

from __future__ import annotations

import math
import os
import platform
import resource
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch import Tensor

import ucb
from ucb import kernels
from ucb.bayes import Likelihood, gaussians
from ucb.bayes.posterior import Gaussian
from ucb.data.streams.tasks import Stream, Task
from ucb.engine.training import rows_at_once
from ucb.kernels.triton import launch
from ucb.methods import EvalContext, Method
from ucb.methods.bayesian import BayesianMethod
from ucb.metrics import calibration
from ucb.seeds import generator_for

if TYPE_CHECKING:
    from ucb.engine.loop import Run


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


def evaluate(
    method: Method, stream: Stream, index: int, samples: int, device: torch.device, seed: object
) -> TaskMetrics:
    """Judge task ``index`` on its test data, with class probabilities averaged over ``samples`` weight samples.

    Where the task is known, only its own outputs count; where it is hidden, all do, and the learner is not told.
    """
    task, outputs, known = stream.tasks[index], stream.outputs_of(index), stream.scenario.task_known
    asked = EvalContext(index if stream.scenario.heads == "many" else 0, index if known else None)
    generator = generator_for("evaluate", seed, index, device=device)

    def answer(x: Tensor, count: int) -> Tensor:
        logits = method.logits(x, asked, count, generator)
        return logits[..., outputs.start : outputs.stop] if known else logits

    def probabilities(x: Tensor, count: int) -> Tensor:
        return answer(x, count).softmax(-1)

    if not method.learns_classes:
        return _score_numbers(method.likelihood, task, answer, samples, device)
    sampled, labels, truth = [], [], []
    for x, y in task.test.in_order(rows_at_once(task.test, device), device):
        inputs = task.prepare(x)
        sampled.append(probabilities(inputs, samples).mean(0))
        labels.append(probabilities(inputs, 0)[0].argmax(1))
        truth.append(y if known else y + outputs.start)
    p, target = torch.cat(sampled), torch.cat(truth)
    losses, ece, bins = calibration(p, target)
    right = torch.stack([p.argmax(1), torch.cat(labels)]) == target
    nll_error = losses.std() / math.sqrt(len(losses)) if len(losses) > 1 else losses.new_zeros(())
    figures = [right.double().mean(1), torch.stack([ece, losses.mean(), nll_error]), bins.flatten()]
    numbers = torch.cat(figures).tolist()  # read at once: each look holds up a GPU
    in_threes = [numbers[i : i + 3] for i in range(5, len(numbers), 3)]
    return TaskMetrics(100 * numbers[0], 100 * numbers[1], *numbers[2:5], bins=in_threes, right=right[0])


def _score_numbers(
    likelihood: Likelihood[Any], task: Task, answer: Callable[[Any, int], Tensor], samples: int, device: torch.device
) -> TaskMetrics:
    """Judge targets that are no classes: ``accuracy`` is 100 times the likelihood's score, such as R^2.

    ``nll`` is the mean over weight samples of the NLL; calibration has no bins here.
    """
    predicted: list[list[Any]] = [[], []]
    targets, losses = [], []
    for x, y in task.test.in_order(rows_at_once(task.test, device), device):
        inputs = task.prepare(x)
        sampled = answer(inputs, samples)
        predicted[0].append(likelihood.summarise(sampled))
        predicted[1].append(likelihood.summarise(answer(inputs, 0)))
        losses.append(torch.stack([likelihood(each, y) for each in sampled]).mean() * len(y))
        targets.append(y)
    target = torch.cat(targets)
    joined = [type(parts[0])(*map(torch.cat, zip(*parts, strict=True))) for parts in predicted]
    score, of_means = (100 * likelihood.score(prediction, target) for prediction in joined)
    return TaskMetrics(score, of_means, math.nan, float(torch.stack(losses).sum()) / len(target), math.nan)


Movement = dict[str, float | None]
"""What moved in one weight tensor, by name."""

PERCENTILES = (1, 50, 99)
"""Of the ratio of sigma's end to its start."""

FIGURES = (*(f"ratio_p{p}" for p in PERCENTILES), "std_log_sigma", "correlation_with_start")
"""The names in a movement."""


@torch.no_grad()
def sigma_movement(method: BayesianMethod, among: Iterable[tuple[str, Gaussian]] | None = None) -> dict[str, Movement]:
    """Return, for each weight tensor or for some of them, how far sigma moved from its start.

    The ratio of end to start at three percentiles; how much log sigma varies at the end; and the correlation of the
    two, where both vary: near 1, the "uncertainty" would be nothing but the first random numbers.
    """
    weights = dict(gaussians(method.net) if among is None else among)
    ends = {name: gaussian.sigma.flatten().double() for name, gaussian in weights.items()}
    starts = {
        name: torch.as_tensor(method.start[name], dtype=end.dtype, device=end.device).flatten()
        for name, end in ends.items()
    }
    found: dict[str, Movement] = {}
    varied: list[str] = []
    figures = _read([_figures(starts[name], end) for name, end in ends.items()])
    for name, (*ratios, std_log, start_std, start_mean) in zip(weights, figures, strict=True):
        found[name] = dict(zip(FIGURES, (*ratios, std_log, None), strict=True))
        if start_std > 1e-6 * start_mean:
            varied.append(name)
    correlations = _read([torch.corrcoef(torch.stack([starts[name], ends[name]]))[0, 1] for name in varied])
    for name, correlation in zip(varied, correlations, strict=True):
        found[name]["correlation_with_start"] = None if math.isnan(correlation) else correlation
    return found


def _figures(start: Tensor, end: Tensor) -> Tensor:
    """Return the ratio's percentiles, how much log sigma varies, and the standard deviation and mean of the start."""
    ratio = (end / start).sort().values
    percentiles = [ratio[round(p / 100 * (len(ratio) - 1))] for p in PERCENTILES]
    return torch.stack([*percentiles, _std(end.log()), _std(start), start.mean()])


def _std(values: Tensor) -> Tensor:
    """Return the standard deviation, 0 for a single value."""
    return values.std() if len(values) > 1 else values.new_zeros(())


def _read(rows: list[Tensor]) -> list[Any]:
    """Return all their numbers at once: each look holds up a GPU."""
    return torch.stack(rows).tolist() if rows else []


def kernels_on(device: torch.device) -> str:
    """Say in one line which kernels draw noise on a device."""
    status = launch.status() if device.type == "cuda" else kernels.status()
    return status.splitlines()[0]


def keep_kernels(known: list[str], device: torch.device) -> str | None:
    """Add the kernels of a device to those ``known`` to have drawn a run's noise; if they are others, say what follows.

    What is in brackets is why there are no better ones, and changes nothing.
    """
    now = kernels_on(device)
    if known and _name(known[-1]) == _name(now):
        return None
    known.append(now)
    if len(known) == 1:
        return None
    return (
        f"other kernels draw the noise from here on, {now}, than up to here, {known[-2]}: "
        "the figures will not be those of a run that was never cut"
    )


def _name(status: str) -> str:
    return status.partition(" (")[0]


_runs_begun = count()


@dataclass(frozen=True)
class Company:
    """Which other runs share a run's process: the time and memory that it takes depend on them."""

    beside: int | None = None
    """How many other runs learn at the same time; None where that is not known, as where processes share a GPU."""
    has_own_peak: bool = False
    """Whether the most memory that is held, once the run is done, was held for this run."""


def find_company(run: Run, beside: int, resumed: bool) -> Company:
    """Return the company of a run that is about to learn, with ``beside`` others; from here on its memory counts.

    A run that was ``resumed`` has learnt in an earlier process, of which nothing is known here.
    """
    on_gpu, is_first = run.device.type == "cuda", next(_runs_begun) == 0
    if beside == 0 and on_gpu:
        torch.cuda.reset_peak_memory_stats(run.device)
    # A process's own peak cannot be put back, so that of the CPU is of use to the first run alone.
    has_own_peak = beside == 0 and not resumed and (on_gpu or is_first)
    is_known = not on_gpu or not (resumed or "CUDA_MPS_PIPE_DIRECTORY" in os.environ)
    return Company(beside if is_known else None, has_own_peak)


def result_of(run: Run, config: dict[str, Any], company: Company | None = None) -> dict[str, Any]:
    """Return everything that was measured, with all it takes to repeat it."""
    company = Company() if company is None else company
    matrix, stream = run.matrix, run.stream
    hidden = not stream.scenario.task_known
    last, own = run.progress.metrics_last, [figures[0] for figures in run.progress.own]
    found = {
        "benchmark": stream.name,
        "method": run.method.name,
        "seed": run.seed,
        "tasks": [task.name for task in stream.tasks],
        "accuracy_matrix": matrix.after,
        "after_task_end": own if run.method.evaluated_before_end else None,
        "acc": matrix.acc,
        "acc_of": {name: mean(matrix.after[-1][i] for i in which) for name, which in stream.subsets.items()},
        "bwt": matrix.bwt,
        "bwt_n1": matrix.bwt_n1,
        "generalised_acc": matrix.acc if hidden else None,
        "forgetting": matrix.forgetting,
        "forward_transfer": matrix.forward_transfer,
        "learning_acc": matrix.learning,
        "mean_weight_acc": [judgement.mean_weight_accuracy for judgement in last],
        "ece": [judgement.ece for judgement in last],
        "nll": [judgement.nll for judgement in last],
        "calibration": summarize_bins(run.progress.bins),
        "right_answers": run.progress.right or None,
        "epochs": run.progress.epochs_used,
        "sigma": sigma_movement(run.method) if isinstance(run.method, BayesianMethod) else None,
        "sigma_by_task": run.progress.sigma or None,
        "weights": count_weights(run.method),
        "stored_values": stored_values(run.method.state_dict()),
        "config": config,
        "versions": {**versions(run.device), "kernels": ", then ".join(run.progress.kernels)},
        "device": device_name(run.device),
        "seconds": run.progress.seconds,
        "task_seconds": run.progress.task_seconds,
        "beside": company.beside,
        "steps": run.progress.steps,
        "peak_memory_bytes": peak_memory(run.device) if company.has_own_peak else None,
    }
    return {key: _without_nan(value) for key, value in found.items()}


def _without_nan(value: Any) -> Any:
    """Return the value with None for what was not measured, which JSON can say."""
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def summarize_bins(bins: list[list[list[float]]]) -> list[dict[str, list[float]]]:
    """Return, for each task, the bins of confidence that hold examples: how many, mean confidence, share of right."""
    held = [[each for each in task if each[0] > 0] for task in bins]
    return [
        {
            "count": [int(n) for n, _, _ in task],
            "confidence": [confidence / n for n, confidence, _ in task],
            "accuracy": [right / n for n, _, right in task],
        }
        for task in held
    ]


def count_weights(method: Method) -> int:
    """Count the net's weights: a Gaussian one counts once."""
    values = sum(p.numel() for p in method.net.parameters())
    return values - sum(g.mu.numel() for _, g in gaussians(method.net))


def stored_values(state: Any) -> int:
    """Count the numbers of 4 bytes that a method must keep between tasks; random states and first weights aside."""
    return math.ceil(_bytes(state) / 4)


def _bytes(state: Any) -> int:
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, dict):
        return sum(_bytes(value) for key, value in state.items() if key not in ("generator", "start", "first"))
    return sum(_bytes(value) for value in state) if isinstance(state, list | tuple) else 0


def versions(device: torch.device) -> dict[str, str]:
    """Return what a figure may depend on beside the code."""
    return {
        "ucb": ucb.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "kernels": kernels_on(device),
    }


def device_name(device: torch.device) -> str:
    """Return the name of the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'' if threads == 1 else 's'}"


def peak_memory(device: torch.device) -> int:
    """Return the most memory that this process, or its GPU, has held."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
