"""UCB: gradient descent with a learning rate for every weight, small where the data has made the weight certain.

Algorithms 1 and 2 of the paper. Within a task the rates are constant; ``consolidate()`` at its end sets them anew. Its
control, :class:`UniformLR`, gives all weights of a layer the same mean rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from ucb.checks import not_negative, one_of, positive
from ucb.kernels.triton import fused, launch
from ucb.optim.base import Group, PerWeightOptimizer
from ucb.optim.importance import RateScale

On = Literal["mu", "rho", "both"]


class UCB(PerWeightOptimizer):
    """Stochastic gradient descent on mu and rho, each weight at ``lr`` times its own scale.

    Make it from ``param_groups(net)``. ``scale`` says how sigma and mu become a rate and ``on`` which of mu and rho it
    slows down; the paper's choice, and the default, is mu alone. The scale is relative to the base rate: a task's end
    replaces it. ``cumulative=True`` multiplies it into the last one, as Algorithm 2 reads literally; since sigma is
    small, little can be learnt then after the second task. ``rho_lr`` is rho's own base rate, if it has one.

    With ``continuous`` the rates follow the present sigma at every step, and no task's end need be known.

    - ``groups``: ``param_groups(net)`` of a Bayesian net.
    - ``lr``: the base rate; ``momentum`` is 0 or more and below 1.

    >>> import torch, ucb
    >>> net = ucb.to_bayesian(torch.nn.Linear(20, 2))
    >>> optimizer = ucb.UCB(ucb.param_groups(net), lr=0.1)
    >>> terms = ucb.ELBO(num_examples=64).backward(net, torch.randn(64, 20), torch.randint(2, (64,)))
    >>> optimizer.step()
    >>> optimizer.consolidate()  # the task ends: from now on certain weights learn slowly
    """

    settings: tuple[str, ...] = ("scale", "on", "cumulative", "continuous")

    def __init__(
        self,
        groups: Iterable[Group],
        lr: float = 0.01,
        *,
        momentum: float = 0.0,
        rho_lr: float | None = None,
        scale: RateScale | None = None,
        on: On = "mu",
        cumulative: bool = False,
        continuous: bool = False,
    ) -> None:
        positive("lr", lr)
        if not 0 <= not_negative("momentum", momentum) < 1:
            raise ValueError(f"momentum must be below 1, not {momentum}")
        one_of("on", on, get_args(On))
        self.scale = RateScale() if scale is None else scale
        if cumulative and continuous:
            raise ValueError(
                "rates either follow sigma at every step (continuous) or are multiplied by it (cumulative)"
            )
        self.on, self.cumulative, self.continuous = on, cumulative, continuous
        rho_rate = 1.0 if rho_lr is None else not_negative("rho_lr", rho_lr) / lr
        super().__init__(groups, {"lr": lr, "momentum": momentum, "rho_rate": rho_rate})

    def prepare(self) -> None:
        """Let the rates follow sigma, if they do so all the time: those of the weights that move now."""
        if self.continuous:
            self.rescale([group for group in self.gaussian_groups() if _moves(group)])

    def update(self, group: Group) -> None:
        """Move mu and rho of a Gaussian group, or ordinary parameters, against their gradients."""
        if self._is_fused(group):  # one pass over both, on a GPU
            mu, rho = group["params"]
            directions = self._direction(mu, group["momentum"]), self._direction(rho, group["momentum"])
            scales = self.state[mu].get("scale"), self.state[rho].get("scale")
            rates = group["lr"], group["lr"] * group["rho_rate"]
            fused.descend(mu, rho, *directions, *scales, self.keep_mask(mu), *rates, self.clip_scale)
            return
        for i, parameter in enumerate(group["params"]):
            if parameter.grad is not None:
                is_rho = group["is_gaussian"] and i == 1
                lr = group["lr"] * (group["rho_rate"] if is_rho else 1.0)
                self.descend(parameter, self._direction(parameter, group["momentum"]), lr)

    def _is_fused(self, group: Group) -> bool:
        """Say whether one kernel moves mu and rho."""
        return group["is_gaussian"] and all(p.grad is not None and launch.supports(p, p.grad) for p in group["params"])

    def can_scale_gradients(self) -> bool:
        """Whether one kernel moves each weight tensor that has a gradient, by that alone."""
        return all(self._is_fused(g) and g["momentum"] == 0 for g in self.param_groups if _moves(g))

    def _direction(self, parameter: Tensor, momentum: float) -> Tensor:
        assert parameter.grad is not None
        if momentum == 0:
            return parameter.grad
        state = self.state[parameter]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(parameter)
        velocity: Tensor = state["velocity"].mul_(momentum).add_(parameter.grad)
        return velocity

    @torch.no_grad()
    def consolidate(self) -> None:
        """End a task: from now on each weight learns at a rate that its present uncertainty allows.

        Velocities of the finished task are dropped. Groups that are added later, a new head, start at the base rate.
        """
        self.rescale(self.gaussian_groups())
        for state in self.state.values():
            state.pop("velocity", None)

    def rescale(self, groups: list[Group]) -> None:
        """Set the rates of some weights from their present uncertainty."""
        for group, scale in zip(groups, [self.scales_for(group) for group in groups], strict=True):
            for parameter, part in zip(group["params"], ("mu", "rho"), strict=True):
                if self.on in (part, "both"):
                    self._set_scale(parameter, scale)

    def scales_for(self, group: Group) -> Tensor:
        """Return the factor on the rate of every weight of a group, from its present mu and sigma."""
        mu, rho = group["params"]
        return self.scale(mu, F.softplus(rho))

    def _set_scale(self, parameter: Tensor, scale: Tensor) -> None:
        state: dict[str, Any] = self.state[parameter]
        if "scale" not in state:
            state["scale"] = scale.clone()
        elif self.cumulative:
            state["scale"].mul_(scale)
        else:
            state["scale"].copy_(scale)


class UniformLR(UCB):
    """The control for UCB: the same mean rates, without regard to the uncertainty of each weight.

    After ``consolidate()`` every weight of a layer learns at the mean of the scales that UCB would have given them; or,
    with ``constant``, every weight of the net at that one fraction of the base rate.
    """

    settings = (*UCB.settings, "constant")

    def __init__(self, groups: Iterable[Group], lr: float = 0.01, *, constant: float | None = None, **ucb: Any) -> None:
        self.constant = None if constant is None else positive("constant", constant)
        super().__init__(groups, lr, **ucb)

    def scales_for(self, group: Group) -> Tensor:
        """Return one number for the whole layer."""
        if self.constant is not None:
            return torch.full_like(group["params"][0], self.constant)
        layer = [g for g in self.gaussian_groups() if g["layer"] == group["layer"]]
        scales = torch.cat([super(UniformLR, self).scales_for(g).flatten() for g in layer])
        return scales.mean().expand_as(group["params"][0])


def _moves(group: Group) -> bool:
    """Say whether the next step moves any of a group's weights."""
    return any(parameter.grad is not None for parameter in group["params"])
