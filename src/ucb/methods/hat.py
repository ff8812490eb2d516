"""HAT, hard attention to the task (Serra et al., ICML 2018): each task learns which units it uses, and these stay."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb import checks
from ucb.bayes.passes import Batch
from ucb.kernels.triton.steps import clip_gradients
from ucb.methods.base import EvalContext, Settings, TaskData, TaskInfo, method, setting
from ucb.methods.ordinary import OrdinaryMethod
from ucb.nets import HeadedNet
from ucb.nets.stages import GatedNet, split_for

LARGEST_EMBEDDING, LARGEST_EXPONENT = 6.0, 50.0
SMALLEST_GATE = math.exp(-LARGEST_EXPONENT)


def gates_for(embedding: Sequence[Tensor], slope: Tensor | float) -> list[Tensor]:
    """Return sigmoid(s e), and 0 where Eq. 4 stops anyway: products of smaller gates are slow denormal numbers."""
    return [F.threshold(torch.sigmoid(slope * e), SMALLEST_GATE, 0.0) for e in embedding]


def _at_least_1(name: str, value: float) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value:g}")
    checks.positive(name, value)


@dataclass(frozen=True)
class HATSettings(Settings):
    """How hard the gates become, and what a unit costs that no task has used yet."""

    sparsity: float = setting(0.75, grid=(0.25, 0.75), check=checks.not_negative)
    """The paper's lambda."""
    smax: float = setting(400.0, grid=(100.0, 400.0), check=_at_least_1)
    """The gates' slope at the end of an epoch and at test time."""


@method
class HAT(OrdinaryMethod):
    """A gate a = sigmoid(s e) on every unit; weights between units of old tasks cannot move.

    With several heads each is its task's own. One head is a last stage: an output counts as used once a task had it.
    """

    name = "hat"
    summary = "each task learns hard gates on units; what old tasks use stays (ICML 2018)"
    paper = "Serra et al., ICML 2018"
    memory = "one embedding a unit and task, and the largest gate of each unit"
    settings: HATSettings
    net: GatedNet
    needs_task = True
    remembered = ("embedding", "learnt", "free", "free_outputs", "batch")

    def __init__(self, net: HeadedNet, settings: HATSettings, generator: torch.Generator) -> None:
        split_for(self.name, net)  # a net without stages is refused in this method's name
        super().__init__(GatedNet(net), settings, generator)
        self.stages = self.net.staged.stages
        self.embedding = [nn.Parameter(stage.layer.weight.new_zeros(stage.units)) for stage in self.stages]
        """The present task's."""
        self.optimizer.add_param_group({"params": self.embedding})
        self.learnt: dict[int, list[Tensor]] = {}
        """Embeddings of the tasks that are over."""
        self.free = [torch.ones_like(e, requires_grad=False) for e in self.embedding]
        """1 minus the largest gate that a unit had in any task."""
        self.free_outputs = self.free[0].new_ones(self.net.staged.heads[0].units)
        """Of the one head."""
        self.batch = torch.zeros((), device=self.free[0].device)
        self.slope = torch.full_like(self.batch, settings.smax)
        self.factors: list[tuple[Tensor, Tensor]] = []

    def begin_task(self, task: TaskInfo) -> None:
        """Give the task an embedding of its own."""
        super().begin_task(task)
        self.batch.zero_()
        with torch.no_grad():
            for e in self.embedding:
                e.normal_(generator=self.generator)

    def learn(self, x: Batch, y: Tensor) -> Tensor:
        """One step, under gates that harden from batch to batch of an epoch (Eq. 3)."""
        batches, smax = self.current_task.batches, self.settings.smax
        passed = self.batch / (batches - 1) if batches > 1 else torch.ones_like(self.batch)
        self.slope = 1 / smax + (smax - 1 / smax) * passed
        self.net.gates = gates_for(self.embedding, self.slope)
        return super().learn(x, y)

    def adjust_weights(self) -> None:
        """Bound the embeddings, and count the batch."""
        for e in self.embedding:
            e.clamp_(-LARGEST_EMBEDDING, LARGEST_EMBEDDING)
        self.batch.add_(1).remainder_(self.current_task.batches)

    def objective(self, nll: Tensor) -> Tensor:
        """Add what the gates cost: their mean over the units, weighted by what is free of each (Eq. 5)."""
        assert self.net.gates is not None
        spent = torch.stack([gate @ free for gate, free in zip(self.net.gates, self.free, strict=True)]).sum()
        room = torch.stack([free.sum() for free in self.free]).sum()
        return nll + self.settings.sparsity * spent / room.clamp_min(torch.finfo(room.dtype).tiny)

    def adjust_gradients(self) -> None:
        """Hold what old tasks use (Eq. 2), and give embeddings the gradient of a slope of their own (Eq. 4)."""
        for parameter, factor in self.factors:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
        for e in self.embedding:
            assert e.grad is not None
            steep = torch.cosh((self.slope * e.detach()).clamp_(-LARGEST_EXPONENT, LARGEST_EXPONENT)).add_(1)
            e.grad.mul_(steep.div_(torch.cosh(e.detach()).add_(1)).mul_(self.settings.smax / self.slope))

    def clip_gradients(self) -> None:
        """Clip the embeddings' gradient together with the net's."""
        if self.settings.clip > 0:
            clip_gradients([*self.net.parameters(), *self.embedding], self.settings.clip)

    def hard_gates(self, embedding: Sequence[Tensor]) -> list[Tensor]:
        """Return the gates as they are at test time."""
        return gates_for([e.detach() for e in embedding], self.settings.smax)

    def loss(self, x: Batch, y: Tensor) -> Tensor:
        """Return the mean NLL under hard gates."""
        self.net.gates = self.hard_gates(self.embedding)
        return super().loss(x, y)

    def logits(self, x: Batch, context: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Answer with the task's own units; for a task that never began, with all."""
        is_current = self.task is not None and context.index == self.task.index
        embedding = self.embedding if is_current else self.learnt.get(context.index)
        self.net.gates = None if embedding is None else self.hard_gates(embedding)
        return super().logits(x, context, samples, generator)

    def end_task(self, data: TaskData) -> None:
        """Keep the task's embedding, and count the units that it uses as taken."""
        self.learnt[self.current_task.index] = [e.detach().clone() for e in self.embedding]
        for free, gate in zip(self.free, self.hard_gates(self.embedding), strict=True):
            free.copy_(torch.minimum(free, 1 - gate))
        self.free_outputs[self.current_task.outputs.start : self.current_task.outputs.stop] = 0
        self.refresh()

    def refresh(self) -> None:
        """Work out the gradients' factors, 1 - min(a_i, a_j), once a task. The net's inputs count as used by all."""
        self.factors = []
        if not self.learnt:
            return
        chain = [*zip(self.stages, self.free, strict=True)]
        if self.net.shares_head:
            chain.append((self.net.staged.heads[0], self.free_outputs))
        before = None
        for stage, free in chain:
            self.factors.append((stage.layer.weight, stage.over_weights(free, before)))
            if stage.layer.bias is not None:
                self.factors.append((stage.layer.bias, free))
            before = free
