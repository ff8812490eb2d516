"""What a model makes of examples before it is calibrated."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Opinion:
    """Logits under samples of the weights, and how unlike all that was learnt an example is.

    ``logits`` [samples, rows, classes] have a scale that calibration sets; ``novelty`` [rows] is 0 for an example as
    usual as those that were learnt, and the log of how many times less sure the weights make it where it is not.
    ``strength`` [rows] is the log of how much there is to see in it, relative to what was learnt; 0 where that is not
    known. An empty image has nothing new, and nothing at all.
    """

    logits: Tensor
    novelty: Tensor
    strength: Tensor
