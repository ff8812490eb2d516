"""The contract between the engine and a method.

The engine calls a method at a handful of moments: a task begins, a batch is learnt, a task ends, logits are asked for.
A method owns its update, and everything that it remembers is in its state: loaded into a fresh object it continues
exactly. What it cannot do it says in its class, and the engine refuses the scenario with that sentence.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from importlib import import_module
from inspect import get_annotations
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Protocol, get_args

import torch
from torch import Tensor, nn

from ucb import checks
from ucb.bayes import cross_entropy
from ucb.bayes.curvature import class_roots
from ucb.bayes.passes import Batch
from ucb.kernels.triton.steps import clip_gradients
from ucb.nets import HeadedNet

Weights = dict[str, Tensor]
"""Values of weights, or one value a weight of something else, by the weights' names."""


@dataclass(frozen=True)
class TaskInfo:
    """What a learner is told when a task begins: which one, its training size, its head and its outputs there.

    ``batches`` is the number of batches in an epoch. Without ``boundaries`` this is the only beginning that the learner
    is ever told of: tasks then change under its hands, and ``num_examples`` is a stated constant.
    """

    index: int
    num_examples: int
    head: int
    outputs: range
    batches: int = 1
    boundaries: bool = True


class TaskData(Protocol):
    """The present task's data, ready for the net, for as long as the task lasts."""

    def train(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all training examples once, in batches."""

    def validation(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all held-out examples once, in batches."""


class TaskHiddenError(RuntimeError):
    """The scenario hides the task at test time, and somebody asked for it."""


@dataclass(frozen=True)
class EvalContext:
    """What a learner is told of examples that it has to judge: the head to use, and the task only where it is known."""

    head: int
    task: int | None = None

    @property
    def index(self) -> int:
        """The task's index. In a scenario that hides it, the engine never put it here."""
        if self.task is None:
            raise TaskHiddenError("this scenario hides the task at test time: the learner may not know it")
        return self.task


Check = Callable[[str, Any], object]
"""Takes a setting's name and value, and refuses a bad one with a sentence."""


def setting(default: Any, *, grid: Sequence[Any] = (), check: Check | None = None) -> Any:
    """Return a setting's default, with the values that a search tries of it, if any, and the check that it must pass.

    A subclass that gives the setting another default keeps the check.
    """
    return field(default=default, metadata={"grid": tuple(grid), "check": check})


def one_of(words: Any) -> Check:
    """Return the check of a setting that is one of a ``Literal``'s words."""
    return partial(checks.one_of, allowed=get_args(words))


def fraction(name: str, value: float) -> None:
    """Refuse what is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, not {value}")


at_least_0 = partial(checks.count, least=0)


@dataclass(frozen=True)
class Settings:
    """What every method can be set to. A setting's grid and check stand beside its default."""

    lr: float = setting(0.05, grid=(0.03, 0.1, 0.3), check=checks.positive)
    clip: float = setting(0.0, check=checks.not_negative)
    """The largest norm of a step's gradient; 0 does not clip."""
    own_classes: bool = False
    """With one head: let the loss see the outputs of the task's own classes only."""

    def __post_init__(self) -> None:
        kinds = [kind for kind in reversed(type(self).__mro__) if is_dataclass(kind)]
        found = {f.name: f.metadata["check"] for kind in kinds for f in fields(kind) if f.metadata.get("check")}
        for name, check in found.items():
            check(name, getattr(self, name))

    @classmethod
    def grid(cls) -> dict[str, tuple[Any, ...]]:
        """Return what is tried of each setting that is chosen for a benchmark."""
        return {f.name: f.metadata["grid"] for f in fields(cls) if f.metadata.get("grid")}


class Method(ABC):
    """One way of learning tasks one after another.

    A class of your own says its ``name`` and ``summary``, sets ``net`` and ``optimizer``, and defines three things:
    ``add_gradients(x, y)``, ``loss(x, y)`` and ``logits(x, context, samples, generator)``. The batch ``x`` is
    ``[batch, ...]``, ``y`` ``[batch]``, and the logits are ``[samples, batch, outputs]``. What is to happen when a task
    begins or ends stands in ``begin_task`` and ``end_task``. ``BayesianMethod`` has most of it already.

    >>> import torch, ucb
    >>> class Plain(ucb.Method):
    ...     name, summary = "plain", "gradient descent, and nothing against forgetting"
    ...
    ...     def __init__(self, net, settings, generator):
    ...         super().__init__(net, settings, generator)
    ...         self.net, self.optimizer = net, torch.optim.SGD(net.parameters(), settings.lr)
    ...
    ...     def loss(self, x, y):
    ...         return self.nll(self.net(x), y)
    ...
    ...     def add_gradients(self, x, y):
    ...         loss = self.loss(x, y)
    ...         loss.backward()
    ...         return loss.detach()
    ...
    ...     def logits(self, x, context, samples, generator):
    ...         self.net.current = context.head
    ...         return self.net(x)[None]
    >>> ucb.method(Plain).needs_boundaries
    True
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    memory: ClassVar[str] = "nothing"
    """What it keeps beside the net, and how that grows with tasks."""
    settings_type: ClassVar[type[Settings]] = Settings
    """The class of its settings; a class that annotates ``settings`` need not say it again."""
    needs_classes: ClassVar[bool] = False
    """Whether targets must be classes, and not numbers of some likelihood."""
    needs_task: ClassVar[bool] = False
    """Whether it must be told the task at test time."""
    needs_boundaries: ClassVar[bool] = True
    """Whether it must be told when a task ends and the next begins."""
    is_joint: ClassVar[bool] = False
    """Whether it learns all tasks so far together, which needs their data: a bound, not a way of continual learning."""
    can_grow: ClassVar[bool] = True
    """Whether it can be made before it is known how many tasks will come; see :func:`grow`."""
    evaluated_before_end: ClassVar[bool] = False
    """Whether a task's own accuracy R_ii counts as it was before ``end_task`` (UCB-P, before pruning)."""
    remembered: ClassVar[tuple[str, ...]] = ()
    """The attributes that a class adds to the state, by name: numbers, tensors, dicts and lists of these, and objects
    with state_dict and load_state_dict. The state also holds those of its base classes, the net, the optimiser, the
    generator and the task."""
    net: HeadedNet
    optimizer: Any
    """A torch optimiser; each kind of method says which."""
    likelihood: Any = staticmethod(cross_entropy)
    """What outputs say of targets, classes unless told otherwise: a :class:`ucb.bayes.Likelihood`."""
    task: TaskInfo | None = None
    """The task at hand, or the last one once it has ended; None before the first."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "settings" in get_annotations(cls) and "settings_type" not in vars(cls):
            cls.settings_type = get_annotations(cls, eval_str=True)["settings"]

    def __init__(self, net: HeadedNet, settings: Settings, generator: torch.Generator) -> None:
        self.settings = settings
        self.generator = generator

    # A task, in the order in which the engine calls.

    def begin_task(self, task: TaskInfo) -> None:
        """Get ready for a task. Called once for each; without boundaries, for the first alone."""
        self.resume_task(task)
        self.refresh()

    def resume_task(self, task: TaskInfo) -> None:
        """Set up what a task under way needs. Called by ``begin_task``, and before a state is loaded."""
        self.task = task
        self.net.current = task.head

    def learns_when(self, index: int, tasks: int) -> bool:
        """Whether it learns at task ``index`` of ``tasks``. Called after ``begin_task``; False skips the task."""
        return True

    def inspect_data(self, data: TaskData) -> None:  # noqa: B027 (few methods want to)
        """Look at the task's data. Called before its first step, and again when a run resumes in the task.

        Not called without boundaries.
        """

    def phases(self) -> tuple[float, ...]:
        """Return the parts of the task's training, each as a share of the epochs allowed. Called after the above."""
        return (1.0,)

    def begin_phase(self, phase: int, data: TaskData) -> None:  # noqa: B027 (few methods have several)
        """Get ready for phase 1, 2, ... of the task. Called before each but the first, phase 0."""

    def learning_heads(self) -> Iterable[int] | None:
        """Return the heads that a phase may change, if passing by the others saves time; else None.

        Called when a phase begins.
        """
        return None

    def set_rate(self, lr: float) -> None:
        """Set the base learning rate; a weight with a scale of its own keeps that.

        Called before the first step, and whenever the plateau rule lowers the rate.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def learn(self, x: Batch, y: Tensor) -> Tensor:
        """Learn from a batch; return its mean NLL. Called for every batch: the four below are its parts."""
        self.net.train()
        self.optimizer.zero_grad()
        nll = self.add_gradients(x, y)
        self.adjust_gradients()
        self.clip_gradients()
        self.optimizer.step()
        with torch.no_grad():
            self.adjust_weights()
        return nll

    @abstractmethod
    def add_gradients(self, x: Batch, y: Tensor) -> Tensor:
        """Add the gradient of what is minimised to every parameter's; return the batch's mean NLL."""

    def adjust_gradients(self) -> None:  # noqa: B027 (for methods that hold weights or look at gradients)
        """Change the gradients before they are clipped and used."""

    def clip_gradients(self) -> None:
        """Shorten the step's gradient if it is longer than ``clip``."""
        if self.settings.clip > 0:
            clip_gradients(self.net.parameters(), self.settings.clip)

    def adjust_weights(self) -> None:  # noqa: B027 (few methods have a second way to move weights)
        """Change the weights after the optimiser's step; no gradient is recorded."""

    def end_epoch(self, data: TaskData) -> None:  # noqa: B027 (few methods want to)
        """Look back at an epoch. Called after its last step, before held-out data judges it; not without boundaries."""

    @abstractmethod
    def loss(self, x: Batch, y: Tensor) -> Tensor:
        """Return the mean NLL of held-out examples. Called after each epoch, for the plateau rule."""

    def end_task(self, data: TaskData) -> None:  # noqa: B027 (most methods have something to do here, some have not)
        """Keep what the task has taught. Called after its last epoch, with its data for the last time.

        Not called without boundaries.
        """

    @abstractmethod
    def logits(self, x: Batch, context: EvalContext, samples: int, generator: torch.Generator) -> Tensor:
        """Return [samples, rows, outputs]; with 0 samples, one row of logits from the mean weights.

        Called for the test data of all tasks before the first one, of a task before it begins, and of all tasks so
        far when one has ended.
        """

    # What methods use.

    @property
    def current_task(self) -> TaskInfo:
        """The task at hand, in code that runs only once there is one."""
        assert self.task is not None
        return self.task

    def shared(self) -> dict[str, nn.Parameter]:
        """Return the parameters that all tasks share and learn, by name.

        They are the trunk's, and the head's where there is one only; what was frozen when the net came stays so.
        """
        named = self.net.named_parameters()
        return {name: p for name, p in named if self.net.is_shared(name) and p.requires_grad}

    def set_to_eval(self) -> None:
        """Set the net to evaluation mode, if it is not in it: walking over all modules takes time."""
        if self.net.training:
            self.net.eval()

    def own_logits(self, logits: Tensor) -> Tensor:
        """Return the outputs that take part in the loss: with ``own_classes`` those of the task's classes alone."""
        own = self.current_task.outputs
        return logits[:, own.start : own.stop] if self.settings.own_classes else logits

    @property
    def learns_classes(self) -> bool:
        """Whether targets are classes."""
        return self.likelihood is cross_entropy

    def nll(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean NLL of logits."""
        if not self.learns_classes:
            nll: Tensor = self.likelihood(logits, y)
            return nll
        first = self.current_task.outputs.start if self.settings.own_classes else 0
        return cross_entropy(self.own_logits(logits), y - first if first else y)

    def roots(self, logits: Tensor) -> Tensor:
        """Return the roots of the NLL's Hessian by the outputs (:mod:`ucb.bayes.curvature`)."""
        if not self.learns_classes:
            roots: Tensor = self.likelihood.roots(logits)
            return roots
        return class_roots(self.own_logits(logits))

    # Its state, for checkpoints.

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the method remembers."""
        task = self.task and {**vars(self.task), "outputs": [self.task.outputs.start, self.task.outputs.stop]}
        return {
            "net": dict(self.net.state_dict()),
            "generator": self.generator.get_state(),
            "task": task,
            "optimizer": self.optimizer.state_dict(),
            **{name: _save(getattr(self, name)) for name in self._all_remembered()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where the state was taken."""
        self.task = None
        if state["task"] is not None:
            task = {"num_examples" if name == "size" else name: value for name, value in state["task"].items()}
            self.resume_task(TaskInfo(**{**task, "outputs": range(*task["outputs"])}))  # size: the earlier name
        self.generator.set_state(state["generator"])
        self.optimizer.load_state_dict(self.convert_optimizer_state(state["optimizer"]))
        self.net.load_state_dict(state["net"])  # after the optimiser, which may let sigma follow its own state
        for name in self._all_remembered():
            setattr(self, name, _restore(getattr(self, name), state[name], self.generator.device))
        self.refresh()

    def _all_remembered(self) -> list[str]:
        """Return the names that the class and its bases declare, those of the bases first."""
        return [name for kind in reversed(type(self).__mro__) for name in vars(kind).get("remembered", ())]

    def refresh(self) -> None:  # noqa: B027 (for methods that keep such things)
        """Work out what follows from what is remembered, masks say. Called when a task begins or a state was loaded."""

    def convert_optimizer_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the optimiser's state, as any version has saved it, in the form that this one loads."""
        return state


def grow(old: Method, net: HeadedNet) -> Method:
    """Return a method like ``old`` that goes on where it stands, with a net that has heads or outputs more.

    ``net`` is made as the first one was, before anything was learnt. Since the state holds all that a method remembers,
    growing needs no word from it: a fresh one takes the old state over, and keeps what that knows nothing of.
    """
    fresh = type(old)(net, old.settings, old.generator)
    fresh.likelihood = old.likelihood
    fresh.load_state_dict(_fill_up(old.state_dict(), fresh.state_dict()))
    return fresh


def _fill_up(old: Any, fresh: Any) -> Any:
    """Return an old state with what only the fresh one has: entries by name, and the rest of longer tensors."""
    if isinstance(old, dict) and isinstance(fresh, dict):
        whole = {name: _fill_up(value, fresh[name]) if name in fresh else value for name, value in old.items()}
        return whole | {name: value for name, value in fresh.items() if name not in old}
    if isinstance(old, list) and isinstance(fresh, list) and len(old) == len(fresh):
        return [_fill_up(a, b) for a, b in zip(old, fresh, strict=True)]
    if isinstance(old, Tensor) and isinstance(fresh, Tensor) and _is_longer(fresh, old):
        longer = fresh.clone()
        longer[tuple(slice(size) for size in old.shape)] = old
        return longer
    return old


def _is_longer(fresh: Tensor, old: Tensor) -> bool:
    sizes = zip(fresh.shape, old.shape, strict=False)
    return fresh.dim() == old.dim() and fresh.shape != old.shape and all(new >= then for new, then in sizes)


methods_by_name: dict[str, type[Method]] = {}


def method(cls: type[Method]) -> type[Method]:
    """Register a method under its name, so that ``Learner`` and the commands know it; no two have the same name.

    >>> import ucb
    >>> @ucb.method
    ... class MyMethod(ucb.BayesianMethod):
    ...     name, summary = "my-method", "certain weights learn slowly"
    ...
    ...     def make_optimizer(self, groups):
    ...         return ucb.UCB(groups, self.settings.lr)
    ...
    ...     def end_task(self, data):
    ...         self.optimizer.consolidate()
    """
    if not cls.__module__.startswith(f"{__package__}."):  # ours are checked by their tests
        from ucb.methods.outside import check_class

        check_class(cls, cls.__qualname__)
    methods_by_name[cls.name] = cls
    return cls


def _save(value: Any) -> Any:
    """Return a remembered value as a state holds it."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {key: _save(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_save(each) for each in value)
    return dict(value.state_dict()) if hasattr(value, "state_dict") else value


def _restore(present: Any, saved: Any, device: torch.device) -> Any:
    """Return a saved value, copied; an object with a state of its own, or a parameter, stays and takes it over."""
    if isinstance(present, nn.Parameter):
        present.data.copy_(saved)
        return present
    if hasattr(present, "load_state_dict") and saved is not None:
        present.load_state_dict(saved)
        return present
    if isinstance(saved, Tensor):
        return saved.to(device, copy=True)
    if isinstance(saved, dict):
        known = present if isinstance(present, dict) else {}
        return {key: _restore(known.get(key), each, device) for key, each in saved.items()}
    if isinstance(saved, list | tuple):
        fits = isinstance(present, list | tuple) and len(present) == len(saved)
        return type(saved)(_restore(present[i] if fits else None, each, device) for i, each in enumerate(saved))
    return saved


FOLDER = str(Path(__file__).parent)
"""Where the methods are, one file for each of them or for a family."""


def find_method(which: str | type[Method]) -> type[Method]:
    """Return a method: by its name, by the path of a class of another's, ``package.module:Class``, or by the class.

    A class is checked and returned as it is; for a wrong name the nearest right ones are offered.
    """
    own = find_own(which) if isinstance(which, str) else None
    if own is not None:
        return own
    from ucb.methods.outside import find_outside  # a run of a method of ours does without

    return find_outside(which)


def find_own(name: str) -> type[Method] | None:
    """Return the method of that name that is one of ours, or is registered, or None.

    Only its own file is imported, and what that needs: imm_mode.py for ``imm-mode`` or, if there is none, imm.py.
    """
    files, words = {found.name for found in iter_modules([FOLDER])}, name.split("-")
    for length in range(len(words), 0, -1):
        file = "_".join(words[:length])
        if name not in methods_by_name and file in files:
            import_module(f"{__package__}.{file}")
    return methods_by_name.get(name)


def known_methods() -> dict[str, type[Method]]:
    """Return every method of ours, and every one that is registered, by name, which imports every file of this folder.

    What installed packages offer is not among them: ``ucb.methods.outside`` lists that.
    """
    for found in iter_modules([FOLDER]):
        import_module(f"{__package__}.{found.name}")
    return dict(sorted(methods_by_name.items()))
