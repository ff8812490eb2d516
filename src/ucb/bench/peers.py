"""Other libraries' steps, each as its own documents ask; what is not installed raises ``ImportError``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bench.ours import PI, PRIOR_SIGMA, SIGMA_1, SIGMA_2
from ucb.bench.sizes import RATE, MLPSizes
from ucb.bench.timing import Step, Work


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
        """Return its step, which draws from PyTorch's global generator."""
        return Work(self.build(sizes, x, y))


def blitz_step(sizes: MLPSizes, x: Tensor, y: Tensor) -> Step:
    """Return a step of blitz, which knows the mixture prior."""
    from blitz.modules import BayesianLinear  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from blitz.utils import variational_estimator  # type: ignore[import-untyped,import-not-found,unused-ignore]

    prior = {"prior_sigma_1": SIGMA_1, "prior_sigma_2": SIGMA_2, "prior_pi": PI}

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first = BayesianLinear(sizes.inputs, sizes.hidden, **prior)
            self.layers = nn.Sequential(first, nn.ReLU(), BayesianLinear(sizes.hidden, sizes.classes, **prior))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layers(x)
            return out

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
    from bayesian_torch.layers import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        LinearReparameterization,
    )

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
    import torchbnn  # type: ignore[import-untyped,import-not-found,unused-ignore]

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


BLITZ = Peer("blitz-bayesian-pytorch", "mixture", blitz_step)
TORCHBNN = Peer("torchbnn", "Gaussian", torchbnn_step)
PEERS = (BLITZ, Peer("bayesian-torch", "Gaussian", bayesian_torch_step), TORCHBNN)
