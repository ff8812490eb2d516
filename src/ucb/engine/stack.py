"""Several runs' methods as one, whose tensors have a leading axis of runs: their steps are taken at once.

Each run's own method stays what it is. The stack is a copy that takes the steps of a task, and every method gets its
part back when its losses are looked at: best weights, checkpoints and a task's end know nothing of it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor, nn

from ucb.bayes.layers import BayesLinear
from ucb.bayes.posterior import Gaussian
from ucb.methods import Method


def kind_of(method: Method) -> Hashable | None:
    """Return what methods must have in common to be stacked, or None where that one cannot be."""
    is_stackable = vars(type(method)).get("stacks", False) and method.can_stack
    if not is_stackable or method.adjusts_gradients or not _is_of_linear_layers(method.net):
        return None
    settings = dataclasses.asdict(method.settings)
    common = tuple((name, value) for name, value in settings.items() if name not in method.free_settings)
    return type(method), common, tuple((name, p.shape) for name, p in method.net.named_parameters())


def _is_of_linear_layers(net: nn.Module) -> bool:
    """Say whether all weights are those of linear layers: others fill a GPU alone, or normalise over a batch."""
    own = [module for module in net.modules() if any(True for _ in module.parameters(recurse=False))]
    has_buffers = any(True for _ in net.buffers())
    return not has_buffers and all(isinstance(module, nn.Linear | BayesLinear | Gaussian) for module in own)


def tensors_of(method: Method) -> list[Tensor]:
    """Return everything that a step reads or changes: the net's tensors, and the optimiser's."""
    return [tensor.detach() for tensor in _held_by(method)]


def _held_by(method: Method) -> list[Tensor]:
    state, groups = method.optimizer.state, method.optimizer.param_groups
    kept = [state.get(p, {}) for group in groups for p in group["params"]]
    return [*method.net.parameters(), *(v for each in kept for _, v in sorted(each.items()) if isinstance(v, Tensor))]


class Stack:
    """The methods of several runs, all at the same task."""

    def __init__(self, methods: Sequence[Method], example: Tensor) -> None:
        first = methods[0]
        self.methods, self.generators = list(methods), [method.generator for method in methods]
        self.one: Method = copy.deepcopy(first, {id(first.generator): first.generator})
        self.rates = torch.zeros(len(methods), device=example.device)
        self._rates: list[float] = []
        for group in self.one.optimizer.param_groups:
            group["lr"] = self.rates
        targets = _held_by(self.one)
        for target, *each in zip(targets, *map(tensors_of, methods), strict=True):
            target.data = torch.stack(each)
        self.parts = [[tensor.detach()[run] for tensor in targets] for run in range(len(methods))]
        self.one.stack_like(self.methods, example)

    def take_rates(self) -> None:
        """Learn at the present rate of each method."""
        rates = [method.optimizer.param_groups[0]["lr"] for method in self.methods]
        if rates != self._rates:
            self._rates = rates
            self.rates.copy_(torch.tensor(rates))

    @torch.no_grad()
    def hand_over(self, run: int) -> None:
        """Give a method its state."""
        torch._foreach_copy_(tensors_of(self.methods[run]), self.parts[run])

    def learn(self, x: Tensor, y: Tensor, seeds: Tensor) -> Tensor:
        """Learn a batch of each run, one after the other in ``x`` and ``y``; return the mean NLL of each.

        ``seeds`` [draws, runs] are those of the noise.
        """
        one, runs = self.one, len(self.methods)
        one.net.train()
        one.optimizer.zero_grad()
        nlls = one.add_gradients_of_runs(x.unflatten(0, (runs, -1)), y.unflatten(0, (runs, -1)), seeds)
        one.step_of_runs(self.rates)
        return nlls

    @torch.no_grad()
    def held_out_losses(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean NLL of each run's held-out examples, [runs, rows, ...]."""
        self.one.net.eval()
        return self.one.losses_of_runs(x, y)
