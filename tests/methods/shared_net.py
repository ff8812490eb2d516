"""A small learner whose tasks share a trunk, or a head, in double precision."""

import torch
from torch import nn

from ucb.methods import TaskInfo, known_methods
from ucb.nets import HeadedNet, mlp


def learner(name, net=None, **settings):
    """Return a method on a net of two heads."""
    kind = known_methods()[name]
    net = mlp((4,), [3, 3], [5]) if net is None else net
    return kind(net, kind.settings_type(**settings), torch.Generator().manual_seed(0))


def softmax_regression(outputs=3):
    """Return a net that is linear: its one head is all there is."""
    return HeadedNet(nn.Flatten(), 4, [outputs])


def info(index=0, head=0, outputs=3, size=20):
    return TaskInfo(index, size, head, range(outputs))


def shared_copy(method):
    return {name: p.detach().clone() for name, p in method.shared().items()}
