"""What the methods share that learn an ordinary net by gradient descent: what is added to the gradient differs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ucb.methods.base import EvalContext, Method, Settings
from ucb.nets import HeadedNet


class OrdinaryMethod(Method):
    """Plain stochastic gradient descent on the mean NLL; heads at rest have no gradient and stay."""

    def __init__(self, net: HeadedNet, settings: Settings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), settings.lr)

    def shared(self) -> dict[str, nn.Parameter]:
        """Return the parameters that all tasks share, by name: the trunk's, and the head's where there is one only."""
        return {name: p for name, p in self.net.named_parameters() if self.net.is_shared(name)}

    def add_gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the gradient of the NLL, and of what a method adds to it."""
        nll = self.nll(self.net(x), y)
        self.objective(nll, x).backward()
        return nll.detach()

    def objective(self, nll: Tensor, x: Tensor) -> Tensor:
        """Return what is minimised: the batch's NLL, and what a method adds to it."""
        return nll

    @torch.no_grad()
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean NLL."""
        self.set_to_eval()
        return self.nll(self.net(x), y)

    @torch.no_grad()
    def logits(self, x: Tensor, asked: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Return the net's logits: an ordinary net has one sample."""
        self.set_to_eval()
        with self.net.using(asked.head):
            logits: Tensor = self.net(x)
        return logits.unsqueeze(0)
