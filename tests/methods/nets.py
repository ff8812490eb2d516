"""Small nets and tasks for the tests of methods."""

import torch
from torch import nn

from ucb.engine.config import replace_fields
from ucb.methods import TaskInfo, known_methods
from ucb.nets import HeadedNet, mlp


def conv_net(head_sizes=(2, 2, 2)):
    """A convolution with normalisation by running statistics, for inputs of 1 x 6 x 6."""
    trunk = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 10), nn.ReLU()
    )
    return HeadedNet(trunk, 10, head_sizes)


def made(name, net, seed=0, **settings):
    """A method with its own generator."""
    kind = known_methods()[name]
    return kind(net, replace_fields(kind.settings_type(), settings), torch.Generator().manual_seed(seed))


def small_net(head_sizes=(2, 2, 2)):
    return mlp((8,), head_sizes, [16])


def begin(method, index, heads=3, outputs=2, size=100):
    """Begin task ``index``, with a head of its own or, where there is one head, outputs of its own."""
    if heads > 1:
        method.begin_task(TaskInfo(index, size, index, range(outputs)))
    else:
        method.begin_task(TaskInfo(index, size, 0, range(outputs * index, outputs * (index + 1))))


def task_data(index, shape=(8,), rows=120):
    """Inputs and two classes that a direction of the task's own parts."""
    generator = torch.Generator().manual_seed(100 + index)
    x = torch.randn(rows, *shape, generator=generator)
    direction = torch.randn(x[0].numel(), generator=generator)
    return x, (x.flatten(1) @ direction > 0).long()
