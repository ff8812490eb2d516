"""How much of a wave a model has learnt before, told by how well it foresees the wave: no trace of examples is kept."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ucb.incremental.learning import WaveRequest, choose_asked

if TYPE_CHECKING:
    from ucb.incremental.frozen import FrozenTrunkModel

LEAST_SHARE, ERRORS, LEAST_ASKED, LEAST_USUAL = 0.1, 4.0, 25, 0.1
"""The share of a wave that must seem to have been learnt before to count as such, how many standard errors that must
be, of how many examples, and at what mean leverage: by chance no wave must seem familiar, or scores would depend on the
order of waves."""


def share_learnt(leverage: Tensor, unexplained: Tensor, usual: float) -> float:
    """Return the share that was learnt before, from v and q of each example and h; 0 where chance could explain it.

    How well the head foresees examples tells it: no trace of any is kept. With A = ridge + sum phi phi^T,
    v = phi^T A^-1 phi and noise of variance s^2, the square of what the head leaves unexplained of an example's target
    is expected to be s^2 (1 + v) where the example is new to it, and s^2 (1 - v) where it is one of those that were
    learnt. So with q this square in units of s^2, averaged over the outputs, 1 + v - q is 0 on average for new examples
    and 2 v for known ones. Of one that was learnt with a slight change v is larger by what is new in it, and so is q:
    there 1 + v - q stays 2 h, with h the mean of v over what was learnt. The share is the slope over 2 min(v, h), by
    least squares; the spread of q grows with 1 + v.

    Where the examples are many and the features few, v is near 0 and nothing can be told. Nor does it matter then.
    """
    if usual < LEAST_USUAL:
        return 0.0
    gap, known = 1 + leverage - unexplained, 2 * leverage.clamp_max(usual)
    weight = known / (1 + leverage).square()
    total = float((known * weight).sum())
    if not total > 0 or len(leverage) < LEAST_ASKED:
        return 0.0
    share = float((weight * gap).sum()) / total
    error = float((weight * (gap - share * known)).square().sum().sqrt()) / total
    return min(1.0, share) if share > max(LEAST_SHARE, ERRORS * error) else 0.0


class Familiarity:
    """Asks the model of before a wave about some of its examples, a batch at a time: all, or 1,000 by chance."""

    def __init__(self, before: FrozenTrunkModel | None, request: WaveRequest, found: Tensor) -> None:
        self.before, self.found = before, found
        self._chosen = torch.zeros(len(request.classes), dtype=torch.bool)
        self._chosen[choose_asked(len(request.classes), request.seed)] = True

    def ask(self, features: Tensor, classes: Tensor, positions: Tensor) -> None:
        """See how well some examples are foreseen."""
        if self.before is not None:
            chosen = self._chosen[positions]
            some = self.before.surprise(features[chosen], classes[chosen].to(features.device))
            self.found = torch.cat([self.found, torch.stack(some).double().cpu()], 1)

    @cached_property
    def share(self) -> float:
        """The share that was learnt before; to be asked for when all examples have been seen."""
        if self.before is None:
            return 0.0
        return share_learnt(self.found[0], self.found[1], self.before.posterior.usual_variance)
