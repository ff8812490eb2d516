"""What a run is judged by."""

from ucb.metrics.calibration import brier, ece, nll

__all__ = ["brier", "ece", "nll"]
