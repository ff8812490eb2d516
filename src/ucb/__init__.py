"""Continual learning with Bayesian neural networks.

After *Uncertainty-guided Continual Learning with Bayesian Neural Networks* (Ebrahimi et al., ICLR 2020).

The names here are loaded when they are first used, so ``import ucb`` costs nothing; docs/api.md shows them at work.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ucb.bayes import ELBO as ELBO
    from ucb.bayes import Normal as Normal
    from ucb.bayes import PreviousPosterior as PreviousPosterior
    from ucb.bayes import ScaleMixture as ScaleMixture
    from ucb.bayes import gaussians as gaussians
    from ucb.bayes import to_bayesian as to_bayesian
    from ucb.bayes.predict import predict as predict
    from ucb.data.streams import benchmark as benchmark
    from ucb.data.streams import from_arrays as from_arrays
    from ucb.data.streams import from_datasets as from_datasets
    from ucb.engine import Learner as Learner
    from ucb.engine import Schedule as Schedule
    from ucb.engine import Training as Training
    from ucb.incremental import Model as Model
    from ucb.incremental.classifier import IncrementalClassifier as IncrementalClassifier
    from ucb.methods import Method as Method
    from ucb.methods import method as method
    from ucb.methods.bayesian import BayesianMethod as BayesianMethod
    from ucb.nets import HeadedNet as HeadedNet
    from ucb.optim import UCB as UCB
    from ucb.optim import UCBNG as UCBNG
    from ucb.optim import param_groups as param_groups

__version__ = "0.1.0"

_MODULES = {
    "to_bayesian": "ucb.bayes",
    "ELBO": "ucb.bayes",
    "predict": "ucb.bayes.predict",
    "gaussians": "ucb.bayes",
    "Normal": "ucb.bayes",
    "ScaleMixture": "ucb.bayes",
    "PreviousPosterior": "ucb.bayes",
    "UCB": "ucb.optim",
    "UCBNG": "ucb.optim",
    "param_groups": "ucb.optim",
    "HeadedNet": "ucb.nets",
    "Learner": "ucb.engine",
    "Training": "ucb.engine",
    "Schedule": "ucb.engine",
    "Method": "ucb.methods",
    "BayesianMethod": "ucb.methods.bayesian",
    "method": "ucb.methods",
    "benchmark": "ucb.data.streams",
    "from_arrays": "ucb.data.streams",
    "from_datasets": "ucb.data.streams",
    "Model": "ucb.incremental",
    "IncrementalClassifier": "ucb.incremental.classifier",
}
"""Where each name is defined."""

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(_MODULES[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
