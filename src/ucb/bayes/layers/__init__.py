"""Bayesian layers. They are usually made by :func:`ucb.bayes.to_bayesian`."""

from ucb.bayes.layers.base import BayesLayer
from ucb.bayes.layers.conv import BayesConv
from ucb.bayes.layers.linear import BayesLinear
from ucb.bayes.layers.norm import BayesBatchNorm, BayesGroupNorm, BayesLayerNorm

__all__ = ["BayesBatchNorm", "BayesConv", "BayesGroupNorm", "BayesLayer", "BayesLayerNorm", "BayesLinear"]
