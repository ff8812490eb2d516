"""A trunk that all tasks share, their heads, and normalisation that each task has for itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ucb.bayes.passes import Batch, Output, call, pick_output


class TaskBatchNorm2d(nn.Module):
    """Batch normalisation with one set of statistics, scale and shift for each task; the net says which is current.

    Batch statistics that all tasks share are themselves a way of forgetting: the running mean follows the last task.
    """

    def __init__(self, channels: int, tasks: int) -> None:
        super().__init__()
        self.of_task = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(tasks))
        self.current = 0

    def make_room(self, tasks: int) -> None:
        """Let so many tasks have their own."""
        first = self.of_task[0]
        assert isinstance(first, nn.BatchNorm2d)
        for _ in range(len(self.of_task), tasks):
            self.of_task.append(nn.BatchNorm2d(first.num_features).to(first.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise with the current task's statistics."""
        normalised: Tensor = self.of_task[self.current](x)
        return normalised


def belongs_to_one_task(name: str) -> bool:
    """Whether this is the name of normalisation that one task has for itself, where each has a head."""
    return ".of_task." in name


class Heads(nn.ModuleList):
    """A list of heads. Hidden ones are left out of ``modules()`` and ``state_dict()``, but can be called as before."""

    def __init__(self, heads: Iterable[nn.Module]) -> None:
        super().__init__()
        self._all = self._modules
        self.extend(heads)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all.values())

    def __getitem__(self, index: Any) -> Any:
        return list(self._all.values())[index] if isinstance(index, slice) else self._all[str(range(len(self))[index])]

    @property
    def hidden(self) -> set[str]:
        """The numbers of those that are hidden."""
        return {*self._all} - {*self._modules}

    @contextmanager
    def showing(self, indices: Iterable[int] | None) -> Iterator[None]:
        """Hide all but these for a while; None hides none."""
        before = self._modules
        self._modules = self._all if indices is None else {str(index): self[index] for index in indices}
        try:
            yield
        finally:
            self._modules = before


class GrowingHead(nn.Module):
    """One head for all tasks whose outputs come task by task: a linear layer for each, side by side."""

    def __init__(self, features: int, sizes: Iterable[int] = ()) -> None:
        super().__init__()
        self.in_features = features
        self.parts = nn.ModuleList(nn.Linear(features, size) for size in sizes)

    @property
    def out_features(self) -> int:
        """The number of outputs so far."""
        return sum(part.out_features for part in self.layers())

    @property
    def weight(self) -> Tensor:
        """The weights of all outputs so far."""
        return torch.cat([part.weight for part in self.layers()])

    @property
    def bias(self) -> Tensor:
        """The biases of all outputs so far."""
        return torch.cat([part.bias for part in self.layers()])

    def layers(self) -> list[Any]:
        """Return the linear layers, in the order of their outputs."""
        return list(self.parts)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of all outputs so far."""
        return torch.cat([part(features) for part in self.parts], -1)


def _numbered_part(name: str) -> str:
    """Return the name of the head, of the part of a growing head, or of the normalisation that a parameter is in."""
    words = name.split(".")
    return ".".join(words[: max((place for place, word in enumerate(words) if word.isdigit()), default=0) + 1])


class HeadedNet(nn.Module):
    """``forward`` answers with head number ``current`` or, where that is None, with all heads side by side.

    All heads exist from the start, so that a net's weights do not depend on when a task comes.

    - ``trunk``: a module from ``[batch, ...]`` to ``[batch, features]``, which all tasks share. It gets the net's
      inputs: a tensor, several, or keyword inputs; a tuple or a mapping of these may be given, too.
    - ``head_sizes``: the number of outputs of each head, such as ``stream.head_sizes``.
    - ``output``: a function from the trunk's answer to the features, where that is not a tensor. Without it they are
      the answer's ``logits`` or ``pooler_output``, or its first or only part.

    >>> import torch, ucb
    >>> net = ucb.HeadedNet(torch.nn.Sequential(torch.nn.Linear(20, 8), torch.nn.ReLU()), 8, [2, 3])
    >>> net.current = 1
    >>> net(torch.randn(4, 20)).shape
    torch.Size([4, 3])
    """

    _current: int | None
    grows = False
    """Whether more heads may come: then a single one is not taken for one that all tasks share."""
    output: Output | None = None

    def __init__(
        self, trunk: nn.Module, features: int, head_sizes: Sequence[int], *, output: Output | None = None
    ) -> None:
        super().__init__()
        self.trunk, self.num_features, self.output = trunk, features, output
        self.heads = Heads(nn.Linear(features, size) for size in head_sizes)
        self.current = 0

    @property
    def shares_head(self) -> bool:
        """Whether all tasks share one head: it may grow, or be all that there is."""
        return len(self.heads) == 1 and (not self.grows or isinstance(self.heads[0], GrowingHead))

    def add_head(self, head: nn.Module) -> None:
        """Take in the head of one more task; normalisation that each task has for itself grows along."""
        self.grows = True
        self.heads.append(head)
        for module in self.trunk.modules():
            if isinstance(module, TaskBatchNorm2d):
                module.make_room(len(self.heads))

    @property
    def current(self) -> int | None:
        """The head that answers; normalisation that each task has for itself follows it."""
        return self._current

    @current.setter
    def current(self, head: int | None) -> None:
        if head == getattr(self, "_current", ...):
            return
        self._current = head
        rest = (part for part in self.children() if part is not self.heads)  # of heads there may be hundreds
        for module in itertools.chain.from_iterable(part.modules() for part in rest):
            if isinstance(module, TaskBatchNorm2d):
                module.current = head or 0

    @property
    def chosen(self) -> int:
        """The head that answers, where it must be a single one."""
        assert self._current is not None, "all heads answer"
        return self._current

    def is_shared(self, name: str) -> bool:
        """Whether tasks share the parameter of this name: the trunk's, and the head's where there is one only."""
        return self.shares_head or (name.startswith("trunk.") and not belongs_to_one_task(name))

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the net on one batch, or on the inputs that it consists of."""
        if inputs and named:
            raise TypeError("a HeadedNet takes its inputs either by place or by name, not both")
        return super().__call__(inputs[0] if len(inputs) == 1 else named or inputs)

    def features(self, x: Batch, trunk: nn.Module | None = None) -> Tensor:
        """Return the trunk's features, ``[batch, features]``, or those of another trunk like it."""
        answer = call(self.trunk if trunk is None else trunk, x)
        return pick_output(answer, self.output, ("logits", "pooler_output"), "the trunk")

    def forward(self, x: Any) -> Tensor:
        """Return the logits of the current head."""
        features = self.features(x)
        if self.current is None:
            return torch.cat([head(features) for head in self.heads], -1)
        logits: Tensor = self.heads[self.current](features)
        return logits

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state; what it holds of hidden heads is ignored, and heads that came after it stay as they are."""
        hidden = self.heads.hidden
        shown = {n: v for n, v in state_dict.items() if not (n.startswith("heads.") and n.split(".")[1] in hidden)}
        if self.grows:
            shown = {**self._later_parts(state_dict), **shown}
        return super().load_state_dict(shown if hidden or self.grows else state_dict, strict, assign)

    def _later_parts(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the net has of heads, and of normalisation for a task alone, that a state knows nothing of."""
        own = {n: v for n, v in self.state_dict().items() if n.startswith("heads.") or belongs_to_one_task(n)}
        known = {_numbered_part(name) for name in state}
        return {name: value for name, value in own.items() if _numbered_part(name) not in known}

    @contextmanager
    def using(self, head: int | None) -> Iterator[None]:
        """Answer with another head for a while."""
        before, self.current = self.current, head
        try:
            yield
        finally:
            self.current = before
