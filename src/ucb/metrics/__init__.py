"""What a run is judged by."""

from ucb.metrics.calibration import brier, ece, nll, nlls, reliability
from ucb.metrics.continual import AccuracyMatrix
from ucb.metrics.ranking import auroc
from ucb.metrics.right_answers import pack_right_answers, unpack_right_answers

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
