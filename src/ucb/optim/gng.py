"""GNG: Gaussian natural gradients within Adam, for variational continual learning.

From Chen, Diethe and Lawrence (2019, "Facilitating Bayesian continual learning by natural gradients and Stein
gradients"): the ELBO's gradient is divided by the Fisher information of the Gaussian itself, which is 1 / sigma^2
for mu and 2 / sigma^2 for sigma, so

    for mu:  sigma^2 dL/dmu        for sigma:  sigma^2 / 2 dL/dsigma

and Adam takes the step. A weight that earlier tasks have made certain then moves less for the same gradient.

Our reading: Adam divides every element by its own size, and sigma^2, which changes slowly, would cancel: what is left
for mu would be plain Adam. So one second moment serves a whole weight tensor here. It gives the step its size, as Adam
does, and leaves the natural gradient's direction as it is. Rho, for which the Fisher information is
2 (sigmoid(rho) / sigma)^2, is the coordinate of the step on sigma, which therefore stays positive.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.checks import positive
from ucb.optim.adam import bias_correction
from ucb.optim.base import Group, PerWeightOptimizer


class GNG(PerWeightOptimizer):
    """Natural gradients of mu and rho with momentum, one step size for each weight tensor.

    Make it from ``param_groups(net)``, use it with the full ELBO. The root mean square of a tensor's step is about
    ``lr``. The end of a task drops the moments. Beside mu and rho each weight stores their two momenta.
    """

    settings = ("betas",)

    def __init__(self, groups: Iterable[Group], lr: float = 1e-3, *, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self.betas = betas
        # "capturable" tells PyTorch to load the step counts onto the weights' device.
        super().__init__(groups, {"lr": positive("lr", lr), "capturable": True})

    def update_gaussian(self, group: Group, mu: nn.Parameter, rho: nn.Parameter) -> None:
        """Move mu and rho along their natural gradients."""
        sigma = F.softplus(rho)
        if rho.grad is not None:
            # dsigma/drho = sigmoid(rho) = 1 - exp(-sigma)
            ratio = sigma / torch.expm1(-sigma)
            self.update_ordinary(rho, (ratio.square_() * rho.grad).mul_(0.5), group["lr"])
        if mu.grad is not None:
            self.update_ordinary(mu, sigma.square_() * mu.grad, group["lr"])

    def update_ordinary(self, parameter: nn.Parameter, slope: Tensor, lr: float) -> None:
        """Move a parameter along the running mean of its slope, which is the plain gradient where it is ordinary."""
        state, (b1, b2) = self.state[parameter], self.betas
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["momentum"], state["square"] = torch.zeros_like(parameter), parameter.new_zeros(())
        step = state["step"].add_(1)
        state["momentum"].lerp_(slope, 1 - b1)
        state["square"].lerp_(torch.linalg.vector_norm(slope).square() / slope.numel(), 1 - b2)
        least = torch.finfo(slope.dtype).tiny
        size = (state["square"] / bias_correction(b2, step) + least).sqrt() * bias_correction(b1, step)
        self.descend(parameter, state["momentum"] / size, lr)
