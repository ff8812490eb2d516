"""One learning rate per weight, how important weights are, and masks that hold them still."""

from ucb.optim.groups import gaussian_group, param_groups
from ucb.optim.importance import Importance, RateScale, importance
from ucb.optim.masks import Freeze, least_important
from ucb.optim.natural import UCBNG
from ucb.optim.ucb import UCB
from ucb.optim.uniform import UniformLR

__all__ = [
    "UCB",
    "UCBNG",
    "Freeze",
    "Importance",
    "RateScale",
    "UniformLR",
    "gaussian_group",
    "importance",
    "least_important",
    "param_groups",
]
