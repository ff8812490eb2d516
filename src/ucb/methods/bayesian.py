"""What the methods share that learn a Bayesian twin with the ELBO: their optimisers and the end of a task differ."""

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ucb import checks
from ucb.bayes import ELBO, Estimator, ScaleMixture, forward, gaussians, mean_forward, to_bayesian
from ucb.bayes.passes import Batch
from ucb.kernels.triton.steps import Measured, clip_factor
from ucb.methods.base import EvalContext, Method, Settings, TaskInfo, setting
from ucb.nets.heads import HeadedNet, TaskBatchNorm2d
from ucb.optim import param_groups
from ucb.optim.base import Group, PerWeightOptimizer, add_groups, drop_groups


@dataclass(frozen=True)
class BayesianSettings(Settings):
    """What every Bayesian method can be set to. The prior is the paper's: pi, and -log of its two spreads."""

    lr: float = setting(0.3, grid=(0.1, 0.3, 1.0, 2.0))
    clip: float = 1.0
    """With it rates of 1 and more are stable; the head then learns so fast that the trunk need not move far."""
    init_std_ratio: float = setting(0.5, check=checks.positive)
    """Sigma at the start, relative to each layer's weights."""
    temperature: float = setting(0.001, grid=(0.001, 0.01), check=checks.not_negative)
    samples: int = 10
    prior_samples: int = 1
    estimator: Estimator = "local"
    pi: float = 0.25
    log_sigma_1: float = 0.0
    log_sigma_2: float = 6.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.objective(1, torch.Generator())  # refuses what no ELBO and no prior can be

    def objective(self, num_examples: int, generator: torch.Generator) -> ELBO:
        """Return the ELBO of a task."""
        return ELBO(
            num_examples,
            ScaleMixture(self.pi, math.exp(-self.log_sigma_1), math.exp(-self.log_sigma_2)),
            temperature=self.temperature,
            samples=self.samples,
            prior_samples=self.prior_samples,
            estimator=self.estimator,
            generator=generator,
        )


class BayesianMethod(Method):
    """Learns a Bayesian twin with the ELBO. With several heads, each is in the optimiser until the next task begins.

    A class of your own defines ``make_optimizer(groups)``, which gets ``param_groups`` of the trunk, and what is to
    happen when a task ends, ``end_task(data)``. ``settings`` hold the rate, the temperature, the samples and the prior.

    >>> import ucb
    >>> class Forgetful(ucb.BayesianMethod):
    ...     name, summary = "forgetful", "nothing is done against forgetting"
    ...
    ...     def make_optimizer(self, groups):
    ...         return ucb.UCB(groups, self.settings.lr)
    >>> Forgetful.settings_type().samples
    10
    """

    settings: BayesianSettings
    remembered: ClassVar[tuple[str, ...]] = ("start",)
    heads_learn_again = False
    """Whether a head may learn again after its task: it rests in the optimiser then, which remembers its rates."""

    def __init__(self, net: HeadedNet, settings: BayesianSettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        twin = to_bayesian(net, settings.init_std_ratio)
        assert isinstance(twin, HeadedNet)
        self.net = twin
        self.start = {name: _one_number(g.sigma.detach()) for name, g in gaussians(twin)}
        """Sigma before anything was learnt, one number where that is all: every run reports how far it moved."""
        self.net.heads.requires_grad_(False)
        self.optimizer = self.make_optimizer(param_groups(self.net.trunk, "trunk."))
        self.objective = settings.objective(1, generator)
        self.measured: Measured = {}
        """Sums of squares of the gradients of a step, as far as ``add_gradients`` knows them."""

    @abstractmethod
    def make_optimizer(self, groups: list[Group]) -> PerWeightOptimizer:
        """Return the optimiser of the trunk's weights; heads join it later."""

    def begin_task(self, task: TaskInfo) -> None:
        """Let the task's head learn, at the base rate, and the others rest."""
        if self.task is not None and task.head < self.task.head and not self.heads_learn_again:
            raise ValueError(f"head {task.head} has left the optimiser: set heads_learn_again before heads learn again")
        super().begin_task(task)
        self.set_rate(self.settings.lr)

    def resume_task(self, task: TaskInfo) -> None:
        """Give the optimiser the heads that learn; one that never returns leaves it, or each task would be slower."""
        super().resume_task(task)
        self.objective = replace(self.objective, num_examples=task.num_examples, likelihood=self.nll)
        names = (group["name"] for group in self.optimizer.param_groups)
        present = {int(name.split(".")[1]) for name in names if name.startswith("heads.")}
        learning = {index for index in range(task.head + 1) if self.is_head_learning(index, task)}
        wanted = present | {*range(task.head + 1)} if self.heads_learn_again else learning
        for index in present - wanted:
            self.optimizer.remove_param_groups(f"heads.{index}.")
        for index in sorted(wanted - present):
            self.net.heads[index].requires_grad_(True)
            for group in param_groups(self.net.heads[index], f"heads.{index}."):
                self.optimizer.add_param_group(group)
        for index in present | wanted:
            self.net.heads[index].requires_grad_(index in learning)
        with self.net.heads.showing(()):
            for module in self.net.modules():
                if isinstance(module, TaskBatchNorm2d):
                    for index, own in enumerate(module.of_task):
                        own.requires_grad_(index == task.head)  # the KL would move the others'

    def convert_optimizer_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Leave out heads that rest, which earlier versions kept, and let outputs join that have come since."""
        names = {group["name"] for group in self.optimizer.param_groups}
        state = drop_groups(state, lambda name: name.startswith("heads.") and name not in names)
        return add_groups(state, self.optimizer.state_dict()) if self.net.grows else state

    def is_head_learning(self, index: int, task: TaskInfo) -> bool:
        """Whether a head learns in this task."""
        return index == task.head

    def learning_heads(self) -> Iterable[int] | None:
        """Return the heads that learn in the task at hand: the others, which may be a thousand, have no gradient.

        On a GPU steps are replayed and walk over nothing.
        """
        task, on_gpu = self.task, self.generator.device.type == "cuda"
        if task is None or on_gpu:
            return None
        return [index for index in range(len(self.net.heads)) if self.is_head_learning(index, task)]

    def add_gradients(self, x: Batch, y: Tensor) -> Tensor:
        """Add the gradient of the ELBO."""
        self.measured = {}
        return self.objective.add_gradients(self.net, x, y, self.measured)

    def clip_gradients(self) -> None:
        """Leave it to the optimiser where that can shorten the gradient on its way."""
        if self.settings.clip > 0 and self.optimizer.can_scale_gradients():
            is_changed = type(self).adjust_gradients is not Method.adjust_gradients
            known, self.measured = {} if is_changed else self.measured, {}
            self.optimizer.clip_scale = clip_factor(self.net.parameters(), self.settings.clip, measured=known)
        if self.optimizer.clip_scale is None:
            super().clip_gradients()

    @torch.no_grad()
    def loss(self, x: Batch, y: Tensor) -> Tensor:
        """Return the mean NLL under the mean weights."""
        self.set_to_eval()
        return self.nll(mean_forward(self.net, x), y)

    @torch.no_grad()
    def logits(self, x: Batch, context: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Return logits under weight samples, or under the mean weights."""
        self.set_to_eval()
        with self.net.using(context.head):
            if samples == 0:
                return mean_forward(self.net, x).unsqueeze(0)
            return forward(self.net, x, samples, generator=generator)


def _one_number(values: Tensor) -> float | Tensor:
    """Return a copy of a tensor, or the number that all its elements are."""
    first = float(values.flatten()[0]) if values.numel() else 0.0
    return first if bool((values == first).all()) else values.clone()
