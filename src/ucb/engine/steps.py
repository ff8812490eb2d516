"""Training steps: one launch at a time, or on a GPU captured as CUDA graphs that share their memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ucb.data.streams.examples import Examples
from ucb.data.streams.tasks import Task
from ucb.kernels.triton import steps
from ucb.methods import Method


class Steps(ABC):
    """Learns a task's batches in a given order, one at each call."""

    obstacle: str | None = None
    """Why the steps cannot be captured, once that is known."""

    @property
    def is_time_to_look(self) -> bool:
        """Whether it is time to look at the losses: that holds up a GPU, so there it is done for many at a time."""
        return True

    @abstractmethod
    def begin(self, order: Tensor, batch: int) -> None:
        """Get ready for an epoch in this order, of which ``batch`` batches have been learnt before."""

    @abstractmethod
    def learn(self) -> None:
        """Learn the next batch."""

    @abstractmethod
    def new_losses(self) -> list[float]:
        """Return the losses of the batches since this was last asked. It waits until they are learnt."""


LOOK_EVERY = 50
"""Batches after which the loss is looked at on a GPU."""


class EagerSteps(Steps):
    """Runs a method's step as it is written."""

    def __init__(self, method: Method, task: Task, offset: int, batch_size: int, device: torch.device) -> None:
        self.method, self.task, self.offset = method, task, offset
        self.batch_size, self.device = batch_size, device
        self.batches: Iterator[tuple[Tensor, Tensor]] = iter(())
        self.unseen: list[Tensor] = []

    def begin(self, order: Tensor, batch: int) -> None:
        """Let the examples of this order come one batch after the other."""
        self.batches = self.task.train.batches(order[batch * self.batch_size :], self.batch_size, self.device)

    def learn(self) -> None:
        """Learn the next batch."""
        x, y = next(self.batches)
        self.unseen.append(self.method.learn(self.task.prepare(x), y + self.offset))

    @property
    def is_time_to_look(self) -> bool:
        """Whether enough batches are unseen."""
        return self.device.type != "cuda" or len(self.unseen) >= LOOK_EVERY

    def new_losses(self) -> list[float]:
        """Return the losses since this was last asked."""
        values: list[float] = torch.stack(self.unseen).tolist() if self.unseen else []
        self.unseen = []
        return values


class GraphMemory:
    """The memory that one task's graphs leave to the next task's.

    PyTorch puts such memory to no other use, and frees it only when it runs out: with new memory for every task a
    process would grow. So the latest graph is held until the next one has been recorded, which can take its memory.
    """

    def __init__(self) -> None:
        self._pool: Any = None
        self._latest: torch.cuda.CUDAGraph | None = None

    def record(self, work: Callable[[], None], generators: Sequence[torch.Generator] = ()) -> torch.cuda.CUDAGraph:
        """Return some work as a graph. ``generators`` are what draws in it: they move on each time it is done."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        except Exception:
            self.give_up()  # its memory may be in any state
            raise
        self._latest = graph
        return graph

    def give_up(self) -> None:
        """Leave the memory to PyTorch, once its graphs are gone."""
        self._pool = self._latest = None


WARM_UP = 2
"""Steps that run as they are written before one is captured: what is made only once is there then."""

SHARE = 0.25
"""The part of the GPU's free memory that a task's inputs may take."""


class CapturedSteps(Steps):
    """Learns a task whose inputs lie on the GPU, ready for the net; only the order comes from outside, once an epoch.

    Each step finds its place in the order by itself, so that nothing is sent between two of them. (One graph of several
    steps was tried: a GPU takes as long to begin each of its kernels, and making it costs more than it saves.)
    """

    def __init__(self, method: Method, x: Tensor, y: Tensor, batch_size: int, memory: GraphMemory) -> None:
        self.method, self.x, self.y, self.batch_size, self.memory = method, x, y, batch_size, memory
        self.order = torch.zeros_like(y)
        self.turn = torch.zeros(1, dtype=torch.int64, device=y.device)
        self.losses = torch.zeros(-(-len(y) // batch_size), device=y.device)
        self.batch = self.seen = 0
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        """By the rows of a batch."""
        self.warm: Counter[int] = Counter()
        self.is_warm = False
        """Whether batches of another size, the last of an epoch, may be captured at once."""

    def begin(self, order: Tensor, batch: int) -> None:
        """Bring the order to the GPU."""
        self.order.copy_(order)
        self.turn.fill_(batch)
        self.batch = self.seen = batch

    def learn(self) -> None:
        """Learn the next batch: from the third of its size on as a graph."""
        rows = min(self.batch_size, len(self.y) - self.batch * self.batch_size)
        if rows in self.graphs:
            self.graphs[rows].replay()
        elif self.obstacle is not None:
            self._step(rows)
        elif self.is_warm or self.warm[rows] == WARM_UP:
            self._capture(rows)
            self.learn()
            return
        else:
            self._warm_up(rows)
        self.batch += 1

    def _warm_up(self, rows: int) -> None:
        self.warm[rows] += 1
        is_last = self.warm[rows] == WARM_UP
        before = marks_of(self.method) if is_last else {}
        self._step(rows)
        if is_last:
            self.obstacle = changed(before, self.method)
            self.is_warm = True

    @property
    def is_time_to_look(self) -> bool:
        """Whether enough batches are unseen."""
        return self.batch - self.seen >= LOOK_EVERY

    def new_losses(self) -> list[float]:
        """Return the losses since this was last asked."""
        values: list[float] = self.losses[self.seen : self.batch].tolist()
        self.seen = self.batch
        return values

    def _step(self, rows: int) -> None:
        x, y = steps.take_batch(self.x, self.y, self.order, self.turn, self.batch_size, rows)
        steps.note_loss(self.method.learn(x, y), self.losses, self.turn)

    def _capture(self, rows: int) -> None:
        try:
            self.graphs[rows] = self.memory.record(lambda: self._step(rows), [self.method.generator])
        except RuntimeError as error:
            if self.warm[rows] == WARM_UP:
                self.obstacle = f"it cannot be captured: {str(error).splitlines()[0]}"
            else:  # this size needs something that can be made before only
                self.is_warm = False


def steps_for(
    method: Method, task: Task, offset: int, batch_size: int, device: torch.device, memory: GraphMemory | None
) -> tuple[Steps, str | None]:
    """Return the steps that learn a task, and why they are not captured, if there is memory for graphs."""
    eager = EagerSteps(method, task, offset, batch_size, device)
    if device.type != "cuda" or memory is None:
        return eager, None
    ready = ready_inputs(task, offset, device)
    if isinstance(ready, str):
        return eager, ready
    return CapturedSteps(method, *ready, batch_size, memory), None


def ready_inputs(task: Task, offset: int, device: torch.device) -> tuple[Tensor, Tensor] | str:
    """Return a task's training inputs and labels on the device, ready for the net, or why they cannot lie there."""
    examples = task.train
    if not examples.is_fixed:
        return "its examples are read when they are needed"
    size = bytes_when_ready(task, examples)
    if device.type == "cuda" and size > SHARE * torch.cuda.mem_get_info(device)[0]:
        return f"a task's inputs take {size / 2**30:.1f} GiB, too much of this GPU's memory"
    ready = [(task.prepare(x), y + offset) for x, y in examples.in_order(4096, device)]
    x, y = (torch.cat(parts) for parts in zip(*ready, strict=True))
    return x, y


def bytes_when_ready(task: Task, examples: Examples) -> int:
    """Return the memory of examples that are ready for the net: a task may prepare them in any way."""
    first, _ = next(examples.batches(torch.arange(1), 1, torch.device("cpu")))
    return len(examples) * task.prepare(first).nbytes


def marks_of(method: Method) -> dict[str, Any]:
    """Return everything in a method's state but its generator's, by its path: tensors themselves, and other values."""
    return dict(_marks("", {name: value for name, value in method.state_dict().items() if name != "generator"}))


def changed(before: dict[str, Any], method: Method) -> str | None:
    """Say what has changed in a method's state since ``before``, beside the contents of tensors, if anything.

    A tensor that is made for the state alone lies elsewhere each time: its contents count then.
    """
    after = marks_of(method)
    moved = [path for path in sorted({*before, *after}) if not _same_place(before.get(path), after.get(path))]
    again = marks_of(method) if moved else {}
    for path in moved:
        old, new = before.get(path), after.get(path)
        if isinstance(old, Tensor) and isinstance(new, Tensor):
            is_made_anew = not _same_place(new, again[path])
            if is_made_anew and torch.equal(old, new):
                continue
        return f"{path.lstrip('.')} changes from step to step, and not as a tensor in its place"
    return None


def _same_place(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.data_ptr() == b.data_ptr() and a.shape == b.shape
    return type(a) is type(b) and not isinstance(a, Tensor) and a == b


def _marks(path: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [mark for key, each in value.items() for mark in _marks(f"{path}.{key}", each)]
    if isinstance(value, list | tuple):
        return [mark for index, each in enumerate(value) for mark in _marks(f"{path}.{index}", each)]
    return [(path, value)]
