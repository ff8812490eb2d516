"""What every Bayesian layer shares: its Gaussians, and which of its forms a pass asks for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ucb.bayes.passes import Pass, pass_for
from ucb.bayes.posterior import Gaussian

Weights = dict[str, Tensor]


class BayesLayer(nn.Module):
    """A layer whose weights are Gaussians, kept in ``posterior`` by name.

    A layer must say what it does under one set of weights (``transform``). It may say how several samples are done
    at once (``transform_stacked``) and how noise is put on activations instead of weights (``perturb``); without
    those the base class runs the samples one by one, and uses one draw of the weights for all rows.
    """

    def __init__(self, **posterior: Gaussian | None) -> None:
        super().__init__()
        self.posterior = nn.ModuleDict({name: g for name, g in posterior.items() if g is not None})

    def gaussian(self, name: str) -> Gaussian | None:
        """Return the Gaussian called ``name``, if the layer has it."""
        found = self.posterior[name] if name in self.posterior else None  # noqa: SIM401 (ModuleDict has no get)
        assert found is None or isinstance(found, Gaussian)
        return found

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x`` as the current pass asks."""
        p = pass_for(self)
        if p.estimator in ("local", "flipout"):
            return self.perturb(x, p)
        if p.samples > 1:
            return self.transform_stacked(x, self.weights_of(p), p)
        return self.transform(x, self.weights_of(p))

    def weights_of(self, p: Pass) -> Weights:
        """Return the weights that a pass uses here, by name."""
        return {name: p.weight(g) for name, g in self.posterior.items() if isinstance(g, Gaussian)}

    def transform(self, x: Tensor, weights: Weights) -> Tensor:
        """Transform ``x`` with one set of weights."""
        raise NotImplementedError(f"{type(self).__name__} must define transform()")

    def transform_stacked(self, x: Tensor, weights: Weights, p: Pass) -> Tensor:
        """Transform ``x`` with ``p.samples`` sets of weights, each a leading slice of ``weights``."""
        by_sample = p.by_sample(x) if p.is_expanded(x) else [x] * p.samples
        outputs = [
            self.transform(rows, {name: w[s] for name, w in weights.items()}) for s, rows in enumerate(by_sample)
        ]
        return torch.stack(outputs, 1).flatten(0, 1)

    def perturb(self, x: Tensor, p: Pass) -> Tensor:
        """Transform ``x`` with noise that differs from row to row, if the layer knows how."""
        if p.samples > 1:
            return self.transform_stacked(x, self.weights_of(p), p)
        return self.transform(x, self.weights_of(p))

    def _read(self, name: str) -> Tensor | None:
        """Return the weight of the current pass to code that reads ``layer.weight`` by itself."""
        gaussian = self.gaussian(name)
        if gaussian is None:
            return None
        p = pass_for(self)
        if p.samples > 1:
            raise RuntimeError(
                f"{name} of a {type(self).__name__} was read while {p.samples} samples travel together: there is no "
                "single weight then. Use stack=False"
            )
        return p.weight(gaussian)

    @property
    def weight(self) -> Tensor | None:
        """The weight that the current pass uses: a tensor, as in an ordinary layer."""
        return self._read("weight")

    @property
    def bias(self) -> Tensor | None:
        """The bias that the current pass uses."""
        return self._read("bias")
