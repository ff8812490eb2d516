"""Networks: trunks and heads, ordinary; their Bayesian twins come from conversion."""

from ucb.nets.heads import HeadedNet
from ucb.nets.mlp import mlp

__all__ = ["HeadedNet", "mlp"]
