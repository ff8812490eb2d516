"""What a run leaves behind: ``result.json``."""

from __future__ import annotations

import math
import os
import platform
import resource
import sys
from dataclasses import dataclass
from itertools import count
from statistics import mean
from typing import Any

import numpy
import torch
from torch import Tensor

import ucb
from ucb.bayes import gaussians
from ucb.engine.loop import Run
from ucb.engine.progress import kernels_on, sigma_movement
from ucb.methods import Method
from ucb.methods.bayesian import BayesianMethod

_runs_begun = count()


@dataclass(frozen=True)
class Company:
    """Whom a run shares its process with: what time and memory it takes depends on them."""

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
    last = run.progress.metrics_last
    found = {
        "benchmark": stream.name,
        "method": run.method.name,
        "seed": run.seed,
        "tasks": [task.name for task in stream.tasks],
        "accuracy_matrix": matrix.after,
        "after_task_end": [task.accuracy for task in run.progress.metrics_first]
        if run.method.evaluated_before_end
        else None,
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
        "calibration": calibration(run.progress.bins),
        "right_answers": run.progress.right or None,
        "epochs": run.progress.epochs_used,
        "sigma": sigma_movement(run.method) if isinstance(run.method, BayesianMethod) else None,
        "sigma_by_task": run.progress.sigma or None,
        "weights": weight_count(run.method),
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


def calibration(bins: list[list[list[float]]]) -> list[dict[str, list[float]]]:
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


def weight_count(method: Method) -> int:
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
