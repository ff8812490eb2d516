"""Networks: trunks and heads, ordinary; their Bayesian twins come from conversion."""

from ucb.nets.heads import HeadedNet
from ucb.nets.networks import NETS, alexnet, build_net, mlp, net_options, resnet18

__all__ = ["NETS", "HeadedNet", "alexnet", "build_net", "mlp", "net_options", "resnet18"]
