"""What a run is judged by."""

from ucb.metrics.calibration import brier, ece, nll, nlls, reliability
from ucb.metrics.continual import AccuracyMatrix

__all__ = ["AccuracyMatrix", "brier", "ece", "nll", "nlls", "reliability"]
