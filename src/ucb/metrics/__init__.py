"""What a run is judged by."""

from ucb.metrics.calibration import brier, ece, nll, nlls, reliability
from ucb.metrics.continual import AccuracyMatrix
from ucb.metrics.ranking import auroc

__all__ = ["AccuracyMatrix", "auroc", "brier", "ece", "nll", "nlls", "reliability"]
