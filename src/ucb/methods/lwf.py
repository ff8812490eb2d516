"""LwF, learning without forgetting (Li and Hoiem, ECCV 2016): on new data the old outputs stay what they were.

With it stands what it shares with LFL: comparing the net with itself as it was when the task began.
"""

import copy
from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb import checks
from ucb.bayes.passes import Batch
from ucb.methods.base import Settings, TaskInfo, method, setting
from ucb.methods.ordinary import OrdinaryMethod
from ucb.nets.heads import HeadedNet, TaskBatchNorm2d


class OldNetMethod(OrdinaryMethod):
    """Adds a penalty on leaving the old net to the NLL; in the first task there is no old net and no penalty."""

    remembered = ("old", "old_outputs")
    old: nn.Module | None = None
    """The old net or what is needed of it: in eval mode, and it never learns."""
    old_outputs = 0
    """With one head: how many of its outputs earlier tasks had."""

    @abstractmethod
    def part_to_compare(self) -> nn.Module:
        """Return the part of the net of which a copy is kept when a task begins."""

    @abstractmethod
    def penalty(self, x: Batch, features: Tensor) -> Tensor:
        """Return what is added to the NLL of a batch, given the features that the present trunk makes of it."""

    def begin_task(self, task: TaskInfo) -> None:
        """Note which outputs are old."""
        if self.task is not None:
            self.old_outputs = max(self.old_outputs, self.task.outputs.stop)
        super().begin_task(task)

    def resume_task(self, task: TaskInfo) -> None:
        """Copy the net: as the task finds it or, in a run that resumes, to have a net that its state is loaded into."""
        super().resume_task(task)
        self.old = None
        if task.index > 0:
            self.old = copy.deepcopy(self.part_to_compare()).requires_grad_(False).eval()
            for module in self.old.modules():
                if isinstance(module, TaskBatchNorm2d):
                    module.current = max(0, task.head - 1)  # the present task's own knows nothing yet

    def add_gradients(self, x: Batch, y: Tensor) -> Tensor:
        """Add the gradient of NLL and penalty, for which the trunk runs once."""
        features = self.net.features(x)
        nll = self.nll(self.net.heads[self.current_task.head](features), y)
        (nll if self.old is None else nll + self.penalty(x, features)).backward()
        return nll.detach()


@dataclass(frozen=True)
class LwFSettings(Settings):
    """How much the old outputs count, and how soft they are when they are compared."""

    strength: float = setting(2.0, grid=(0.5, 2.0), check=checks.not_negative)
    """The paper's lambda."""
    temperature: float = setting(2.0, grid=(1.0, 2.0), check=checks.positive)


@method
class LearningWithoutForgetting(OldNetMethod):
    """Distils the old net's outputs for earlier tasks into the present net, on the new task's inputs.

    As in the paper the old heads are part of the loss and learn along; heads of tasks to come rest. With one head, the
    outputs of earlier tasks are compared among themselves.
    """

    name = "lwf"
    summary = "the old net's outputs on new data are learnt along (distillation)"
    paper = "Li and Hoiem, ECCV 2016"
    memory = "a copy of the net while a task is learnt; it does not grow beyond the heads"
    needs_classes = True
    settings: LwFSettings

    def part_to_compare(self) -> nn.Module:
        """Return trunk and heads."""
        return self.net

    def penalty(self, x: Batch, features: Tensor) -> Tensor:
        """Return lambda times the sum of every old head's distillation loss."""
        assert isinstance(self.old, HeadedNet)
        with torch.no_grad():
            then = self._old_answers(self.old, self.old.features(x))
        now = self._old_answers(self.net, features)
        losses = [distillation(a, b, self.settings.temperature) for a, b in zip(now, then, strict=True)]
        return self.settings.strength * torch.stack(losses).sum()

    def _old_answers(self, net: HeadedNet, features: Tensor) -> list[Tensor]:
        """Return the logits of the heads that earlier tasks had, [rows, heads, outputs] for heads of one size.

        The heads are one matrix: many small products cost more than they compute.
        """
        one_head = net.shares_head
        heads = net.heads[: 1 if one_head else self.current_task.head]
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
