"""What a model makes of examples before it is calibrated."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Opinion:
    """Logits under samples of the weights, and how unlike all that was learnt an example is.

    ``logits`` [samples, rows, classes] have a scale that calibration sets; ``novelty`` [rows] is 0 for an example as
    usual as those that were learnt, and the log of how many times less sure the weights make it where it is not.
    """

    logits: Tensor
    novelty: Tensor
