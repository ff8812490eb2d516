"""Our own training steps: the ELBO's gradient and UCB's update, and an ordinary net through the engine."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ucb.bayes import ELBO, Estimator, Prior, ScaleMixture, to_bayesian
from ucb.bench.sizes import RATE, MLPSizes, Sizes
from ucb.bench.timing import Work
from ucb.data.streams.examples import Preparation, TensorExamples
from ucb.data.streams.tasks import Task
from ucb.engine.graph_memory import GraphMemory
from ucb.engine.graphs import CapturedSteps, steps_for
from ucb.methods import TaskInfo, known_methods
from ucb.nets import mlp
from ucb.optim import UCB, param_groups
from ucb.seeds import generator_for

PI, SIGMA_1, SIGMA_2 = 0.25, 1.0, 0.0025
PRIOR_SIGMA = 0.1


def mixture() -> ScaleMixture:
    """Return the prior that all who know one are timed with."""
    return ScaleMixture(PI, SIGMA_1, SIGMA_2)


def bayesian_step(
    plain: nn.Module, x: Tensor, y: Tensor, sizes: Sizes, estimator: Estimator, prior: Prior, prior_samples: int
) -> Work:
    """Return the step of a net's Bayesian twin on one batch."""
    net = to_bayesian(plain).to(x.device)
    generator = generator_for("bench", device=x.device)
    objective = ELBO(
        sizes.examples,
        prior,
        samples=sizes.samples,
        prior_samples=prior_samples,
        estimator=estimator,
        generator=generator,
    )
    optimizer = UCB(param_groups(net), RATE)
    optimizer.consolidate()  # as from the second task on: a rate for every weight

    def step() -> None:
        optimizer.zero_grad()
        objective.add_gradients(net, x, y)
        optimizer.step()

    return Work(step, generator)


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
        self.steps, self.obstacle = steps_for(self.method, task, 0, sizes.batch, device, GraphMemory())
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
        return self.steps.obstacle if isinstance(self.steps, CapturedSteps) else self.obstacle
