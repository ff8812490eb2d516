"""One learning rate per weight, how important weights are, and masks that hold them still."""

from ucb.optim.adam import Adam
from ucb.optim.gng import GNG
from ucb.optim.groups import gaussian_group, param_groups
from ucb.optim.importance import Importance, RateScale, importance
from ucb.optim.masks import Freeze, least_important
from ucb.optim.natural import UCBNG
from ucb.optim.owners import Owners
from ucb.optim.ucb import UCB
from ucb.optim.uniform import UniformLR
from ucb.optim.vadam import Vadam

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
