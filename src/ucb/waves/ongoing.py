"""The ongoing way: a Bayesian net whose trunk goes on learning with UCB-NG, and heads that tell a wave's classes apart.

A wave whose classes one of the heads knows already, all of them, goes on with that head, and the net does not grow. Any
other wave has a new head, even if it mixes known classes of several: none of these has learnt to tell them apart.

An example is shown to all heads. Head h answers with class probabilities p_h under samples of the weights and is unsure
by the entropy H_h of their mean; a class gets the logit log p_h - H_h, the greatest over the heads that know it. So the
least uncertain head has the say, and a class that came in several waves is judged by the head that is surest of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ucb.bayes import forward, gaussians
from ucb.bayes.predict import from_logits
from ucb.methods.base import TaskInfo
from ucb.methods.ucb_ng import UCBNGMethod, UCBNGSettings
from ucb.optim import UCBNG
from ucb.seeds import generator_for
from ucb.waves.nets import HIDDEN, fresh_net
from ucb.waves.opinion import Opinion

SAMPLES = 10
"""Weight samples in an answer."""
CHANNELS = 32
"""About so many numbers has a convolutional net for each pixel of an image."""
USUAL, LEAST = 1e-3, 1e-5
"""Mutual information that is nothing new, and what is added to it so that there is a logarithm."""
DENSE = {"lr": 0.5, "temperature": 5e-5, "power": 2.0, "clip": 1.0, "samples": 2}
CONVOLUTIONAL = {"lr": 0.15, "temperature": 1e-4, "power": 2.0, "spread": 0.1, "samples": 2, "estimator": "weights"}
"""What held-out data chose for the project's benchmarks on MNIST (dense) and CIFAR (convolutional; the temperature is
lower, which held-out images of five waves of CIFAR10 preferred)."""


class Doubt(NamedTuple):
    """The mean log entropy of answers to examples that were learnt, and to some that were held out, with its error."""

    learnt: float
    held_out: float
    error: float


class OngoingWay:
    """A net with several heads; ``heads`` lists the numbers of their classes."""

    name = "ucb-ng"

    def __init__(self, shape: Sequence[int], net: str, heads: Sequence[Sequence[int]], seed: int) -> None:
        self.shape, self.net_name, self.seed = tuple(shape), net, seed
        self.heads = [list(head) for head in heads]
        self.mean = torch.zeros(shape[0], *[1] * (len(shape) - 1))
        self.spread = torch.ones_like(self.mean)
        settings = UCBNGSettings(**(DENSE if net == "mlp" else CONVOLUTIONAL))
        fresh = fresh_net(net, shape, [len(head) for head in self.heads], seed)
        self.method = UCBNGMethod(fresh, settings, generator_for("noise", seed, len(self.heads)))
        self.method.heads_return = True
        self.size = 1
        """Examples that the last wave learnt from."""
        self.doubt: Doubt | None = None

    def to(self, device: torch.device) -> None:
        """Stay where it is, or refuse: a device is chosen when a wave is learnt."""
        if device.type != "cpu":
            raise ValueError("ucb-ng answers on the CPU here: leave --device out")

    @property
    def optimizer(self) -> UCBNG:
        """The optimiser, which knows how sure each weight is."""
        assert isinstance(self.method.optimizer, UCBNG)
        return self.method.optimizer

    def settle(self, learnt: int, size: int) -> None:
        """Let the optimiser know the first ``learnt`` heads, and how many examples the last wave had; heads rest."""
        self.size = size
        if learnt:
            outputs = range(len(self.heads[learnt - 1]))
            self.method.resume_task(TaskInfo(learnt - 1, size, learnt - 1, outputs))
            self.method.net.heads.requires_grad_(False)
            for group in self.optimizer.param_groups:
                group["size"] = size

    def head_for(self, classes: Sequence[int]) -> int:
        """Return the smallest head that knows all these classes, or the number that a new one would have."""
        able = [number for number, head in enumerate(self.heads) if set(classes) <= set(head)]
        return min(able, key=lambda number: len(self.heads[number]), default=len(self.heads))

    @property
    def numbers_a_row(self) -> int:
        """About how many numbers are at work for an opinion on one example: its widest layer under every sample."""
        pixels = math.prod(self.shape[1:]) if self.net_name != "mlp" else 0
        return SAMPLES * (max(HIDDEN, CHANNELS * pixels) + sum(len(head) for head in self.heads))

    def look(self, sample: Tensor) -> None:
        """Standardise by some examples of the first wave."""
        numbers = sample.double() / 255 if sample.dtype == torch.uint8 else sample.double()
        axes = [0, *range(2, numbers.dim())]
        mean = numbers.mean(axes, keepdim=True)
        spread = (numbers - mean).square().mean(axes, keepdim=True).sqrt()
        self.mean.copy_(mean[0])
        self.spread.copy_(torch.where(spread > 1e-6, spread, 1.0)[0])

    def prepared(self, x: Tensor) -> Tensor:
        """Return examples as the net reads them."""
        numbers = x.float() / 255 if x.dtype == torch.uint8 else x
        return ((numbers - self.mean) / self.spread).clamp(-10, 10)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that was learnt: weights, and for each Gaussian one its precision and its rate."""
        found = {"mean": self.mean, "spread": self.spread}
        found |= {f"net.{name}": value for name, value in self.method.net.state_dict().items()}
        for group in self.optimizer.gaussian_groups():
            state = self.optimizer.state[group["params"][0]]
            found[f"precision.{group['name']}"] = state["precision"]
            if "scale" in state:
                found[f"scale.{group['name']}"] = state["scale"]
        return {name: value.detach() for name, value in found.items()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over what was learnt with as many heads or fewer; heads beyond these stay fresh."""
        self.mean.copy_(tensors["mean"])
        self.spread.copy_(tensors["spread"])
        known = {name[4:]: value for name, value in tensors.items() if name.startswith("net.")}
        self.method.net.load_state_dict({**self.method.net.state_dict(), **known})
        for group in self.optimizer.gaussian_groups():
            state = self.optimizer.state[group["params"][0]]
            if f"precision.{group['name']}" in tensors:
                state["precision"].copy_(tensors[f"precision.{group['name']}"])
            if f"scale.{group['name']}" in tensors:
                state["scale"] = tensors[f"scale.{group['name']}"].clone()

    @torch.no_grad()
    def opinion(self, x: Tensor) -> Opinion:
        """Ask all heads under samples of the weights."""
        net = self.method.net.eval()
        with net.using(None):
            return self.heard(forward(net, self.prepared(x), SAMPLES, generator=generator_for("opinion")))

    def heard(self, answers: Tensor) -> Opinion:
        """Return what all heads together say, their logits side by side; the least uncertain ones have the say."""
        classes = 1 + max(number for head in self.heads for number in head)
        logits = torch.full((*answers.shape[:2], classes), -math.inf)
        information = torch.full((answers.shape[1],), math.inf)
        least = torch.full((answers.shape[1],), math.inf)
        for own, said in zip(self.heads, answers.split([len(head) for head in self.heads], -1), strict=True):
            judged = from_logits(said)
            voice = said.log_softmax(-1) - judged.entropy[:, None]
            logits[..., own] = torch.maximum(logits[..., own], voice)
            relative = judged.entropy / math.log(max(2, len(own)))
            information = torch.where(relative < least, judged.mutual_information, information)
            least = torch.minimum(least, relative)
        return Opinion(logits, ((information + LEAST) / USUAL).log(), torch.zeros_like(information))

    def certainty(self) -> dict[str, Any]:
        """Say how sure each layer is, as sigma now over sigma before anything was learnt, and what room is left."""
        layers, free, weights = [], 0.0, 0
        groups = {group["name"]: group for group in self.optimizer.gaussian_groups()}
        for name, gaussian in gaussians(self.method.net):
            group = groups.get(name)
            if group is None:
                continue
            ratio = (gaussian.sigma.detach() / group["prior_sigma"]).clamp_max(1)
            layers.append({"layer": name, "weights": ratio.numel(), "sigma": float(ratio.mean()), "note": ""})
            if name.startswith("trunk."):
                free += float(ratio.pow(self.method.settings.power).sum())
                weights += ratio.numel()
        return {"layers": layers, "capacity_left": free / max(weights, 1)}
