"""The training steps that are timed, on nets of a given size.

Ours: the ELBO's gradient and UCB's update, and an ordinary net through the engine. The floors, which no sampled step
can do without: ordinary nets in the simplest form that trains, and the convolutions of a net alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.bayes import ELBO, Estimator, Prior, ScaleMixture, to_bayesian
from ucb.data.streams.tasks import Preparation, Task, TensorExamples
from ucb.engine.training import GraphMemory, TaskBatches, steps_for
from ucb.experiments.bench.timing import Step, Work
from ucb.methods import TaskInfo, known_methods
from ucb.nets import HeadedNet, mlp, resnet18
from ucb.optim import UCB, param_groups
from ucb.seeds import generator_for

RATE = 0.01
PI, SIGMA_1, SIGMA_2 = 0.25, 1.0, 0.0025
PRIOR_SIGMA = 0.1


@dataclass(frozen=True)
class NetSizes:
    """What the two nets have in common."""

    side: int
    classes: int = 10
    batch: int = 64
    samples: int = 10
    examples: int = 50_000
    """The N of the objective."""

    def labels(self, device: torch.device, rows: int | None = None) -> Tensor:
        """Return random labels of a batch."""
        return torch.randint(self.classes, (rows or self.batch,), device=device)


@dataclass(frozen=True)
class MLPSizes(NetSizes):
    """One hidden layer, for grey images."""

    side: int = 28
    hidden: int = 1200
    batches: int = 200
    """In an epoch through the engine."""

    @property
    def inputs(self) -> int:
        """Pixels of an image."""
        return self.side**2

    @property
    def title(self) -> str:
        """The net and the data in words."""
        layers = f"{self.inputs}-{self.hidden}-{self.classes}"
        return f"MLP {layers}, batch {self.batch}, {self.samples} samples"

    def net(self) -> nn.Module:
        """Return an ordinary net."""
        return nn.Sequential(nn.Linear(self.inputs, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.classes))

    def batch_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return a random batch."""
        return torch.randn(self.batch, self.inputs, device=device), self.labels(device)


@dataclass(frozen=True)
class ResNetSizes(NetSizes):
    """ResNet18 for small colour images."""

    side: int = 32
    width: int = 64

    @property
    def title(self) -> str:
        """The net and the data in words."""
        return f"ResNet18 for {self.side}x{self.side}, batch {self.batch}, {self.samples} samples"

    def net(self) -> HeadedNet:
        """Return an ordinary net."""
        return resnet18((3, self.side, self.side), (self.classes,), self.width, "group")

    def batch_on(self, device: torch.device, rows: int | None = None) -> tuple[Tensor, Tensor]:
        """Return a random batch."""
        return torch.randn(rows or self.batch, 3, self.side, self.side, device=device), self.labels(device, rows)


NETS: dict[str, MLPSizes | ResNetSizes] = {"mlp": MLPSizes(), "resnet18": ResNetSizes()}
"""The nets that can be timed."""


def mixture() -> ScaleMixture:
    """Return the prior that all who know one are timed with."""
    return ScaleMixture(PI, SIGMA_1, SIGMA_2)


def bayesian_step(
    plain: nn.Module, x: Tensor, y: Tensor, sizes: NetSizes, estimator: Estimator, prior: Prior, prior_samples: int
) -> Work:
    """Return the step of a net's Bayesian twin on one batch."""
    net = to_bayesian(plain).to(x.device)
    noise = generator_for("bench", device=x.device)
    objective = ELBO(
        sizes.examples, prior, samples=sizes.samples, prior_samples=prior_samples, estimator=estimator, generator=noise
    )
    optimizer = UCB(param_groups(net), RATE)
    optimizer.consolidate()  # as from the second task on: a rate for every weight

    def step() -> None:
        optimizer.zero_grad()
        objective.add_gradients(net, x, y)
        optimizer.step()

    return Work(step, noise)


class EngineStep:
    """A step of a method as a run takes it: the batch is gathered from the task's data, and on a GPU it is a graph."""

    def __init__(self, sizes: MLPSizes, method: str, device: torch.device) -> None:
        size = sizes.batch * sizes.batches
        pixels = torch.randint(256, (size, 1, sizes.side, sizes.side), dtype=torch.uint8)
        data = TensorExamples(pixels, torch.arange(size) % sizes.classes, classes=sizes.classes)
        names = tuple(str(label) for label in range(sizes.classes))
        task = Task("random", names, data, data, data, Preparation((0.1307,), (0.3081,)))
        net = mlp((1, sizes.side, sizes.side), (sizes.classes,), (sizes.hidden,)).to(device)
        kind = known_methods()[method]
        self.method = kind(net, kind.settings_type(), generator_for("bench", device=device))
        self.method.begin_task(TaskInfo(0, size, 0, range(sizes.classes), sizes.batches))
        self.steps = steps_for(self.method, TaskBatches(task, 0, sizes.batch, device), GraphMemory())
        self.order = torch.randperm(size)
        self.batches, self.batch = sizes.batches, 0

    def __call__(self) -> None:
        """Learn the next batch; the first one of an epoch is preceded by what an epoch begins with."""
        if self.batch % self.batches == 0:
            self.steps.new_losses()
            self.steps.begin(self.order, 0)
        self.steps.learn()
        self.batch += 1

    @property
    def why_eager(self) -> str | None:
        """Why the step is no graph, if it should be one."""
        return self.steps.obstacle


class OrdinaryNets:
    """One step of gradient descent for so many ordinary nets on one batch, each by itself.

    There are tensors only, neither modules nor an optimiser. Several nets go through batched matrix products.
    """

    def __init__(self, sizes: MLPSizes, nets: int, x: Tensor, y: Tensor) -> None:
        self.nets, self.x, self.y = nets, x, y.repeat(nets)
        self.parameters = [
            (torch.rand((nets, *shape), device=x.device) * 2 - 1).div_(math.sqrt(fan_in)).requires_grad_()
            for fan_in, *shape in (
                (sizes.inputs, sizes.hidden, sizes.inputs),
                (sizes.inputs, sizes.hidden),
                (sizes.hidden, sizes.classes, sizes.hidden),
                (sizes.hidden, sizes.classes),
            )
        ]
        if nets == 1:
            self.parameters = [p.detach()[0].clone().requires_grad_() for p in self.parameters]
        # The sum of the nets' mean losses, whose gradient is each one's own, is the mean of all times their number.
        self.weight = torch.tensor(float(nets), device=x.device)

    def logits(self) -> Tensor:
        """Return the logits of all nets, one net after the other."""
        first, first_bias, second, second_bias = self.parameters
        if self.nets == 1:
            return F.linear(F.relu(F.linear(self.x, first, first_bias)), second, second_bias)
        x = self.x.expand(self.nets, *self.x.shape)
        hidden = F.relu(torch.baddbmm(first_bias.unsqueeze(1), x, first.transpose(1, 2)))
        return torch.baddbmm(second_bias.unsqueeze(1), hidden, second.transpose(1, 2)).flatten(0, 1)

    def __call__(self) -> None:
        """Take a step."""
        loss = F.cross_entropy(self.logits(), self.y)
        gradients = torch.autograd.grad(loss, self.parameters, self.weight.to(loss.dtype))
        with torch.no_grad():
            torch._foreach_add_(self.parameters, gradients, alpha=-RATE)


def ordinary_step(net: nn.Module, x: Tensor, y: Tensor, passes: int = 1) -> Step:
    """Return a step of an ordinary net as one writes it, forward and back so many times."""
    net.to(x.device)
    optimizer = torch.optim.SGD(net.parameters(), RATE)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(passes):
            (F.cross_entropy(net(x), y) / passes).backward()
        optimizer.step()

    return step


class Convolution(NamedTuple):
    """What a layer does: the shapes of its input and of its filters, and how these move."""

    layer: nn.Conv2d
    shape: tuple[int, ...]
    is_first: bool
    """Whether its input is the net's, whose gradient is not needed."""


def convolutions_of(net: nn.Module, x: Tensor) -> list[Convolution]:
    """Return the convolutions that ``x`` meets in a net, in their order."""
    met: list[Convolution] = []

    def note(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(layer, nn.Conv2d)
        met.append(Convolution(layer, tuple(inputs[0].shape), inputs[0].data_ptr() == x.data_ptr()))

    hooks = [layer.register_forward_pre_hook(note) for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    try:
        with torch.no_grad():
            net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return met


class GroupedConvolution:
    """One convolution for all samples, a group of channels each, forward and back on random numbers."""

    def __init__(self, like: Convolution, samples: int, device: torch.device, dtype: torch.dtype) -> None:
        layer, (rows, channels, *sides) = like.layer, like.shape
        filters = layer.weight.shape
        self.stride, self.padding, self.dilation = layer.stride, layer.padding, layer.dilation
        self.groups = samples * layer.groups

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)

        self.x = random(rows, samples * channels, *sides).requires_grad_(not like.is_first)
        self.weight = random(samples * filters[0], *filters[1:]).requires_grad_()
        with torch.no_grad():
            self.grad = random(*self.forward().shape)

    def forward(self) -> Tensor:
        """Convolve."""
        return F.conv2d(self.x, self.weight, None, self.stride, self.padding, self.dilation, self.groups)

    def __call__(self) -> tuple[Tensor, ...]:
        """Return the gradients by the filters and, where it is needed, by the input."""
        wanted = [self.weight, self.x] if self.x.requires_grad else [self.weight]
        return torch.autograd.grad(self.forward(), wanted, self.grad)


class ConvolutionsAlone:
    """All convolutions of a net, one after the other, with nothing between them."""

    def __init__(self, net: nn.Module, x: Tensor, samples: int, dtype: torch.dtype = torch.float32) -> None:
        self.layers = [GroupedConvolution(each, samples, x.device, dtype) for each in convolutions_of(net, x)]

    def __call__(self) -> None:
        """Go forward and back through each."""
        for layer in self.layers:
            layer()
