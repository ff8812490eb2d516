"""What a learner's file holds: the run's state, how the learner was made, and which tasks have come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from ucb.data.streams.loaders import AsGiven
from ucb.data.streams.tasks import Preparation, Scenario, Stream, Task
from ucb.engine import checkpoint
from ucb.engine.checkpoint import FolderCheckpoints
from ucb.engine.training import Schedule, Training
from ucb.methods import Method, find_method
from ucb.storage import State, ceilings, read_bytes

if TYPE_CHECKING:
    from ucb.engine.learner import Learner


class LearnerCheckpoints(FolderCheckpoints):
    """Checkpoints in a folder that also say how the learner was made."""

    def __init__(self, learner: Learner, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self.learner = learner

    def save(self, state: State) -> None:
        """Write a new checkpoint."""
        super().save(state | self.learner.describe())


def describe_task(task: Task) -> State:
    """Return what a file tells of a task: nothing of its data."""
    told = {"name": task.name, "classes": list(task.classes), "labels": list(task.labels)}
    return told | {"prepare": _describe_preparation(task.prepare)}


def recall_task(told: State, missing: Any) -> Task:
    """Return a task of which no more is known than a file tells; ``missing`` stands for its data."""
    classes, labels = tuple(told["classes"]), tuple(told["labels"])
    return Task(told["name"], classes, missing, missing, missing, _make_preparation(told["prepare"]), labels)


def _describe_preparation(prepare: Preparation) -> State | None:
    """Return how pixels become inputs, as a file holds it; None leaves them as they are."""
    if isinstance(prepare, AsGiven):
        return None
    return {"mean": list(prepare.mean), "std": list(prepare.std), "permutation": prepare.permutation}


def _make_preparation(told: State | None) -> Preparation:
    if told is None:
        return AsGiven()
    return Preparation(tuple(told["mean"]), tuple(told["std"]), told["permutation"])


def check_file(path: Path, known: dict[str, Any], net: Any, stream: Stream | None, method: Any) -> None:
    """Refuse to go on from a file with what that learner did not have."""
    if net is not None and not isinstance(net, nn.Module):
        raise TypeError(f"a learner needs a torch.nn.Module to learn with, not a {type(net).__name__}")
    if not known:
        return  # an earlier version wrote it, and it says nothing of these
    if method is not None and not isinstance(method, Method) and find_method(method).name != known["method"]:
        raise ValueError(f"{path} is of a learner with {known['method']}, not {find_method(method).name}")
    was_open = known["scenario"] is not None
    if was_open and stream is not None:
        raise ValueError(f"{path} is of a learner whose tasks came one by one: leave the stream out")
    if not was_open and stream is None:
        raise ValueError(f"{path} is of a learner with a stream: give it, too")


def options_of(known: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says of how its learner was made."""
    if not known:
        return {}
    scenario = {} if known["scenario"] is None else {"scenario": Scenario(**known["scenario"])}
    schedule = Schedule(**known["training"].pop("schedule"))
    training = Training(schedule, **known["training"])
    return {**known["settings"], **scenario, "seed": known["seed"], "training": training}


def read_state(path: Path) -> dict[str, Any]:
    """Return what a learner's file holds; one that is damaged, or of another kind, is named."""
    data = read_bytes(path, ceilings.CHECKPOINT)
    try:
        state = checkpoint.unpack(data)
    except checkpoint.OtherFormatError as error:
        raise ValueError(f"{path}: {error}") from None
    except Exception:  # broken bytes may lead to any error
        state = None
    if not isinstance(state, dict) or not {"identity", "method", "progress"} <= state.keys():
        raise OSError(f"{path} is damaged, or no learner's file")
    return state
