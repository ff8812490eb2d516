"""Any net becomes its Bayesian twin: layers that have a Bayesian form are replaced at any depth, the rest is named."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ucb import checks
from ucb.bayes.layers import BayesBatchNorm, BayesConv, BayesGroupNorm, BayesLayer, BayesLayerNorm, BayesLinear
from ucb.bayes.layers.norm import SampleBySample, keeps_statistics
from ucb.bayes.passes import Output, answer_with, sample_once_per_call
from ucb.bayes.posterior import Gaussian, gaussians

Builder = Callable[[Any, dict[str, Gaussian]], BayesLayer]
"""Makes a Bayesian layer from an ordinary one and the Gaussians of its own parameters, by name."""

_builders: dict[type[nn.Module], Builder] = {}


class DeterministicWarning(UserWarning):
    """Some parameters of a converted net stay ordinary numbers."""


class DeterministicPart(NamedTuple):
    """A module that stayed deterministic, and why."""

    name: str
    reason: str


def bayesian_form(layer_type: type[nn.Module]) -> Callable[[Builder], Builder]:
    """Register how a layer type becomes Bayesian. Subclasses are not included: they may compute something else."""

    def register(builder: Builder) -> Builder:
        _builders[layer_type] = builder
        return builder

    return register


@bayesian_form(nn.Linear)
def _linear(layer: nn.Linear, posterior: dict[str, Gaussian]) -> BayesLayer:
    return BayesLinear(posterior["weight"], posterior.get("bias"))


@bayesian_form(nn.Conv1d)
@bayesian_form(nn.Conv2d)
def _conv(layer: nn.Conv1d | nn.Conv2d, posterior: dict[str, Gaussian]) -> BayesLayer:
    return BayesConv(posterior["weight"], posterior.get("bias"), like=layer)


@bayesian_form(nn.BatchNorm1d)
@bayesian_form(nn.BatchNorm2d)
def _batch_norm(layer: nn.BatchNorm1d | nn.BatchNorm2d, posterior: dict[str, Gaussian]) -> BayesLayer:
    return BayesBatchNorm(posterior.get("weight"), posterior.get("bias"), like=layer)


@bayesian_form(nn.GroupNorm)
def _group_norm(layer: nn.GroupNorm, posterior: dict[str, Gaussian]) -> BayesLayer:
    return BayesGroupNorm(posterior.get("weight"), posterior.get("bias"), groups=layer.num_groups, eps=layer.eps)


@bayesian_form(nn.LayerNorm)
def _layer_norm(layer: nn.LayerNorm, posterior: dict[str, Gaussian]) -> BayesLayer:
    return BayesLayerNorm(posterior.get("weight"), posterior.get("bias"), shape=layer.normalized_shape, eps=layer.eps)


def to_bayesian(
    net: nn.Module, init_std_ratio: float = 0.1, *, keep_means: bool = True, output: Output | None = None
) -> nn.Module:
    """Return the Bayesian twin of ``net``, which itself stays as it is.

    The means start at the net's present weights, fresh or pretrained; with ``keep_means=False`` each layer draws new
    ones by its own ``reset_parameters``. Every weight's sigma starts at ``init_std_ratio`` times the root mean square
    of its layer's weights. Whatever has parameters or batch statistics but no Bayesian form stays as it is, and a
    ``DeterministicWarning`` names it; statistics are taken for each weight sample by itself. Parameters that do
    not require gradients become Gaussians that do not either.

    - ``net``: any module; ``forward`` takes and returns what it did before, ``[batch, ...]``. The ELBO and predictions
      take a tensor for ``net(x)``, a tuple for ``net(*x)`` or a mapping for ``net(**x)``; of an answer that is more
      than a tensor they use ``logits``, or the first or only part.
    - ``init_std_ratio``: sigma at the start, relative to the layer's weights; above 0.
    - ``keep_means``: False draws new means.
    - ``output``: a function from the net's answer to the tensor that counts, with which the twin then answers.

    >>> import torch, ucb
    >>> net = ucb.to_bayesian(torch.nn.Linear(20, 2), init_std_ratio=0.5)
    >>> net(torch.randn(8, 20)).shape  # in training mode under one weight sample, in eval mode under the means
    torch.Size([8, 2])
    """
    checks.positive("init_std_ratio", init_std_ratio)
    twin = _copy(net)
    left = find_deterministic(twin)
    names_left = {part.name for part in left}
    layers = {n: m for n, m in twin.named_modules() if type(m) in _builders and n not in names_left}
    if not any(next(layer.parameters(recurse=False), None) is not None for layer in layers.values()):
        known = ", ".join(sorted(t.__name__ for t in _builders))
        why = "it is Bayesian already" if any(gaussians(net)) else f"layers that can are {known}"
        raise ValueError(f"nothing in this {type(net).__name__} can become Bayesian: {why}")
    tied: dict[Tensor, Gaussian] = {}
    for name, layer in layers.items():
        if not keep_means and hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
        _turn_into(layer, _builders[type(layer)](layer, _posterior(name, layer, init_std_ratio, tied)))
    for layer in twin.modules():
        if keeps_statistics(layer):
            vars(layer)["forward"] = SampleBySample(layer)
    if left:
        said = "; ".join(f"{name or type(net).__name__} ({reason})" for name, reason in left)
        warnings.warn(f"left deterministic: {said}", DeterministicWarning, stacklevel=2)
    sample_once_per_call(twin)
    if output is not None:
        answer_with(twin, output)
    return twin


def _copy(net: nn.Module) -> nn.Module:
    if not isinstance(net, nn.Module):
        raise TypeError(f"a torch.nn.Module can become Bayesian, not a {type(net).__name__}")
    try:
        return copy.deepcopy(net)
    except RuntimeError as error:
        raise ValueError(f"this {type(net).__name__} cannot be copied, so it has no twin: {error}") from error


def _turn_into(layer: nn.Module, bayesian: BayesLayer) -> None:
    """Turn a layer into its Bayesian form in place.

    Whoever holds the layer, under a name, in a list or by a hook, keeps holding it, and what forward code reads of it
    (``in_features``, ``kernel_size``) stays.
    """
    machinery = vars(nn.Module()).keys() - {"_parameters", "_buffers", "_modules"}
    vars(layer).update({name: value for name, value in vars(bayesian).items() if name not in machinery})
    layer.__class__ = type(bayesian)


def find_deterministic(net: nn.Module) -> list[DeterministicPart]:
    """Name every module whose own parameters or batch statistics are, or would stay, ordinary, and say why."""
    owners = {name: m for name, m in net.named_modules() if _owns_parameters(m) and not isinstance(m, Gaussian)}
    reasons = {name: reason for name, module in owners.items() if (reason := _find_obstacle(name, module))}
    # A weight that a deterministic module shares must stay one tensor, so its other users stay deterministic too.
    spreading = True
    while spreading:
        fixed = {p: name for name in reasons for p in owners[name].parameters(recurse=False)}
        new = {
            name: f"shares a weight with {fixed[p]}, which stays deterministic"
            for name, module in owners.items()
            for p in module.parameters(recurse=False)
            if name not in reasons and p in fixed
        }
        reasons |= new
        spreading = bool(new)
    return [DeterministicPart(name, reasons[name]) for name in owners if name in reasons]


def _owns_parameters(module: nn.Module) -> bool:
    has_parameters = next(module.parameters(recurse=False), None) is not None
    return type(module) in _builders or keeps_statistics(module) or has_parameters


def _find_obstacle(name: str, module: nn.Module) -> str | None:
    """Say why a module cannot be converted, whatever its weights are shared with; None where it can."""
    if any(is_lazy(p) for p in module.parameters(recurse=False)):
        raise ValueError(f"{name} has no weights yet: run the net once on some input before converting it")
    if isinstance(module, nn.MultiheadAttention):
        return "MultiheadAttention reads its weights directly"
    if type(module) not in _builders:
        return f"no Bayesian form is registered for {type(module).__name__}"
    return None


def _posterior(name: str, layer: nn.Module, init_std_ratio: float, tied: dict[Tensor, Gaussian]) -> dict[str, Gaussian]:
    """Make the Gaussians of a layer's own parameters; a parameter that was met before keeps its Gaussian."""
    parameters = dict(layer.named_parameters(recurse=False))
    for own, parameter in parameters.items():
        checks.finite(f"{name}.{own}".lstrip("."), parameter)
    sigma = init_std_ratio * _weight_scale(parameters)
    for parameter in parameters.values():
        if parameter not in tied:
            gaussian = Gaussian(parameter, sigma)
            tied[parameter] = gaussian.requires_grad_(parameter.requires_grad)
    return {own: tied[parameter] for own, parameter in parameters.items()}


def _weight_scale(parameters: dict[str, nn.Parameter]) -> float:
    """Return the root mean square of a layer's weights, or 1 / sqrt(fan-in) where they are all 0."""
    if not parameters:
        return 1.0
    weight = parameters.get("weight", next(iter(parameters.values())))
    size = float(weight.detach().double().square().mean().sqrt()) if weight.numel() else 1.0
    return size if size > 0 else 1 / math.sqrt(weight[0].numel() if weight.dim() else 1)
