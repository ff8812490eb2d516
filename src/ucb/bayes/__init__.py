"""Bayesian neural networks: Gaussian weights, priors, layers, conversion, the ELBO and predictions."""

from ucb.bayes.convert import DeterministicPart, DeterministicWarning, bayesian_form, find_deterministic, to_bayesian
from ucb.bayes.elbo import ELBO, Terms, as_likelihood, cross_entropy
from ucb.bayes.layers import BayesBatchNorm, BayesConv, BayesGroupNorm, BayesLayer, BayesLayerNorm, BayesLinear
from ucb.bayes.likelihoods import (
    Bernoulli,
    Categorical,
    GaussianLikelihood,
    HeteroscedasticGaussian,
    LearntGaussian,
    Likelihood,
    Poisson,
    Prediction,
    PredictiveMoments,
)
from ucb.bayes.passes import Estimator
from ucb.bayes.posterior import Gaussian, gaussians
from ucb.bayes.predict import predict
from ucb.bayes.priors import Normal, PreviousPosterior, Prior, ScaleMixture, kl_divergence
from ucb.bayes.sampling import forward, mean_forward

__all__ = [
    "ELBO",
    "BayesBatchNorm",
    "BayesConv",
    "BayesGroupNorm",
    "BayesLayer",
    "BayesLayerNorm",
    "BayesLinear",
    "Bernoulli",
    "Categorical",
    "DeterministicPart",
    "DeterministicWarning",
    "Estimator",
    "Gaussian",
    "GaussianLikelihood",
    "HeteroscedasticGaussian",
    "LearntGaussian",
    "Likelihood",
    "Normal",
    "Poisson",
    "Prediction",
    "PredictiveMoments",
    "PreviousPosterior",
    "Prior",
    "ScaleMixture",
    "Terms",
    "as_likelihood",
    "bayesian_form",
    "cross_entropy",
    "find_deterministic",
    "forward",
    "gaussians",
    "kl_divergence",
    "mean_forward",
    "predict",
    "to_bayesian",
]
