"""What one training step costs, as `ucb bench` measures it, with other libraries' steps in turns with ours.

    python benchmarks/peers.py [--device cpu] [--repeats 25] [--nets mlp] [--out results/bench/step-cpu.json]

Each library is used as its own documents ask. What is not installed is left out and named; requirements/bench.txt has
all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.checks import find_device
from ucb.cli.bench import REPEATS, show
from ucb.experiments.bench.results import measure_nets
from ucb.experiments.bench.steps import NETS, PI, PRIOR_SIGMA, RATE, SIGMA_1, SIGMA_2, MLPSizes
from ucb.experiments.bench.timing import Step, Work


@dataclass(frozen=True)
class Peer:
    """A library: its name where packages are found, the prior it is timed with, and its step."""

    package: str
    prior: str
    build: Callable[[MLPSizes, Tensor, Tensor], Step]

    @property
    def label(self) -> str:
        """What its row is called."""
        try:
            return f"{self.package} {version(self.package)}, {self.prior} prior"
        except ImportError:
            return f"{self.package}, {self.prior} prior"

    def work(self, sizes: MLPSizes, x: Tensor, y: Tensor) -> Work:
        """Return its step, which draws from PyTorch's global generator; raise ``ImportError`` without the library."""
        return Work(self.build(sizes, x, y))


def blitz_step(sizes: MLPSizes, x: Tensor, y: Tensor) -> Step:
    """Return a step of blitz, which knows the mixture prior."""
    from blitz.modules import BayesianLinear
    from blitz.utils import variational_estimator

    prior = {"prior_sigma_1": SIGMA_1, "prior_sigma_2": SIGMA_2, "prior_pi": PI}

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first = BayesianLinear(sizes.inputs, sizes.hidden, **prior)
            self.layers = nn.Sequential(first, nn.ReLU(), BayesianLinear(sizes.hidden, sizes.classes, **prior))

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    net: Any = variational_estimator(Net)().to(x.device)
    optimizer = torch.optim.SGD(net.parameters(), RATE)

    def step() -> None:
        optimizer.zero_grad()
        weight = 1 / sizes.examples
        net.sample_elbo(x, y, F.cross_entropy, sample_nbr=sizes.samples, complexity_cost_weight=weight).backward()
        optimizer.step()

    return step


def bayesian_torch_step(sizes: MLPSizes, x: Tensor, y: Tensor) -> Step:
    """Return a step of bayesian-torch."""
    from bayesian_torch.layers import LinearReparameterization

    first = LinearReparameterization(sizes.inputs, sizes.hidden, prior_variance=PRIOR_SIGMA).to(x.device)
    second = LinearReparameterization(sizes.hidden, sizes.classes, prior_variance=PRIOR_SIGMA).to(x.device)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], RATE)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(sizes.samples):
            hidden = F.relu(first(x, return_kl=False))
            (F.cross_entropy(second(hidden, return_kl=False), y) / sizes.samples).backward()
        ((first.kl_loss() + second.kl_loss()) / sizes.examples).backward()
        optimizer.step()

    return step


def torchbnn_step(sizes: MLPSizes, x: Tensor, y: Tensor) -> Step:
    """Return a step of torchbnn."""
    import torchbnn

    prior = {"prior_mu": 0, "prior_sigma": PRIOR_SIGMA}
    net = nn.Sequential(
        torchbnn.BayesLinear(**prior, in_features=sizes.inputs, out_features=sizes.hidden),
        nn.ReLU(),
        torchbnn.BayesLinear(**prior, in_features=sizes.hidden, out_features=sizes.classes),
    ).to(x.device)
    kl = torchbnn.BKLLoss(reduction="sum", last_layer_only=False)
    optimizer = torch.optim.SGD(net.parameters(), RATE)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(sizes.samples):
            (F.cross_entropy(net(x), y) / sizes.samples).backward()
        (kl(net) / sizes.examples).sum().backward()
        optimizer.step()

    return step


PEERS = (
    Peer("blitz-bayesian-pytorch", "mixture", blitz_step),
    Peer("bayesian-torch", "Gaussian", bayesian_torch_step),
    Peer("torchbnn", "Gaussian", torchbnn_step),
)


def peer_steps(sizes: MLPSizes, x: Tensor, y: Tensor) -> dict[str, Callable[[], Work]]:
    """Return what builds the step of each library, by the name of its row."""
    return {peer.label: partial(peer.work, sizes, x, y) for peer in PEERS}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=REPEATS, default="cpu")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--nets", help="on a GPU: which nets, with commas between")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(words)
    names = args.nets.split(",") if args.nets else list(NETS) if args.device == "cuda" else ["mlp"]
    repeats = args.repeats or REPEATS[args.device]
    result = measure_nets(names, repeats, find_device(args.device), peer_steps)
    command = f"python benchmarks/peers.py --device {args.device} --repeats {repeats} --nets {','.join(names)}"
    show(result, command, args.out)


if __name__ == "__main__":
    main()
