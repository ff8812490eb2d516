"""What a run is judged by."""

from ucb.metrics.calibration import auroc, brier, ece, nll, nlls, reliability
from ucb.metrics.continual import AccuracyMatrix, pack_right_answers, unpack_right_answers

__all__ = [
    "AccuracyMatrix",
    "auroc",
    "brier",
    "ece",
    "nll",
    "nlls",
    "pack_right_answers",
    "reliability",
    "unpack_right_answers",
]
