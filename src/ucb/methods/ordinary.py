"""What the methods share that learn an ordinary net by gradient descent: what is added to the gradient differs."""

from typing import Any

import torch
from torch import Tensor

from ucb.bayes.passes import Batch
from ucb.methods.base import EvalContext, Method, Settings
from ucb.nets import HeadedNet


class OrdinaryMethod(Method):
    """Plain stochastic gradient descent on the mean NLL; heads at rest have no gradient and stay."""

    def __init__(self, net: HeadedNet, settings: Settings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), settings.lr)

    def convert_optimizer_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Let heads that have come since join: plain gradient descent remembers nothing of a weight."""
        groups = zip(state["param_groups"], self.optimizer.state_dict()["param_groups"], strict=True)
        return {**state, "param_groups": [{**then, "params": now["params"]} for then, now in groups]}

    def add_gradients(self, x: Batch, y: Tensor) -> Tensor:
        """Add the gradient of the NLL, and of what a method adds to it."""
        nll = self.nll(self.net(x), y)
        self.objective(nll).backward()
        return nll.detach()

    def objective(self, nll: Tensor) -> Tensor:
        """Return what is minimised: the batch's NLL, and what a method adds to it."""
        return nll

    @torch.no_grad()
    def loss(self, x: Batch, y: Tensor) -> Tensor:
        """Return the mean NLL."""
        self.set_to_eval()
        return self.nll(self.net(x), y)

    @torch.no_grad()
    def logits(self, x: Batch, context: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Return the net's logits: an ordinary net has one sample."""
        self.set_to_eval()
        with self.net.using(context.head):
            logits: Tensor = self.net(x)
        return logits.unsqueeze(0)
