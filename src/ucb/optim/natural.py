"""UCB-NG: every weight's sigma follows the curvature that the data shows, by natural-gradient variational inference.

Plain gradient steps hardly move sigma, so that its scale is one smaller rate for all weights. Here sigma is read off a
running estimate h of the NLL's curvature: sigma^2 = T / (N (h + delta)), where delta = T Lambda / N carries the
precision Lambda of everything learnt before. h is the Gauss-Newton one, as in VOGN (Khan et al. 2018), but at the
posterior mean (:mod:`ucb.bayes.curvature`): what gradients by sigma tell of it (VON; IVON, Shen et al. 2024) is mostly
noise where weight samples are few. Use it with an ELBO of temperature 0: the prior is in here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes.curvature import signed_gradients
from ucb.bayes.elbo import ELBO
from ucb.bayes.passes import Batch, count_rows, split_rows
from ucb.checks import check_mask, count, positive
from ucb.kernels import inverse_softplus
from ucb.kernels.triton import fused, launch
from ucb.optim.base import Group, PerWeightOptimizer

PASSES = 128
"""Backward passes of ``measure``, at least: its curvature then has a relative error of sqrt(2 / 128), an eighth."""


class UCBNG(PerWeightOptimizer):
    """Gradient descent on mu, natural-gradient steps on sigma; each weight's rate follows its sigma.

    Make it from ``param_groups(net)``. Before each ``step()``, ``observe(objective, net, x)`` shows it inputs whose
    curvature joins the running mean. ``num_examples`` counts the task's training examples, ``temperature`` is as in the
    ELBO but above 0, ``prior_sigma`` the prior's spread (by default the mean spread that each weight tensor starts
    with) and ``beta`` the step of the curvature's running mean. At a task's end the rate of every mean becomes
    lr * min(1, sigma / prior_sigma)^power, or with ``uniform``, the control, the mean of these in its weight tensor.
    ``pull`` adds the prior's own force, towards the means that the task started with. Without ``rates`` all weights
    keep the base rate, and ``hold`` says which of them may move.

    Without task boundaries, ``begin(num_examples, batch)`` lets every step add its batch's share of the curvature to
    Lambda at once, and sigma and the rates follow: after one pass over a task's data that is what ``consolidate()``
    would give.

    Beside mu and rho each weight stores h and Lambda (and the last means with ``pull``); rho only mirrors them.

    >>> import torch, ucb
    >>> net = ucb.to_bayesian(torch.nn.Linear(20, 2))
    >>> x, y, held_out = torch.randn(64, 20), torch.randint(2, (64,)), torch.randn(16, 20)
    >>> objective = ucb.ELBO(num_examples=64, temperature=0.0)  # the optimiser holds the prior itself
    >>> optimizer = ucb.UCBNG(ucb.param_groups(net), num_examples=64, lr=0.1)
    >>> terms = objective.backward(net, x, y)
    >>> optimizer.observe(objective, net, held_out)  # inputs without labels
    >>> optimizer.step()
    >>> optimizer.consolidate()
    """

    settings = ("temperature", "prior_sigma", "beta", "power", "pull", "uniform", "rates", "movable")
    observed: Mapping[Tensor, Tensor] = {}
    """The signed gradients that were observed since the last step, for every mean, in ``rows`` inputs."""
    rows = 0

    def __init__(
        self,
        groups: Iterable[Group],
        num_examples: int,
        lr: float = 0.1,
        *,
        temperature: float = 0.05,
        prior_sigma: float | None = None,
        beta: float = 0.02,
        power: float = 1.0,
        pull: bool = False,
        uniform: bool = False,
        rates: bool = True,
    ) -> None:
        positive("lr", lr)
        self.rates = rates
        self.movable: dict[nn.Parameter, Tensor] = {}
        """For a mean: which of its weights may move."""
        self.temperature = positive("temperature", temperature)
        self.prior_sigma = None if prior_sigma is None else positive("prior_sigma", prior_sigma)
        if not 0 < beta < 1:
            raise ValueError(f"beta must be between 0 and 1, not {beta}")
        self.beta, self.power, self.pull, self.uniform = beta, positive("power", power), pull, uniform
        count("num_examples, the number of training examples,", num_examples)
        super().__init__(groups, {"lr": lr, "size": num_examples, "batch": 0.0, "prior_sigma": None})

    @torch.no_grad()
    def add_param_group(self, param_group: Group) -> None:
        """Add a group, a new head say: its weights start at the prior's spread and the base rate."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["is_gaussian"]:
            mu, rho = group["params"]
            if group["prior_sigma"] is None:
                initial = float(F.softplus(rho).mean())
                group["prior_sigma"] = initial if self.prior_sigma is None else self.prior_sigma
            state = self.state[mu]
            state["precision"] = torch.full_like(mu, group["prior_sigma"] ** -2)
            state["curvature"] = torch.zeros_like(mu)
            state["seen"] = mu.new_zeros(())
            if self.pull:
                state["anchor"] = mu.detach().clone()
            self._set_rho(group)

    @contextmanager
    def skip_rho_gradients(self) -> Iterator[None]:
        """Let no gradient by rho be computed inside the block: a step does not read it."""
        learning = [rho for group in self.gaussian_groups() for rho in group["params"][1:] if rho.requires_grad]
        for rho in learning:
            rho.requires_grad_(False)
        try:
            yield
        finally:
            for rho in learning:
                rho.requires_grad_(True)

    @torch.no_grad()
    def observe(self, objective: ELBO, net: nn.Module, x: Batch) -> None:
        """See how inputs curve the objective at the mean weights; the next ``step()`` uses it.

        Show it inputs that the net has not learnt from, where there are: of those it has learnt it is too sure. Labels
        are not needed. Several calls before a step count as one with all their rows.
        """
        self.add_curvature(self.learning_means(), self.see(objective, net, x), count_rows(x))

    def see(self, objective: ELBO, net: nn.Module, x: Batch) -> tuple[Tensor | None, ...]:
        """Return the signed gradients of these inputs, for ``add_curvature``."""
        return signed_gradients(net, self.learning_means(), x, objective.curvature_roots, objective.generator)

    def add_curvature(self, means: Sequence[Tensor], gradients: Sequence[Tensor | None], rows: int) -> None:
        """Add what ``signed_gradients`` has found in so many rows."""
        new = {mu: g for mu, g in zip(means, gradients, strict=True) if g is not None}
        both = {mu: self.observed[mu] + g if mu in self.observed else g for mu, g in new.items()}
        self.observed, self.rows = {**self.observed, **both}, self.rows + rows

    def learning_means(self) -> list[Tensor]:
        """Return the means whose curvature is wanted."""
        return [mu for group in self.gaussian_groups() for mu in group["params"][:1] if mu.requires_grad]

    @torch.no_grad()
    def measure(self, objective: ELBO, net: nn.Module, *batches: Batch, passes: int = PASSES) -> None:
        """Set the curvature to that of all of the inputs at the present means, whatever was seen before.

        Do so before ``consolidate()``, where inputs are at hand: a running mean remembers the way to these means too.
        Between two epochs a few backward passes are enough; the running mean goes on from there.
        """
        rows = sum(map(count_rows, batches))
        parts = [part for x in batches for part in split_rows(x, -(-rows // passes) or 1)]
        repeats = -(-passes // len(parts))
        means = self.learning_means()
        for mu in means:
            self.state[mu]["curvature"].zero_()
            self.state[mu]["seen"].clamp_(min=1 / self.beta)  # it is worth no less than all that the mean remembers
        for part in parts * repeats:
            found = signed_gradients(net, means, part, objective.curvature_roots, objective.generator)
            for mu, gradient in zip(means, found, strict=True):
                if gradient is not None:
                    self.state[mu]["curvature"].addcmul_(gradient, gradient, value=1 / (repeats * rows))
        for group in self.gaussian_groups():
            self._set_rho(group)

    def prepare(self) -> None:
        """Refuse a step that would not know its curvature."""
        if not self.observed and self.learning_means():
            raise RuntimeError("nothing was seen of the curvature: call observe(objective, net, x) before step()")
        if self.observed:
            torch._foreach_add_([self.state[mu]["seen"] for mu in self.observed], 1.0)

    def finish(self) -> None:
        """Forget what was observed."""
        super().finish()
        self.observed, self.rows = {}, 0

    def update_gaussian(self, group: Group, mu: nn.Parameter, rho: nn.Parameter) -> None:
        """Move sigma by the curvature that was observed, and the mean by its gradient."""
        if self._can_fuse(group):
            state = self.state[mu]
            may_move = self.movable.get(mu, self.keep_mask(mu))  # where there is both, nothing pruned may move
            known = state["curvature"], state["precision"], state["seen"], state.get("scale"), may_move
            assert mu.grad is not None
            numbers = group["lr"], self.temperature, group["size"], self.beta, self.rows
            fused.natural(mu, rho, mu.grad, self.observed[mu], *known, *numbers)
            return
        if mu in self.observed:
            state = self.state[mu]
            # lerp to the squares, in place and with a weight that is a tensor: a captured step replays it
            state["curvature"].lerp_(self.observed[mu].square() / self.rows, mean_rate(state["seen"], self.beta))
            if group["batch"]:
                self._learn_precision(group, group["batch"])
            self._set_rho(group)
        if mu.grad is not None:
            direction = mu.grad if mu not in self.movable else mu.grad.where(self.movable[mu], 0)
            if self.pull:
                direction = torch.addcmul(direction, self._delta(group), mu - self.state[mu]["anchor"])
            self.descend(mu, direction, group["lr"])

    def _can_fuse(self, group: Group) -> bool:
        """Say whether one kernel on a GPU does the whole step: it knows neither pull nor frozen weights nor streams."""
        mu, rho = group["params"]
        if self.pull or group["batch"] or mu in self.frozen or rho in self.frozen or not rho.requires_grad:
            return False
        gradients = mu.grad, self.observed.get(mu)
        return launch.supports(mu, rho) and all(g is not None and launch.supports(g) for g in gradients)

    @torch.no_grad()
    def consolidate(self) -> None:
        """End a task: its curvature joins the precision of all that is learnt, and sets the rates from now on."""
        for group in self.gaussian_groups():
            mu = group["params"][0]
            state = self.state[mu]
            if not group["batch"]:
                self._learn_precision(group, group["size"])
            state["curvature"].zero_()
            state["seen"].zero_()
            if self.pull:
                state["anchor"] = mu.clone()
            self._set_rho(group)

    def _learn_precision(self, group: Group, examples: float) -> None:
        """Add what so many examples have shown to the precision, and let the rates follow."""
        mu = group["params"][0]
        state = self.state[mu]
        seen = state["curvature"] if mu not in self.movable else state["curvature"].where(self.movable[mu], 0)
        state["precision"].add_(seen, alpha=examples / self.temperature)
        if not self.rates:
            return
        scale = (state["precision"].rsqrt() / group["prior_sigma"]).clamp_max(1).pow(self.power)
        if self.uniform:
            scale = scale.mean().expand_as(scale).clone()
        state["scale"] = state["scale"].copy_(scale) if "scale" in state else scale

    def hold(self, movable: Mapping[nn.Parameter, Tensor]) -> None:
        """Let only those weights of a mean move from now on where its mask is True; all others stay, to the last bit.

        Pruned weights (:meth:`ucb.bayes.Gaussian.prune`) must not be among them.
        """
        self.movable = {mu: check_mask(mask, mu) for mu, mask in movable.items()}

    def begin(self, num_examples: int, batch: float = 0.0) -> None:
        """Start a task of ``num_examples`` training examples; ``batch``: of a stream without boundaries, in batches."""
        count("num_examples, the number of training examples,", num_examples)
        if any(self.state[group["params"][0]]["curvature"].any() for group in self.gaussian_groups()):
            raise RuntimeError("a task has been learnt that was not ended: call consolidate() before begin()")
        for group in self.param_groups:
            group["size"], group["batch"] = num_examples, batch

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; every rho follows it, whichever of net and optimiser is loaded first."""
        if any("curvature" in kept and "seen" not in kept for kept in state_dict["state"].values()):
            raise ValueError("an earlier version saved this state of UCBNG, whose curvature meant something else")
        super().load_state_dict(state_dict)
        for group in self.gaussian_groups():
            self._set_rho(group)

    def _delta(self, group: Group) -> Tensor:
        """Return the precision of earlier tasks as this task's mean NLL counts it: T Lambda / N."""
        precision: Tensor = self.state[group["params"][0]]["precision"]
        factor: float = self.temperature / group["size"]
        return precision * factor

    def _set_rho(self, group: Group) -> None:
        """Let rho follow: sigma^2 = T / (N (h + delta)). A frozen or pruned one stays."""
        mu, rho = group["params"]
        if not rho.requires_grad:
            return
        total = self._delta(group)
        if not group["batch"]:  # else it is in the precision already
            total.add_(self.state[mu]["curvature"])
        new = inverse_softplus((total * (group["size"] / self.temperature)).rsqrt())
        for mask, where_free in ((self.frozen.get(rho), False), (self.movable.get(mu, self.keep_mask(rho)), True)):
            if mask is not None:
                new = torch.where(mask if where_free else ~mask, new, rho)
        rho.copy_(new)


def mean_rate(seen: Tensor, beta: float) -> Tensor:
    """Return b / (1 - (1-b)^t): so the running mean of t values weighs each by (1-b)^age, and its start by 0."""
    return beta / -torch.expm1(seen * math.log1p(-beta))
