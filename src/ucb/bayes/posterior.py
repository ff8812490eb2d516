"""The posterior of a weight tensor: the diagonal Gaussian q(w) = N(mu, sigma^2)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.checks import check_mask, finite, positive_everywhere
from ucb.kernels import inverse_softplus


class Gaussian(nn.Module):
    """A tensor of weights, each an independent Gaussian.

    ``mu`` and ``rho`` are what is learnt; ``sigma = softplus(rho)`` (section 3.1 of the paper) is computed afresh on
    every use, so it always follows ``rho`` and moves with it between devices and dtypes.

    ``keep`` is empty or a boolean mask: where it is False the weight is pruned, its mean and its noise are 0.
    """

    keep: Tensor | None

    def __init__(self, mu: Tensor, sigma: Tensor | float) -> None:
        super().__init__()
        mu = finite("the initial mean", mu.detach().clone())
        sigma = torch.as_tensor(sigma, dtype=mu.dtype, device=mu.device).detach()
        positive_everywhere("the initial spread (sigma)", sigma)
        self.mu = nn.Parameter(mu)
        self.rho = nn.Parameter(inverse_softplus(sigma).expand_as(mu).clone())
        self.register_buffer("keep", None)

    @property
    def mean(self) -> Tensor:
        """The mean of each weight, 0 where it is pruned."""
        return self.mu if self.keep is None else self.mu * self.keep

    @property
    def sigma(self) -> Tensor:
        """The spread of each weight, 0 where it is pruned."""
        sigma = F.softplus(self.rho)
        return sigma if self.keep is None else sigma * self.keep

    def prune(self, keep: Tensor | None) -> None:
        """Let only the weights where ``keep`` is True take part; None lets all of them.

        This package's optimisers leave a pruned weight's numbers alone; under others :class:`ucb.optim.Freeze` does.
        """
        self.keep = None if keep is None else check_mask(keep, self.mu)

    def set_sigma(self, sigma: Tensor) -> None:
        """Set the spread in place."""
        with torch.no_grad():
            self.rho.copy_(inverse_softplus(positive_everywhere("the spread (sigma)", sigma)))

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Draw ``shape`` independent samples w = mu + sigma * epsilon; the result has ``shape`` in front."""
        noise = torch.empty((*shape, *self.mu.shape), dtype=self.mu.dtype, device=self.mu.device)
        return torch.addcmul(self.mean, self.sigma, noise.normal_(generator=generator))

    @property
    def is_learning(self) -> bool:
        """Whether gradients are wanted: weights frozen with ``requires_grad_(False)`` take no part in the KL term."""
        return self.mu.requires_grad or self.rho.requires_grad

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: object) -> None:
        # Whether there is a mask follows from the state, if it holds this weight at all.
        if prefix + "mu" in state_dict:
            keep = state_dict.get(prefix + "keep")
            self.keep = None if keep is None else torch.empty_like(keep, device=self.mu.device)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Say the shape."""
        return str(tuple(self.mu.shape))


def gaussians(net: nn.Module) -> Iterator[tuple[str, Gaussian]]:
    """Yield every Gaussian weight tensor of a net once, under the name its plain weight would have.

    Each has ``mu``, ``rho`` and ``sigma``, tensors of the plain weight's shape.

    >>> import torch, ucb
    >>> net = ucb.to_bayesian(torch.nn.Linear(20, 2))
    >>> {name: tuple(gaussian.sigma.shape) for name, gaussian in ucb.gaussians(net)}
    {'weight': (2, 20), 'bias': (2,)}
    """
    for path, module in net.named_modules():
        if isinstance(module, Gaussian):
            parts = [part for part in path.split(".") if part != "_orig_mod"]  # which torch.compile adds
            if parts[-2:-1] == ["posterior"]:
                del parts[-2]
            yield ".".join(parts), module
