"""One training step beside other Bayesian libraries: 784-1200-10, batch 64, 10 weight samples, one CPU thread.

Every repeat times one step of each contender in turn (process CPU time), so that a slow spell of the machine hits all
of them; the table shows medians, and the ratio to blitz and to torchbnn. Peers that are not installed are left out.

    python benchmarks/step.py [--repeats 25] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes import ELBO, Normal, Prior, ScaleMixture, kernels, to_bayesian
from ucb.optim import UCB, param_groups

SIZE, BATCH, SAMPLES, RATE = 50_000, 64, 10, 0.01
SIGMA_1, SIGMA_2, PI = 1.0, 0.0025, 0.25
PRIOR_SIGMA = 0.1
Step = Callable[[Tensor, Tensor], None]


def plain_net() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 1200), nn.ReLU(), nn.Linear(1200, 10))


def ours(estimator: str, prior: Prior, prior_samples: int) -> Step:
    net = to_bayesian(plain_net())
    objective = ELBO(SIZE, prior, samples=SAMPLES, prior_samples=prior_samples, estimator=estimator)  # type: ignore[arg-type]
    optimizer = UCB(param_groups(net), RATE)
    optimizer.consolidate()  # as from the second task on: a rate for every weight

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        objective.backward(net, x, y)
        optimizer.step()

    return step


def blitz_step() -> Step:
    from blitz.modules import BayesianLinear
    from blitz.utils import variational_estimator

    prior = {"prior_sigma_1": SIGMA_1, "prior_sigma_2": SIGMA_2, "prior_pi": PI}

    @variational_estimator
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                BayesianLinear(784, 1200, **prior), nn.ReLU(), BayesianLinear(1200, 10, **prior)
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), RATE)

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss = net.sample_elbo(x, y, F.cross_entropy, sample_nbr=SAMPLES, complexity_cost_weight=1 / SIZE)
        loss.backward()
        optimizer.step()

    return step


def bayesian_torch_step() -> Step:
    from bayesian_torch.layers import LinearReparameterization

    first = LinearReparameterization(784, 1200, prior_variance=PRIOR_SIGMA)
    second = LinearReparameterization(1200, 10, prior_variance=PRIOR_SIGMA)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], RATE)

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        for _ in range(SAMPLES):
            hidden = F.relu(first(x, return_kl=False))
            (F.cross_entropy(second(hidden, return_kl=False), y) / SAMPLES).backward()
        ((first.kl_loss() + second.kl_loss()) / SIZE).backward()
        optimizer.step()

    return step


def torchbnn_step() -> Step:
    import torchbnn

    net = nn.Sequential(
        torchbnn.BayesLinear(prior_mu=0, prior_sigma=PRIOR_SIGMA, in_features=784, out_features=1200),
        nn.ReLU(),
        torchbnn.BayesLinear(prior_mu=0, prior_sigma=PRIOR_SIGMA, in_features=1200, out_features=10),
    )
    kl = torchbnn.BKLLoss(reduction="sum", last_layer_only=False)
    optimizer = torch.optim.SGD(net.parameters(), RATE)

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        for _ in range(SAMPLES):
            (F.cross_entropy(net(x), y) / SAMPLES).backward()
        (kl(net) / SIZE).sum().backward()
        optimizer.step()

    return step


def deterministic_step(passes: int) -> Step:
    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), RATE)

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        for _ in range(passes):
            (F.cross_entropy(net(x), y) / passes).backward()
        optimizer.step()

    return step


CONTENDERS: dict[str, Callable[[], Step]] = {
    "ucb weights, mixture prior": lambda: ours("weights", ScaleMixture(PI, SIGMA_1, SIGMA_2), SAMPLES),
    "ucb weights, Gaussian prior": lambda: ours("weights", Normal(PRIOR_SIGMA), 1),
    "ucb local, mixture prior (1 prior sample)": lambda: ours("local", ScaleMixture(PI, SIGMA_1, SIGMA_2), 1),
    "ucb local, Gaussian prior": lambda: ours("local", Normal(PRIOR_SIGMA), 1),
    "blitz-bayesian-pytorch 0.2.8, mixture prior": blitz_step,
    "bayesian-torch 0.5.0, Gaussian prior": bayesian_torch_step,
    "torchbnn 1.2, Gaussian prior": torchbnn_step,
    "10 passes of one deterministic net": lambda: deterministic_step(10),
    "1 pass of one deterministic net": lambda: deterministic_step(1),
}


def measure(repeats: int) -> dict[str, list[float]]:
    """Return the milliseconds of every repeat of every contender that is installed."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))
    steps = {}
    for name, build in CONTENDERS.items():
        try:
            steps[name] = build()
        except ImportError as missing:
            print(f"left out: {name} ({missing})", file=sys.stderr)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 3):
        for name, step in steps.items():
            start = time.process_time()
            step(x, y)
            if repeat >= 3:  # the first few warm up
                times[name].append(1000 * (time.process_time() - start))
    return times


def peak_memory() -> float:
    """Return the most memory that tensors hold during ``weights`` training, in sizes of mu and rho together.

    Every allocation counts: the parameters, their gradients, a rate for every weight, buffers and activations.
    """
    torch.set_num_threads(1)
    x, y = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step = CONTENDERS["ucb weights, mixture prior"]()
        for _ in range(3):
            step(x, y)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["name"] == "[memory]"]
    changes = [e["args"]["Bytes"] for e in sorted(events, key=lambda e: e["ts"])]
    return max(itertools.accumulate(changes)) / (2 * 4 * (784 * 1200 + 1200 + 1200 * 10 + 10))


def table(ms: dict[str, list[float]]) -> str:
    """Return medians and ratios as a Markdown table."""
    medians = {name: statistics.median(values) for name, values in ms.items()}
    peers = {"blitz": "blitz-bayesian-pytorch 0.2.8, mixture prior", "torchbnn": "torchbnn 1.2, Gaussian prior"}
    lines = ["| one step | ms | of blitz | of torchbnn |", "| --- | --- | --- | --- |"]
    for name, median in medians.items():
        ratios = [f"{median / medians[peer]:.2f}" if peer in medians else "-" for peer in peers.values()]
        lines.append(f"| {name} | {median:.1f} | {' | '.join(ratios)} |")
    return "\n".join(lines)


def summary(result: dict[str, Any]) -> str:
    """Return all that a run of this benchmark says, as Markdown."""
    return (
        f"{table(result['ms'])}\n\n"
        f"Kernels: {result['kernels']}. Machine: {result['machine']}.\n"
        f"Peak memory of `weights`: {result['memory']:.2f} times mu and rho."
    )


def machine() -> str:
    """Say what this ran on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, one thread, Python {platform.python_version()}, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    args = parser.parse_args()
    result = {
        "ms": measure(args.repeats),
        "memory": peak_memory(),
        "kernels": kernels.status(),
        "machine": machine(),
    }
    print(summary(result))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
