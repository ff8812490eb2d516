"""PathNet (Fernando et al., 2017): tasks evolve paths through a bank of modules; a finished task's path is frozen."""

import copy
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ucb import checks
from ucb.bayes.passes import Batch
from ucb.methods.base import EvalContext, TaskData, TaskInfo, method, setting
from ucb.methods.pnn import OwnHeadMethod, OwnHeadSettings
from ucb.nets import HeadedNet
from ucb.nets.stages import ModularNet, Path, draw_weights, split_for

FURTHEST_MUTATION = 2
UNKNOWN = -1.0


@dataclass(frozen=True)
class PathNetSettings(OwnHeadSettings):
    """The size of the bank and of a path, and how long paths compete."""

    modules: int = setting(16, check=checks.count)
    active: int = setting(3, check=checks.count)
    """How many modules of a stage a path names."""
    population: int = setting(2, check=partial(checks.count, least=2))
    generations: int = setting(20, check=checks.count)
    """Tournaments at most; in a short evolution there are fewer, since every contender gets a batch at least."""
    evolution: float = setting(2.0, grid=(1.0, 2.0), check=checks.not_negative)
    """Epochs' worth of batches that a task spends on tournaments; then the best path goes on by itself."""


@dataclass
class Evolution:
    """Where a task's evolution stands, as plain values."""

    population: list[Path]
    scores: list[float]
    """Each path's training accuracy when it last competed."""
    pair: list[int] = field(default_factory=list)
    """Who competes; empty when the evolution is over."""
    turn: int = 0
    batches: int = 0
    """How many batches the contender at hand has had."""
    generations: int = 0
    """Tournaments that are over."""

    @property
    def best(self) -> Path:
        """The path that did best when it last competed."""
        return self.population[self.scores.index(max(self.scores))]

    @property
    def contender(self) -> Path:
        """The path that is trained now."""
        return self.population[self.pair[self.turn]] if self.pair else self.best

    def state_dict(self) -> dict[str, Any]:
        """Return all fields."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken."""
        vars(self).update(copy.deepcopy(state))


@method
class PathNet(OwnHeadMethod):
    """Binary tournaments by training accuracy; the loser becomes a mutated copy of the winner."""

    name = "pathnet"
    summary = "tasks evolve paths through a bank of modules, and finished paths stay (2017)"
    paper = "Fernando et al., 2017"
    memory = "a path a task: a few small numbers"
    settings: PathNetSettings
    net: ModularNet
    remembered = ("paths", "evolution", "right")

    def __init__(self, net: HeadedNet, settings: PathNetSettings, generator: torch.Generator) -> None:
        staged = split_for(self.name, net)
        bank = ModularNet.within(staged, settings.heads_of(staged), settings.modules, generator)
        super().__init__(bank, settings, generator)
        first = [[i % settings.modules for i in range(settings.active)] for _ in staged.stages]
        self.evolution = Evolution([first], [UNKNOWN])
        self.paths: dict[int, Path] = {}
        """Of the tasks that are over."""
        self.right = torch.zeros((), device=staged.stages[0].layer.weight.device)
        """Of the contender's examples so far, the share that it got right in each batch, summed."""

    def begin_task(self, task: TaskInfo) -> None:
        """Begin an evolution with random paths."""
        super().begin_task(task)
        shape = self.settings.population, len(self.net.banks), self.settings.active
        self.evolution = Evolution(self.random(0, self.settings.modules, shape).tolist(), [UNKNOWN] * shape[0])
        self.right.zero_()
        if self.schedule()[1] > 0:
            self.evolution.pair = self.contenders()

    def schedule(self) -> tuple[int, int]:
        """Return how many batches a contender gets, and how many tournaments there are."""
        batches = int(self.settings.evolution * self.current_task.batches)
        each = max(1, batches // (2 * self.settings.generations))
        return each, min(self.settings.generations, batches // (2 * each))

    def learn(self, x: Batch, y: Tensor) -> Tensor:
        """One step of the contender, or of the best path once the evolution is over."""
        self.net.path = self.evolution.contender
        nll = super().learn(x, y)
        if self.evolution.pair:
            self.evolution.batches += 1
            if self.evolution.batches == self.schedule()[0]:
                self.judge()
        return nll

    def add_gradients(self, x: Batch, y: Tensor) -> Tensor:
        """Add the NLL's gradient; note the share of a contender's answers that are right."""
        logits = self.net(x)
        nll = self.nll(logits, y)
        nll.backward()
        if self.evolution.pair:
            own = self.current_task.outputs  # at test time, no others count either
            self.right.add_((logits[:, own.start : own.stop].argmax(1) == y - own.start).float().mean())
        return nll.detach()

    def judge(self) -> None:
        """Score the contender that had its batches; after the second, let the winner's copy replace the loser."""
        at, (each, tournaments) = self.evolution, self.schedule()
        at.scores[at.pair[at.turn]] = float(self.right) / each
        self.right.zero_()
        at.batches, at.turn = 0, 1 - at.turn
        if at.turn == 1:
            return
        winner, loser = sorted(at.pair, key=lambda index: -at.scores[index])
        at.population[loser], at.scores[loser] = self.mutate(at.population[winner]), UNKNOWN
        at.generations += 1
        at.pair = self.contenders() if at.generations < tournaments else []

    def contenders(self) -> list[int]:
        """Return two different members of the population."""
        first = int(self.random(0, self.settings.population, ()))
        return [first, (first + int(self.random(1, self.settings.population, ()))) % self.settings.population]

    def mutate(self, path: Path) -> Path:
        """Return a copy whose module numbers each move, by chance about one in all, by 2 at most."""
        old = torch.tensor(path, device=self.right.device)
        steps = self.random(-FURTHEST_MUTATION, FURTHEST_MUTATION + 1, tuple(old.shape))
        moves = torch.rand(old.shape, generator=self.generator, device=old.device) < 1 / old.numel()
        new: Path = (old + steps * moves).remainder(self.settings.modules).tolist()
        return new

    def random(self, low: int, high: int, shape: tuple[int, ...]) -> Tensor:
        """Return whole numbers from ``low`` up to, but not including, ``high``."""
        return torch.randint(low, high, shape, generator=self.generator, device=self.right.device)

    def loss(self, x: Batch, y: Tensor) -> Tensor:
        """Return the mean NLL of the best path so far."""
        self.net.path = self.evolution.best
        return super().loss(x, y)

    def logits(self, x: Batch, context: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Answer with the task's own path; with the best so far where the task has none yet."""
        self.net.path = self.paths.get(context.index, self.evolution.best)
        if self.task is not None and context.index == self.task.index:
            self.net.path = self.evolution.best
        return super().logits(x, context, samples, generator)

    def end_task(self, data: TaskData) -> None:
        """Freeze the best path, and draw all modules anew that no task uses."""
        self.paths[self.current_task.index] = copy.deepcopy(self.evolution.best)
        self.evolution = Evolution([self.paths[self.current_task.index]], [UNKNOWN])
        for module, is_used in self.bank():
            if not is_used:
                draw_weights(module, self.generator)
        self.refresh()

    def bank(self) -> Iterator[tuple[nn.Module, bool]]:
        """Yield every module, and whether a finished task uses it."""
        used = {(d, index) for path in self.paths.values() for d, indices in enumerate(path) for index in indices}
        for depth, modules in enumerate(self.net.banks):
            yield from ((module, (depth, index) in used) for index, module in enumerate(modules))

    def refresh(self) -> None:
        """Let exactly the modules learn that no finished task uses."""
        for module, is_used in self.bank():
            module.requires_grad_(not is_used)
