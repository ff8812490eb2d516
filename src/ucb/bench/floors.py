"""What no sampled step can do without: ordinary nets, in the simplest form that trains."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bench.sizes import RATE, MLPSizes
from ucb.bench.timing import Step


class OrdinaryNets:
    """One step of gradient descent for so many ordinary nets on one batch, each by itself.

    There are tensors only, neither modules nor an optimiser. Several nets go through batched matrix products.
    """

    def __init__(self, sizes: MLPSizes, nets: int, x: Tensor, y: Tensor) -> None:
        self.nets, self.x, self.y = nets, x, y.repeat(nets)
        self.parameters = [
            (torch.rand((nets, *shape), device=x.device) * 2 - 1).div_(math.sqrt(fan_in)).requires_grad_()
            for fan_in, *shape in (
                (sizes.inputs, sizes.hidden, sizes.inputs),
                (sizes.inputs, sizes.hidden),
                (sizes.hidden, sizes.classes, sizes.hidden),
                (sizes.hidden, sizes.classes),
            )
        ]
        if nets == 1:
            self.parameters = [p.detach()[0].clone().requires_grad_() for p in self.parameters]
        # The sum of the nets' mean losses, whose gradient is each one's own, is the mean of all times their number.
        self.weight = torch.tensor(float(nets), device=x.device)

    def logits(self) -> Tensor:
        """Return the logits of all nets, one net after the other."""
        first, first_bias, second, second_bias = self.parameters
        if self.nets == 1:
            return F.linear(F.relu(F.linear(self.x, first, first_bias)), second, second_bias)
        x = self.x.expand(self.nets, *self.x.shape)
        hidden = F.relu(torch.baddbmm(first_bias.unsqueeze(1), x, first.transpose(1, 2)))
        return torch.baddbmm(second_bias.unsqueeze(1), hidden, second.transpose(1, 2)).flatten(0, 1)

    def __call__(self) -> None:
        """Take a step."""
        loss = F.cross_entropy(self.logits(), self.y)
        gradients = torch.autograd.grad(loss, self.parameters, self.weight.to(loss.dtype))
        with torch.no_grad():
            torch._foreach_add_(self.parameters, gradients, alpha=-RATE)


def ordinary_step(net: nn.Module, x: Tensor, y: Tensor, passes: int = 1) -> Step:
    """Return a step of an ordinary net as one writes it, forward and back so many times."""
    net.to(x.device)
    optimizer = torch.optim.SGD(net.parameters(), RATE)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(passes):
            (F.cross_entropy(net(x), y) / passes).backward()
        optimizer.step()

    return step
