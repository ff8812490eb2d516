"""LwF, learning without forgetting (Li and Hoiem, ECCV 2016): on new data the old outputs stay what they were."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb import checks
from ucb.methods.base import Settings, method, setting
from ucb.methods.old_net import ComparesWithOldNet
from ucb.nets import HeadedNet


@dataclass(frozen=True)
class LwFSettings(Settings):
    """How much the old outputs count, and how soft they are when they are compared."""

    strength: float = setting(2.0, grid=(0.5, 2.0), check=checks.not_negative)
    """The paper's lambda."""
    temperature: float = setting(2.0, grid=(1.0, 2.0), check=checks.positive)


@method
class LearningWithoutForgetting(ComparesWithOldNet):
    """Distils the old net's outputs for earlier tasks into the present net, on the new task's inputs.

    As in the paper the old heads are part of the loss and learn along; heads of tasks to come rest. With one head, the
    outputs of earlier tasks are compared among themselves.
    """

    name = "lwf"
    summary = "the old net's outputs on new data are learnt along (distillation)"
    paper = "Li and Hoiem, ECCV 2016"
    memory = "a copy of the net while a task is learnt; it does not grow beyond the heads"
    settings_type = LwFSettings
    settings: LwFSettings

    def part_to_compare(self) -> nn.Module:
        """Return trunk and heads."""
        return self.net

    def penalty(self, x: Tensor, features: Tensor, logits: Tensor) -> Tensor:
        """Return lambda times the sum of every old head's distillation loss."""
        assert isinstance(self.old, HeadedNet)
        with torch.no_grad():
            then = self._old_answers(self.old, self.old.trunk(x))
        now = self._old_answers(self.net, features)
        losses = [distillation(a, b, self.settings.temperature) for a, b in zip(now, then, strict=True)]
        return self.settings.strength * torch.stack(losses).sum()

    def _old_answers(self, net: HeadedNet, features: Tensor) -> list[Tensor]:
        """Return the logits of the heads that earlier tasks had, [rows, heads, outputs] for heads of one size.

        The heads are one matrix: many small products cost more than they compute.
        """
        assert self.task is not None
        one_head = len(net.heads) == 1
        heads = [h for h in net.heads[: 1 if one_head else self.task.head] if isinstance(h, nn.Linear)]
        flat = F.linear(features, torch.cat([h.weight for h in heads]), torch.cat([h.bias for h in heads]))
        if one_head:
            return [flat[:, None, : self.old_outputs]]
        sizes = [head.out_features for head in heads]
        if len(set(sizes)) == 1:
            return [flat.unflatten(1, (-1, sizes[0]))]
        return [part.unsqueeze(1) for part in flat.split(sizes, 1)]


def distillation(now: Tensor, then: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of softened logits [rows, heads, outputs]: the mean over rows, summed over heads."""
    return (then / temperature).softmax(-1).mul((now / temperature).log_softmax(-1)).sum() / -len(now)
