"""How a run is described: settings from words, recipes, and the job that makes a run of them.

``--set KEY=VALUE`` and JSON files fill typed dataclasses; a recipe holds the settings chosen for a method on a
benchmark; a ``Job`` is everything that decides a run's result, as plain values.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import torch

import ucb
from ucb import checks
from ucb.checks import find_device, nearest
from ucb.data.streams import Scenario, Stream, benchmark
from ucb.data.streams.benchmarks import find
from ucb.data.streams.folders import folders
from ucb.engine.checkpoint import FolderCheckpoints
from ucb.engine.loop import Run
from ucb.engine.training import Schedule, Training
from ucb.methods import find_method
from ucb.nets import build_net, net_options
from ucb.observer import Observer
from ucb.seeds import derive_seed, generator_for
from ucb.storage import read_json, rename_old_keys

T = TypeVar("T")


def field_types(dataclass: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(dataclass)
    return {field.name: hints[field.name] for field in dataclasses.fields(dataclass)}


def replace_fields(base: T, values: Mapping[str, Any]) -> T:
    """Return a copy of the dataclass ``base`` with some fields set from words or numbers."""
    return dataclasses.replace(base, **parse_values(values, field_types(type(base))))  # type: ignore[type-var]


def parse_values(
    values: Mapping[str, Any], kinds: Mapping[str, Any], unknown: str = "there is no setting"
) -> dict[str, Any]:
    """Return ``values`` in the types that their names have; ``unknown`` begins the sentence about a wrong name."""
    found = {}
    for name, value in rename_old_keys(dict(values)).items():
        if name not in kinds:
            raise ValueError(f"{unknown} {name!r}: {nearest(name, kinds)}")
        found[name] = parse(name, value, kinds[name])
    return found


def parse(name: str, value: Any, kind: Any) -> Any:
    """Return ``value`` as the type that a setting has, if nothing is lost by that."""
    if get_origin(kind) is Literal:
        allowed = get_args(kind)
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
        return value
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if str(value).lower() not in words:
            raise ValueError(f"{name} must be true or false, not {value!r}")
        return words[str(value).lower()]
    if kind == Sequence[int]:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ValueError(f"{name} must be a list of whole numbers, not {value!r}")
        return [parse(name, each, int) for each in value]
    try:
        number = kind(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    rounded = isinstance(value, float) and number != value and value == value
    if number is None or isinstance(value, bool) or rounded:
        what = {int: "a whole number", float: "a number"}.get(kind, str(kind))
        raise ValueError(f"{name} must be {what}, not {value!r}")
    return number


OWN = Path("recipes")
"""The user's own, in the current folder."""


@dataclass(frozen=True)
class Recipe:
    """Chosen settings, and a sentence that says how they were found."""

    training: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    found: str = "defaults"
    grid: dict[str, list[Any]] = field(default_factory=dict)
    """What was tried of each setting."""
    tried: int | None = None
    """How many points were tried in all, before the last search too; early recipes do not say."""


class OwnRecipe(NamedTuple):
    """A recipe of the user's own, and its file."""

    path: Path
    recipe: Recipe


def recipe_for(benchmark: str, method: str) -> Recipe:
    """Return the package's recipe of a method on a benchmark, or an empty one."""
    path = files("ucb") / "recipes" / benchmark / f"{method}.json"
    return Recipe(**rename_old_keys(json.loads(path.read_text()))) if path.is_file() else Recipe()


def own_recipe(benchmark: str, method: str, folder: Path = OWN) -> OwnRecipe | None:
    """Return the user's own recipe of a method on a benchmark, if there is one."""
    path = folder / benchmark / f"{method}.json"
    if not path.is_file():
        return None
    try:
        recipe = Recipe(**rename_old_keys(read_json(path)))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is no recipe: {error}; mend or remove it") from None
    if not (isinstance(recipe.training, dict) and isinstance(recipe.settings, dict)):
        raise ValueError(f"{path} is no recipe: training and settings must be JSON objects; mend or remove it")
    return OwnRecipe(path, recipe)


FOLDERS = "folders"
LATER = ("apart", "task_told")
"""Choices that earlier checkpoints do not name: they had none of them."""


@dataclass(frozen=True)
class Job:
    """Everything that decides a run's result, as plain values."""

    benchmark: str
    method: str
    """Its name or, if it is a class of another's, its path, ``package.module:Class``."""
    seed: int = 0
    tasks: int | None = None
    single_head: bool = False
    apart: bool = field(default=False, kw_only=True)
    """With a single head: an output for each class of each task, also where tasks would share their outputs."""
    task_told: bool = field(default=False, kw_only=True)
    """With a single head: the task is told at test time, and its own outputs alone count."""
    blur: float | None = None
    faces: str | None = None
    data: list[str] = field(default_factory=list)
    """With the benchmark ``folders``: a folder of class folders for each task."""
    net: str | None = None
    """None is the benchmark's own choice."""
    net_options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def __post_init__(self) -> None:
        kinds: dict[str, type] = {"benchmark": str, "method": str, "device": str}
        kinds |= dict.fromkeys(("net_options", "training", "settings"), dict)
        kinds |= dict.fromkeys(LATER, bool)
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be a {kind.__name__}, not {getattr(self, name)!r}")
        checks.count("seed", self.seed, least=0)
        if self.tasks is not None:
            checks.count("tasks", self.tasks)
        if self.blur is not None and not (isinstance(self.blur, int | float) and 0 <= self.blur <= 1):
            raise ValueError(f"blur must be between 0 and 1, not {self.blur!r}")
        if (self.apart or self.task_told) and not self.single_head:
            raise ValueError(
                "apart outputs, and a task told at test time, are choices for a single head: add --single-head"
            )

    def run(self, folder: Path | None = None, observer: Observer | None = None, stream: Stream | None = None) -> Run:
        """Return the run that this job describes; nothing has been learnt yet. ``stream`` stands in for its own."""
        observer = Observer() if observer is None else observer
        kind = find_method(self.method)
        settings = replace_fields(kind.settings_type(), self.settings)
        training = _training(self.training)
        device = find_device(self.device)
        options = parse_values(self.net_options, net_options(self.net_name), f"the net {self.net_name} has no option")
        stream = self.stream() if stream is None else stream
        first = stream.tasks[0].test.first()
        with torch.random.fork_rng():
            torch.manual_seed(derive_seed("weights", self.seed))  # the same for every method
            net = build_net(self.net_name, first.shape[1:], stream.head_sizes, options).to(device)
        method = kind(net, settings, generator_for("noise", self.seed, device=device))
        torch.manual_seed(derive_seed("other", self.seed))
        return Run(
            stream,
            method,
            training,
            seed=self.seed,
            device=device,
            checkpoints=None if folder is None else FolderCheckpoints(folder, observer.noted),
            observer=observer,
            identity=self.identity(),
        )

    def stream(self) -> Stream:
        """Return the tasks to learn."""
        if self.benchmark == FOLDERS:
            if self.blur is not None or self.faces is not None:
                raise ValueError("folders of your own have no blur and no faces to choose: leave these out")
            scenario = Scenario("one", task_known=self.task_told) if self.single_head else Scenario()
            paths = [Path(folder) for folder in self.data]
            if self.tasks is not None and self.tasks > len(paths):
                raise ValueError(f"tasks must be between 1 and {len(paths)}, the number of folders, not {self.tasks}")
            return folders(FOLDERS, paths[: self.tasks], seed=self.seed, scenario=scenario)
        if self.data:
            raise ValueError(f"--data goes with the benchmark {FOLDERS!r}, not with {self.benchmark!r}")
        return benchmark(
            self.benchmark,
            self.seed,
            tasks=self.tasks,
            single_head=self.single_head,
            shared_outputs=False if self.apart else None,
            task_told=self.task_told,
            blur=self.blur,
            faces=self.faces,
        )

    @property
    def net_name(self) -> str:
        """The net's name."""
        return self.net or ("alexnet" if self.benchmark == FOLDERS else find(self.benchmark).net)

    @property
    def method_name(self) -> str:
        """The method's name, under which runs and recipes are kept; ``method`` may be the path of a class."""
        return find_method(self.method).name

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint of this job must agree in: the configuration, and the version that made it."""
        values = {key: value for key, value in dataclasses.asdict(self).items() if value or key not in LATER}
        flat = {key: value for key, value in values.items() if not isinstance(value, dict)}
        return {**flat, **self.net_options, **self.training, **self.settings, "version of ucb": ucb.__version__}


TRAINING_KINDS = {n: k for n, k in (field_types(Schedule) | field_types(Training)).items() if n != "schedule"}
"""What ``Job.training`` may hold, and its types; everything else is a setting of the method."""


def _training(values: dict[str, Any]) -> Training:
    known, names = parse_values(values, TRAINING_KINDS, "training has no setting"), field_types(Schedule)
    schedule = Schedule(**{name: value for name, value in known.items() if name in names})
    return Training(schedule, **{name: value for name, value in known.items() if name not in names})


def list_settings(order: Job) -> dict[str, Any]:
    """Return every setting of the order's training, net and method, and its type."""
    return TRAINING_KINDS | net_options(order.net_name) | field_types(find_method(order.method).settings_type)


def kind_of(order: Job) -> str:
    """Return the name that recipes of such an order are kept under."""
    return order.benchmark if order.blur is None else f"{order.benchmark}-blurred"


def apply_recipe(order: Job, values: Mapping[str, Any], recipe: Recipe | None = None) -> Job:
    """Return the job: what ``order`` says to learn, with the recipe's settings and over them ``values``.

    Without a ``recipe`` it is the one of the method on the benchmark.
    """
    values = parse_values(values, list_settings(order), f"{order.method} has no setting")
    if order.blur is not None and values.get("epochs", 1) != 1:
        raise ValueError("tasks that fade into each other pass by once: leave out --epochs")
    if recipe is None:
        recipe = recipe_for(kind_of(order), order.method_name)
    for_net = net_options(order.net_name)
    parts: dict[str, dict[str, Any]] = {"training": {}, "net_options": {}, "settings": {}}
    for name, value in values.items():
        part = "training" if name in TRAINING_KINDS else "net_options" if name in for_net else "settings"
        parts[part][name] = value
    training, settings = recipe.training | parts["training"], recipe.settings | parts["settings"]
    if order.blur is not None:
        training |= {"epochs": 1}
    return replace(order, net_options=parts["net_options"], training=training, settings=settings)
