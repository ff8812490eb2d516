"""Adam (Kingma and Ba 2015) on mu and rho, for methods that keep what is known in a prior and not in rates."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim.adam import adam

from ucb.bayes.checks import positive
from ucb.optim.base import PerWeightOptimizer
from ucb.optim.groups import Group


class Adam(PerWeightOptimizer):
    """PyTorch's fused Adam over ``param_groups(net)``; the end of a task drops its moments.

    Moments of a finished task say how large that task's gradients were: they would give the next task's first steps the
    wrong size.
    """

    settings = ("betas", "eps")

    def __init__(
        self, groups: Iterable[Group], lr: float = 1e-3, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
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
        pruned = [(p, keep, p.detach().clone()) for p in moving if (keep := self.kept(p)) is not None]
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

    def consolidate(self) -> None:
        """End a task: forget its moments."""
        self.state.clear()
