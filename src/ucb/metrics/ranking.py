"""Whether a value tells two kinds of things apart."""

from __future__ import annotations

import torch
from torch import Tensor

from ucb.bayes.checks import no_nan


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Return the chance that something from outside has the greater value; equal ones count as half a chance."""
    if not (len(inside) and len(outside)):
        raise ValueError("there must be values of both kinds")
    for name, values in (("values from inside", inside), ("values from outside", outside)):
        no_nan(name, values)
    ordered = inside.double().sort().values
    below, up_to = (torch.searchsorted(ordered, outside.double(), right=right) for right in (False, True))
    return float((below + up_to).double().mean()) / (2 * len(inside))
