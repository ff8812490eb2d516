"""ORD-FT: an ordinary net that goes on training on every new task, with nothing to stop it forgetting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ucb.methods.base import Asked, Method, Settings, method
from ucb.nets import HeadedNet


@method
class OrdinaryFineTuning(Method):
    """Plain stochastic gradient descent."""

    name = "ord-ft"
    summary = "ordinary fine-tuning: nothing is done against forgetting"

    def __init__(self, net: HeadedNet, settings: Settings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), settings.lr)

    def learn(self, x: Tensor, y: Tensor) -> Tensor:
        """One step of gradient descent; heads at rest have no gradient and stay."""
        self.net.train()
        self.optimizer.zero_grad()
        nll = self.nll(self.net(x), y)
        nll.backward()
        self.clip_gradients()
        self.optimizer.step()
        return nll.detach()

    def set_rate(self, lr: float) -> None:
        """Set the learning rate."""
        self.optimizer.param_groups[0]["lr"] = lr

    @torch.no_grad()
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean NLL."""
        self.net.eval()
        return self.nll(self.net(x), y)

    @torch.no_grad()
    def logits(self, x: Tensor, asked: Asked, samples: int, generator: torch.Generator) -> Tensor:
        """Return the net's logits: an ordinary net has one sample."""
        self.net.eval()
        current, self.net.current = self.net.current, asked.head
        try:
            logits: Tensor = self.net(x)
        finally:
            self.net.current = current
        return logits.unsqueeze(0)

    def state_dict(self) -> dict[str, Any]:
        """Add the optimiser."""
        return {**super().state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        super().load_state_dict(state)
        self.optimizer.load_state_dict(state["optimizer"])
