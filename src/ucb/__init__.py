"""Continual learning with Bayesian neural networks.

After *Uncertainty-guided Continual Learning with Bayesian Neural Networks* (Ebrahimi et al., ICLR 2020).
"""

__version__ = "0.1.0"
