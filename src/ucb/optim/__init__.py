"""One learning rate per weight, how important weights are, and masks that hold them still."""

from ucb.optim.adam import Adam, Vadam
from ucb.optim.base import gaussian_group, param_groups
from ucb.optim.gng import GNG
from ucb.optim.importance import Freeze, Importance, Owners, RateScale, importance, least_important
from ucb.optim.natural import UCBNG
from ucb.optim.ucb import UCB, UniformLR

__all__ = [
    "GNG",
    "UCB",
    "UCBNG",
    "Adam",
    "Freeze",
    "Importance",
    "Owners",
    "RateScale",
    "UniformLR",
    "Vadam",
    "gaussian_group",
    "importance",
    "least_important",
    "param_groups",
]
