"""Networks: trunks and heads, ordinary; their Bayesian twins come from conversion."""

from ucb.nets.alexnet import alexnet
from ucb.nets.build import NETS, build_net, net_options
from ucb.nets.heads import HeadedNet
from ucb.nets.mlp import mlp
from ucb.nets.resnet import resnet18

__all__ = ["NETS", "HeadedNet", "alexnet", "build_net", "mlp", "net_options", "resnet18"]
