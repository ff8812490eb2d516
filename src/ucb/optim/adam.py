"""Adam (Kingma and Ba 2015) on mu and rho, and Vadam: for methods that keep what is known in a prior, not in rates.

Vadam is variational inference by noise on the weights within Adam. The step is that of Khan et al. (2018, "Fast and
scalable Bayesian deep learning by weight-perturbation in Adam"). It takes the gradient g of the mean NLL at one weight
sample w = mu + sigma * epsilon. The running mean s of g^2 stands for the NLL's curvature and gives the spread,
sigma^2 = 1 / (N s + lambda), where lambda is the prior's precision:

    m <- b1 m + (1 - b1) (g + lambda / N (mu - mu_0))        s <- b2 s + (1 - b2) g^2
    mu <- mu - lr * m / (1 - b1^t) / (sqrt(s / (1 - b2^t)) + lambda / N)

The paper's prior is N(0, 1 / lambda) with one lambda. Here every weight has its own lambda and mu_0, so that the
posterior of a task can be the prior of the next (VCL): lambda <- N s + lambda, mu_0 <- mu, and s starts at 0 again,
which leaves sigma where it was. At temperature T the data counts as N / T examples. Use it with an ELBO of
temperature 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.adam import adam

from ucb.checks import count, positive
from ucb.kernels import inverse_softplus
from ucb.optim.base import Group, PerWeightOptimizer

EPS = 1e-8
"""What keeps the step of an ordinary parameter, which has no prior, finite."""


class Adam(PerWeightOptimizer):
    """PyTorch's fused Adam over ``param_groups(net)``; the end of a task drops its moments.

    Moments of a finished task say how large that task's gradients were: they would give the next task's first steps the
    wrong size.
    """

    settings = ("betas", "eps")

    def __init__(
        self, groups: Iterable[Group], lr: float = 1e-3, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = EPS
    ) -> None:
        self.betas, self.eps = betas, positive("eps", eps)
        # "fused" tells PyTorch to load the step counts onto the weights' device.
        super().__init__(groups, {"lr": positive("lr", lr), "fused": True})

    def update(self, group: Group) -> None:
        """Move every parameter that has a gradient."""
        moving: list[nn.Parameter] = [p for p in group["params"] if p.grad is not None]
        if not moving:
            return
        for p in moving:
            if not self.state[p]:
                self.state[p]["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                self.state[p]["mean"], self.state[p]["square"] = torch.zeros_like(p), torch.zeros_like(p)
        pruned = [(p, keep, p.detach().clone()) for p in moving if (keep := self.keep_mask(p)) is not None]
        states = [self.state[p] for p in moving]
        adam(
            moving,  # type: ignore[arg-type]
            [p.grad for p in moving if p.grad is not None],
            [s["mean"] for s in states],
            [s["square"] for s in states],
            [],
            [s["step"] for s in states],
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=group["lr"],
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )
        for p, keep, before in pruned:  # moments may remember a weight that is pruned by now
            p.copy_(torch.where(keep, p, before))


class Vadam(PerWeightOptimizer):
    """Adam whose second moments are the posterior's spread. Make it from ``param_groups(net)``.

    ``num_examples`` counts the task's training examples. A weight's prior is N(0, sigma^2) with the sigma that it has
    when it joins, so s starts at 0 as the paper has it. Ordinary parameters take Adam's step. Beside mu and rho each
    weight stores m, s, lambda and mu_0; rho only mirrors s and lambda.
    """

    settings = ("temperature", "betas")

    def __init__(
        self,
        groups: Iterable[Group],
        num_examples: int,
        lr: float = 1e-3,
        *,
        temperature: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self.temperature = positive("temperature", temperature)
        self.betas = betas
        count("num_examples, the number of training examples,", num_examples)
        # "capturable" tells PyTorch to load the step counts onto the weights' device.
        super().__init__(groups, {"lr": positive("lr", lr), "size": num_examples, "capturable": True})

    @torch.no_grad()
    def add_param_group(self, param_group: Group) -> None:
        """Add a group, a new head say: its weights start at their prior's spread."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["is_gaussian"]:
            mu, rho = group["params"]
            self.state[mu]["precision"] = F.softplus(rho).pow(-2)
            self.state[mu]["anchor"] = torch.zeros_like(mu)

    def update_ordinary(self, parameter: nn.Parameter, grad: Tensor, lr: float) -> None:
        """Take Adam's step."""
        self._step(parameter, grad, grad, EPS, lr)

    def update_gaussian(self, group: Group, mu: nn.Parameter, rho: nn.Parameter) -> None:
        """Move the mean by its gradient, and let its spread follow the gradient's size."""
        if mu.grad is None:
            return
        delta = self.state[mu]["precision"] / (group["size"] / self.temperature)
        slope = torch.addcmul(mu.grad, delta, mu - self.state[mu]["anchor"])
        self._step(mu, slope, mu.grad, delta, group["lr"])
        if rho.requires_grad:  # a frozen or pruned spread stays
            new, keep = inverse_softplus(self._precision(group).rsqrt_()), self.keep_mask(rho)
            rho.copy_(new if keep is None else torch.where(keep, new, rho))

    def _step(self, parameter: nn.Parameter, slope: Tensor, grad: Tensor, floor: Tensor | float, lr: float) -> None:
        """Move a parameter along the running mean of ``slope``, each element in units of its gradient's size."""
        state, (b1, b2) = self.state[parameter], self.betas
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["momentum"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        step = state["step"].add_(1)
        state["momentum"].lerp_(slope, 1 - b1)
        state["square"].mul_(b2).addcmul_(grad, grad, value=1 - b2)
        size = (state["square"] / bias_correction(b2, step)).sqrt_().add_(floor).mul_(bias_correction(b1, step))
        self.descend(parameter, torch.div(state["momentum"], size, out=size), lr)

    def _precision(self, group: Group) -> Tensor:
        """Return 1 / sigma^2 = N s + lambda."""
        state = self.state[group["params"][0]]
        return torch.add(state["precision"], state["square"], alpha=group["size"] / self.temperature)

    @torch.no_grad()
    def consolidate(self) -> None:
        """End a task: its posterior is the next one's prior."""
        for group in self.gaussian_groups():
            mu = group["params"][0]
            state = self.state[mu]
            if "square" in state:
                state["precision"] = self._precision(group)
                state["anchor"] = mu.detach().clone()
        for state in self.state.values():
            for name in ("step", "momentum", "square"):
                state.pop(name, None)

    def begin(self, num_examples: int) -> None:
        """Start a task of ``num_examples`` training examples."""
        count("num_examples, the number of training examples,", num_examples)
        for group in self.param_groups:
            group["size"] = num_examples


def bias_correction(beta: float, step: Tensor) -> Tensor:
    """Return 1 - beta^step, the weight that a running mean which started at 0 has gathered, to full precision."""
    return -torch.expm1(step * math.log(beta))
