"""LFL, less-forgetful learning (Jung et al., 2016): features of new data stay near those that the old net makes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ucb import checks
from ucb.bayes.passes import Batch
from ucb.methods.base import Settings, method, setting
from ucb.methods.lwf import OldNetMethod
from ucb.nets.heads import GrowingHead


@dataclass(frozen=True)
class LFLSettings(Settings):
    """How much the features count."""

    strength: float = setting(0.01, grid=(0.003, 0.01, 0.03, 0.1), check=checks.not_negative)
    """The paper's lambda, for the mean over the batch: it does not depend on the batch's size."""


@method
class LessForgetfulLearning(OldNetMethod):
    """Adds lambda / 2 times the mean squared distance between the trunk's features and the old trunk's.

    The paper holds the old decision layer: with several heads the old ones have no gradient and rest, with one head
    the outputs of earlier tasks do, and only new outputs learn.
    """

    name = "lfl"
    summary = "features of new data stay near the old net's"
    paper = "Jung et al., 2016"
    memory = "a copy of the trunk while a task is learnt; it does not grow"
    settings: LFLSettings

    def part_to_compare(self) -> nn.Module:
        """Return the trunk."""
        return self.net.trunk

    def penalty(self, x: Batch, features: Tensor) -> Tensor:
        """Return lambda / 2 times the mean over the batch of ||f(x) - f_old(x)||^2."""
        assert self.old is not None
        with torch.no_grad():
            then = self.net.features(x, self.old)
        return (features - then).square().sum() * (self.settings.strength / (2 * len(features)))

    def adjust_gradients(self) -> None:
        """With one head, hold the outputs of earlier tasks."""
        if self.old is not None and self.net.shares_head:
            head, left = self.net.heads[0], self.old_outputs
            for layer in head.layers() if isinstance(head, GrowingHead) else [head]:
                for parameter in layer.parameters():
                    if parameter.grad is not None:
                        parameter.grad[: max(0, left)] = 0
                left -= layer.out_features
