"""The net of a learner: what a program hands over, with a head or outputs for each task that has come."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ucb.bayes.passes import Output, eval_mode
from ucb.data.streams.loaders import move
from ucb.data.streams.tasks import Stream, Task
from ucb.nets import HeadedNet
from ucb.nets.heads import GrowingHead
from ucb.seeds import derive_seed


class NetMaker:
    """Makes a learner's net anew, before it has learnt anything, for as many tasks as have come.

    A head's first weights depend on the seed and its place alone, not on when it comes.
    """

    def __init__(self, net: nn.Module, output: Output | None, seed: int, device: torch.device) -> None:
        if output is not None and isinstance(net, HeadedNet):
            raise ValueError("a HeadedNet has its output function: leave output= out")
        self.net, self.output, self.seed, self.device = net, output, seed, device

    @property
    def features(self) -> int | None:
        """How many features the trunk makes, once that is known."""
        return self.net.num_features if isinstance(self.net, HeadedNet) else None

    def make(self, stream: Stream) -> HeadedNet:
        """Return the net on its device; a HeadedNet that comes with a stream is taken as it is."""
        if isinstance(self.net, HeadedNet) and not stream.is_open:
            check_heads(self.net, stream)
            return self.net.to(self.device)
        if not isinstance(self.net, HeadedNet):
            features = _count_features(self.net, self.output, stream.tasks[0], self.device)
            self.net = HeadedNet(self.net, features, (), output=self.output)
        net = copy.deepcopy(self.net)
        net.grows = stream.is_open and stream.scenario.heads == "many"
        sizes = [len(task.classes) for task in stream.tasks]
        if stream.scenario.heads == "many":
            for index in range(len(net.heads), len(sizes)):
                net.add_head(self.make_layer(net.num_features, sizes[index], index))
        elif not net.heads:
            if stream.scenario.shared_outputs:
                net.heads.append(self.make_layer(net.num_features, sizes[0], 0))
            else:
                head = GrowingHead(net.num_features)
                head.parts.extend(self.make_layer(net.num_features, size, i) for i, size in enumerate(sizes))
                net.add_head(head)
        check_heads(net, stream)
        return net.to(self.device)

    def make_layer(self, features: int, outputs: int, index: int) -> nn.Linear:
        """Return the first weights of a task's outputs, in the precision of the net."""
        kinds = (p.dtype for p in self.net.parameters() if p.is_floating_point())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed("head", self.seed, index))
            return nn.Linear(features, outputs, dtype=next(kinds, None))


def check_heads(net: HeadedNet, stream: Stream) -> None:
    """Refuse a net whose heads are not those that a stream needs; it may have more."""
    sizes = [getattr(head, "out_features", None) for head in net.heads]
    wanted = list(stream.head_sizes)
    if len(sizes) < len(wanted) or any(a not in (None, b) for a, b in zip(sizes, wanted, strict=False)):
        raise ValueError(f"the net's heads have {sizes} outputs, and the tasks need {wanted}")


def _count_features(trunk: nn.Module, output: Output | None, task: Task, device: torch.device) -> int:
    """Return how many features a trunk makes of the first examples of a task."""
    probe = HeadedNet(copy.deepcopy(trunk).to(device), 0, (), output=output)  # the one that was given stays as it is
    with torch.no_grad(), eval_mode(probe):
        features = probe.features(move(task.prepare(task.train.first()), device))
    if features.dim() != 2:
        raise ValueError(f"the net must give features [rows, features], and gives {tuple(features.shape)}")
    return int(features.shape[1])
