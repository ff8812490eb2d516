"""A fixed trunk and an exact Bayesian linear head: what was learnt is a sum over examples, so nothing is forgotten.

The head is recursive Bayesian regression (:mod:`ucb.bayes.conjugate`); with a fixed trunk its answer after the last
task is that of a head that saw all data at once. It needs no word about tasks, in training or at test time. Analytic
class-incremental learning (ACIL, Zhuang et al. 2022; RanPAC, McDonnell et al. 2023) rests on the same sums.
"""

from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Literal

import torch
from torch import Tensor

from ucb import checks
from ucb.bayes.conjugate import ConjugateHead
from ucb.bayes.passes import Batch
from ucb.methods.base import EvalContext, Settings, TaskData, method, one_of, setting
from ucb.methods.ordinary import OrdinaryMethod
from ucb.nets import HeadedNet
from ucb.nets.fixed_features import PatchFilters

Trunk = Literal["trained", "given"]
LOOKED_AT = 2000
"""Images of the first task from which filters are taken."""


@dataclass(frozen=True)
class ConjugateSettings(Settings):
    """What becomes of the trunk, and how strongly the head's weights are drawn to 0."""

    trunk: Trunk = setting("trained", check=one_of(Trunk))
    """``trained`` on the first task by gradient descent, or as ``given``; after the first task it stays in any case."""
    ridge: float = setting(0.1, grid=(0.01, 0.1, 1.0, 10.0), check=checks.positive)
    """The prior's precision, in units of the noise's."""
    sharpness: float = setting(10.0, check=checks.positive)
    """The factor from scores, which aim at 1 and 0, to logits."""


@method
class Conjugate(OrdinaryMethod):
    """All heads are one layer, side by side; an answer uses the outputs that it is asked for."""

    name = "conjugate"
    summary = "a trunk that stays after the first task, and an exact Bayesian linear head on its features"
    paper = "Bayesian linear regression; as in ACIL (Zhuang et al. 2022)"
    memory = "(features + 1)^2 and features + 1 a class, however many tasks"
    needs_classes = True
    settings: ConjugateSettings
    remembered = ("head",)

    def __init__(self, net: HeadedNet, settings: ConjugateSettings, generator: torch.Generator) -> None:
        super().__init__(net, settings, generator)
        heads = list(net.heads)
        sizes = [head.out_features for head in heads]
        self.outputs = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
        """Of each head, in the one layer."""
        device = heads[0].weight.device
        self.head = ConjugateHead(heads[0].in_features, sum(sizes), settings.ridge).to(device)
        # PyTorch loads a GPU's linear algebra at its first use, and fails where two runs side by side are the first.
        torch.linalg.cholesky(torch.eye(1, device=device))

    def phases(self) -> tuple[float, ...]:
        """Train the trunk in the first task, if at all; the head needs no epochs."""
        can_train = any(p.requires_grad for p in self.net.trunk.parameters())
        return (1.0,) if self.settings.trunk == "trained" and self.current_task.index == 0 and can_train else ()

    @torch.no_grad()
    def end_task(self, data: TaskData) -> None:
        """Let the head learn the task's examples, each once."""
        self.net.eval()
        if self.current_task.index == 0:
            self._find_filters(data)
        first = self.outputs[self.current_task.head].start
        for x, y in data.train():
            self.head.add(self.features(x), y + first)

    def features(self, x: Batch) -> Tensor:
        """Return the trunk's features, normalised as in the first task where each task has normalisation of its own."""
        with self.net.using(0):
            return self.net.features(x)

    def _find_filters(self, data: TaskData) -> None:
        """Let a trunk that takes its filters from images see some."""
        for module in self.net.trunk.modules():
            if isinstance(module, PatchFilters):
                images = (image for x, _ in data.train() for image in x)
                module.fit(torch.stack([*islice(images, LOOKED_AT)]), self.generator)

    @torch.no_grad()
    def logits(self, x: Batch, context: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Return logits under samples of the head's posterior, or under its mean."""
        self.net.eval()
        own = self.outputs[context.head]
        scores = self.head.scores(self.features(x))
        mean = scores.mean[:, own].unsqueeze(0)
        if samples == 0:
            return self.settings.sharpness * mean
        spread = (scores.variance[:, None] * self.head.noise()[own]).sqrt().to(mean.dtype)
        noise = torch.empty((samples, *mean.shape[1:]), dtype=mean.dtype, device=mean.device)
        return self.settings.sharpness * (mean + spread * noise.normal_(generator=generator))
