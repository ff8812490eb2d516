"""How a run trains, whatever the method: schedule, plateau rule, precision, and the steps.

Steps run one launch at a time, or on a GPU captured as CUDA graphs that share their memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ucb import checks
from ucb.data.streams.loaders import LoaderExamples, MissingExamples
from ucb.data.streams.tasks import Examples, Task
from ucb.kernels.triton import steps
from ucb.methods import Method

Precision = Literal["float32", "tf32", "bf16"]
Order = Tensor | int
"""Of an epoch's examples: their indices, or the seed under which a loader orders them itself."""


@contextmanager
def set_precision(precision: Precision, device: torch.device) -> Iterator[None]:
    """Multiply matrices and convolve in this precision, for as long as the block lasts; a CPU knows only float32.

    ``tf32`` keeps 10 bits of each factor's mantissa, ``bf16`` keeps 7 and halves the memory of activations. Weights,
    gradients, noise and sums stay in float32.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    try:
        # Casts are not kept: weights change from step to step inside this one block.
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


@dataclass(frozen=True)
class Schedule:
    """How long to train on a task, and at what rate.

    ``epochs`` are the most that a task may take. After ``patience`` of them without a better validation loss the rate
    is multiplied by ``factor``; below ``least_rate`` the task is over.

    >>> import ucb
    >>> ucb.Schedule(epochs=3).patience
    5
    """

    epochs: int = 10
    patience: int = 5
    """Epochs without a better validation loss before the rate drops."""
    factor: float = 0.3
    least_rate: float = 1e-4
    """Training on a task ends when its rate falls below this."""

    def __post_init__(self) -> None:
        checks.count("epochs", self.epochs)
        checks.count("patience", self.patience)
        checks.positive("least_rate", self.least_rate)
        if not 0 < self.factor < 1:
            raise ValueError(f"factor must be between 0 and 1, not {self.factor}")

    def refuse_rate(self, lr: float) -> None:
        """Refuse a first rate at which training would be over before it began."""
        if lr < self.least_rate:
            raise ValueError(
                f"lr is {lr:g}, and training ends when the rate falls below least_rate, {self.least_rate:g}: nothing "
                "would be learnt"
            )


@dataclass
class Plateau:
    """Where one task's training stands."""

    schedule: Schedule
    rate: float
    best: float = math.inf
    waited: int = 0
    epochs: int = 0

    def observe(self, loss: float) -> bool:
        """Take an epoch's validation loss; say whether it is the best so far."""
        self.epochs += 1
        if loss < self.best:
            self.best, self.waited = loss, 0
            return True
        self.waited += 1
        if self.waited >= self.schedule.patience:
            self.rate, self.waited = self.rate * self.schedule.factor, 0
        return False

    @property
    def is_over(self) -> bool:
        """Whether the task's training is at its end."""
        return self.epochs >= self.schedule.epochs or self.rate < self.schedule.least_rate


@dataclass(frozen=True)
class Training:
    """How a run trains and is judged, whatever the method.

    ``schedule`` says how long and at what rate, ``batch_size`` how many examples a step takes, and ``eval_samples`` how
    many weight samples answers are averaged over.

    >>> import ucb
    >>> ucb.Training(ucb.Schedule(epochs=3), batch_size=128).batch_size
    128
    """

    schedule: Schedule = field(default_factory=Schedule)
    batch_size: int = 64
    eval_samples: int = 10
    checkpoint_every: int = 1000
    """Steps between checkpoints inside a task."""
    graphs: bool = True
    """On a GPU: capture the training step as a CUDA graph, where the method's step allows it."""
    precision: Precision = "tf32"
    """On a GPU: the precision of the factors of matrix products and convolutions."""

    def __post_init__(self) -> None:
        checks.count("batch_size", self.batch_size)
        checks.count("eval_samples", self.eval_samples)
        checks.count("checkpoint_every", self.checkpoint_every)
        checks.one_of("precision", self.precision, get_args(Precision))


ROWS = 1024
"""How many examples are judged at a time; on a GPU more of them, where they are small."""

BYTES = 1 << 24
"""Of inputs that a GPU takes at a time: launching its work costs more than doing it."""


def rows_at_once(examples: Examples, device: torch.device) -> int:
    """Return how many examples are judged at a time."""
    if device.type != "cuda" or not examples.is_fixed:
        return ROWS
    return max(ROWS, BYTES // (4 * examples.numbers_each))


@dataclass(frozen=True)
class TaskBatches:
    """The data of the task at hand as methods see it: inputs ready for the net, labels as its outputs are numbered."""

    task: Task
    first_output: int
    """The output that stands for the label 0."""
    batch_size: int
    device: torch.device

    @property
    def num_batches(self) -> int:
        """The number of batches in an epoch."""
        return self.task.train.num_batches(self.batch_size)

    @property
    def has_held_out(self) -> bool:
        """Whether examples are held out."""
        return not isinstance(self.task.validation, MissingExamples)

    def order(self, random: torch.Generator, *, shuffle: bool) -> Order:
        """Return an epoch's order, or the seed from which a loader makes its own."""
        if isinstance(self.task.train, LoaderExamples):
            return int(torch.randint(2**62, (), generator=random))
        size = len(self.task.train)
        return torch.randperm(size, generator=random) if shuffle else torch.arange(size)

    def train(self, order: Order | None = None, skip: int = 0) -> Iterator[tuple[Any, Tensor]]:
        """Yield all training examples once, or those that ``order`` lists, after the first ``skip`` batches."""
        examples = self.task.train
        if isinstance(order, int):
            assert isinstance(examples, LoaderExamples)
            return self._prepare(examples.read(self.device, order, skip))
        if order is None:
            return self._prepare(examples.in_order(self.batch_size, self.device))
        return self._prepare(examples.batches(order[skip * self.batch_size :], self.batch_size, self.device))

    def validation(self) -> Iterator[tuple[Any, Tensor]]:
        """Yield all held-out examples once; where there are none, those for training."""
        held_out = self.task.validation if self.has_held_out else self.task.train
        return self._prepare(held_out.in_order(rows_at_once(held_out, self.device), self.device))

    def _prepare(self, batches: Iterator[tuple[Any, Tensor]]) -> Iterator[tuple[Any, Tensor]]:
        for x, y in batches:
            yield self.task.prepare(x), y + self.first_output if self.first_output else y


LOOK_EVERY = 50
"""Batches after which the loss is looked at on a GPU."""


class Steps:
    """Learns a task's batches in a given order, one at each call: runs a method's step as it is written."""

    def __init__(self, method: Method, data: TaskBatches, obstacle: str | None = None) -> None:
        self.method, self.data = method, data
        self.obstacle = obstacle
        """Why the steps cannot be captured, once that is known."""
        self.batches: Iterator[tuple[Any, Tensor]] = iter(())
        self.unseen: list[Tensor] = []

    def begin(self, order: Order, batch: int) -> None:
        """Get ready for an epoch in this order, of which ``batch`` batches have been learnt before."""
        self.batches = self.data.train(order, batch)

    def learn(self) -> None:
        """Learn the next batch."""
        batch = next(self.batches, None)
        if batch is None:
            raise ValueError(
                f"{self.data.task.name}: the training data ended before the {self.data.num_batches} batches that an "
                "epoch has: a loader must yield as many each time"
            )
        self.unseen.append(self.method.learn(*batch))

    @property
    def is_time_to_look(self) -> bool:
        """Whether it is time to look at the losses: that holds up a GPU, so there it is done for many at a time."""
        return self.data.device.type != "cuda" or len(self.unseen) >= LOOK_EVERY

    def new_losses(self) -> list[float]:
        """Return the losses of the batches since this was last asked. It waits until they are learnt."""
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

    def __init__(self, method: Method, data: TaskBatches, x: Tensor, y: Tensor, memory: GraphMemory) -> None:
        super().__init__(method, data)
        self.x, self.y, self.memory = x, y, memory
        self.order = torch.zeros_like(y)
        self.turn = torch.zeros(1, dtype=torch.int64, device=y.device)
        self.losses = torch.zeros(data.num_batches, device=y.device)
        self.batch = self.seen = 0
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        """By the rows of a batch."""
        self.warm: Counter[int] = Counter()
        self.is_warm = False
        """Whether batches of another size, the last of an epoch, may be captured at once."""

    def begin(self, order: Order, batch: int) -> None:
        """Copy the order to the GPU."""
        assert isinstance(order, Tensor)  # inputs that lie there are in no loader's hands
        self.order.copy_(order)
        self.turn.fill_(batch)
        self.batch = self.seen = batch

    def learn(self) -> None:
        """Learn the next batch: from the third of its size on as a graph."""
        rows = min(self.data.batch_size, len(self.y) - self.batch * self.data.batch_size)
        if rows in self.graphs:
            self.graphs[rows].replay()
        elif self.obstacle is not None:
            self._step(rows)
        elif self.is_warm or self.warm[rows] == WARM_UP:
            self._capture(rows)
            self.learn()
            return
        else:
            self.warm[rows] += 1
            before = mark_state(self.method)
            self._step(rows)
            if self.warm[rows] == WARM_UP:
                self.obstacle, self.is_warm = changed(before, self.method), True
        self.batch += 1

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
        x, y = steps.take_batch(self.x, self.y, self.order, self.turn, self.data.batch_size, rows)
        steps.note_loss(self.method.learn(x, y), self.losses, self.turn)

    def _capture(self, rows: int) -> None:
        try:
            self.graphs[rows] = self.memory.record(lambda: self._step(rows), [self.method.generator])
        except RuntimeError as error:
            if self.warm[rows] == WARM_UP:
                self.obstacle = f"it cannot be captured: {str(error).splitlines()[0]}"
            else:  # this size needs something that can be made before only
                self.is_warm = False


def steps_for(method: Method, data: TaskBatches, memory: GraphMemory | None) -> Steps:
    """Return the steps that learn a task, captured where that can be and there is memory for graphs."""
    if data.device.type != "cuda" or memory is None:
        return Steps(method, data)
    ready = prepare_inputs(data)
    return Steps(method, data, ready) if isinstance(ready, str) else CapturedSteps(method, data, *ready, memory)


def prepare_inputs(data: TaskBatches) -> tuple[Tensor, Tensor] | str:
    """Return a task's training inputs and labels on the device, ready for the net, or why they cannot lie there."""
    if not data.task.train.is_fixed:
        return "its examples are read when they are needed"
    size = count_prepared_bytes(data.task)
    if data.device.type == "cuda" and size > SHARE * torch.cuda.mem_get_info(data.device)[0]:
        return f"a task's inputs take {size / 2**30:.1f} GiB, too much of this GPU's memory"
    x, y = (torch.cat(parts) for parts in zip(*replace(data, batch_size=4096).train(), strict=True))
    return x, y


def count_prepared_bytes(task: Task) -> int:
    """Return the memory of a task's training inputs once they are ready for the net, however the task prepares them."""
    return len(task.train) * task.prepare(task.train.first()).nbytes


def mark_state(method: Method) -> dict[str, Any]:
    """Return everything in a method's state but its generator's, by its path: tensors themselves, and other values."""
    return dict(_list_marks("", {name: value for name, value in method.state_dict().items() if name != "generator"}))


def changed(before: dict[str, Any], method: Method) -> str | None:
    """Say what has changed in a method's state since ``before``, beside the contents of tensors, if anything.

    A tensor that is made for the state alone lies elsewhere each time: its contents count then.
    """
    after, again = mark_state(method), mark_state(method)
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if _same_place(old, new):
            continue
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


def _list_marks(path: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [mark for key, each in value.items() for mark in _list_marks(f"{path}.{key}", each)]
    if isinstance(value, list | tuple):
        return [mark for index, each in enumerate(value) for mark in _list_marks(f"{path}.{index}", each)]
    return [(path, value)]
