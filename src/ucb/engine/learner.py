"""The engine for a program of one's own: a net, a method, and tasks one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ucb.bayes.predict import Prediction, from_logits
from ucb.checks import find_device
from ucb.data.streams.tasks import Stream, Task
from ucb.engine import checkpoint
from ucb.engine.config import replace_fields
from ucb.engine.loop import Run
from ucb.engine.result import TaskMetrics
from ucb.engine.training import Training
from ucb.methods import EvalContext, find_method
from ucb.nets import HeadedNet
from ucb.observer import Observer
from ucb.seeds import generator_for
from ucb.storage import ceilings, read_bytes, write_atomically


class Learner:
    """Learns the tasks of a stream with a method; ``settings`` are the method's own (``lr``, ``samples``, ...).

    - ``net``: a :class:`ucb.nets.HeadedNet` with ``stream.head_sizes``; a Bayesian method makes its Bayesian twin.
    - ``stream``: tasks from ``benchmark``, ``from_arrays`` or ``from_datasets``.
    - ``method``: a name of ``ucb list methods``, or of a class of your own under ``@ucb.method``.
    - ``seed``, ``device``, ``training``: the randomness, cpu or cuda, and how to train.

    >>> import torch, ucb
    >>> x, y = torch.randn(200, 4), torch.arange(200) % 2
    >>> stream = ucb.from_arrays("mine", {"first": (x, y, x, y), "second": (-x, y, -x, y)})
    >>> net = ucb.HeadedNet(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), 8, stream.head_sizes)
    >>> learner = ucb.Learner(net, stream, "ucb", training=ucb.Training(ucb.Schedule(epochs=1)), samples=2)
    >>> [len(learner.learn(task)) for task in stream.tasks]  # each time, all tasks so far are judged
    [1, 2]
    >>> learner.predict(x, task=0).probabilities.shape
    torch.Size([200, 2])
    """

    def __init__(
        self,
        net: HeadedNet,
        stream: Stream,
        method: str = "ucb",
        *,
        seed: int = 0,
        device: str = "cpu",
        training: Training | None = None,
        observer: Observer | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(net, HeadedNet):
            raise TypeError(
                f"a learner needs a head for each task, and {type(net).__name__} has none: "
                "give it HeadedNet(trunk, features, stream.head_sizes)"
            )
        kind, where = find_method(method), find_device(device)
        chosen = replace_fields(kind.settings_type(), settings)
        self.run = Run(
            stream,
            kind(net.to(where), chosen, generator_for("noise", seed, device=where)),
            Training() if training is None else training,
            seed=seed,
            device=where,
            observer=observer,
            identity={"stream": stream.name, "method": method, "seed": seed, **settings},
        )

    def learn(self, task: Task, *, old_tasks: bool = True) -> list[TaskMetrics]:
        """Learn the stream's next task; return how well all tasks so far are known.

        Without ``old_tasks`` only the new one is judged, which takes as long for the thousandth as for the first; NaN
        stands for what is not known of the others.
        """
        done, tasks = self.run.progress.task, self.run.stream.tasks
        if done == len(tasks) or task is not tasks[done]:
            wanted = f"next is {tasks[done].name!r}" if done < len(tasks) else "all are learnt"
            raise ValueError(f"tasks come in the stream's order, and {task.name!r} is not due: {wanted}")
        return self.run.learn_task(old_tasks=old_tasks)

    def predict(self, x: Tensor, task: int | None = None, samples: int = 10) -> Prediction:
        """Judge inputs as the stream stores them; the task's index is needed only where the scenario tells it."""
        stream, device = self.run.stream, self.run.device
        if stream.scenario.task_known and task is None:
            raise ValueError("in this scenario the task is known: say its index")
        if task is not None and not 0 <= task < len(stream):
            first, *others = (f"{index} ({each.name!r})" for index, each in enumerate(stream.tasks))
            known = f"tasks are {first} to {others[-1]}" if others else f"only task is {first}"
            raise ValueError(f"there is no task {task}: the stream's {known}")
        asked = EvalContext((task or 0) if stream.scenario.heads == "many" else 0, task)
        inputs = stream.tasks[task or 0].prepare(x.to(device))
        logits = self.run.method.logits(inputs, asked, samples, generator_for("predict", device=device))
        if task is not None:
            own = stream.outputs_of(task)
            logits = logits[..., own.start : own.stop]
        return from_logits(logits)

    def save(self, path: str | Path) -> None:
        """Write everything the learner knows to one file, whole or not at all."""
        write_atomically(Path(path), checkpoint.pack(self.run.state_dict(), sealed=True))

    def load(self, path: str | Path) -> None:
        """Go on from a file that a learner like this one wrote."""
        self.run.load_state_dict(_read_state(Path(path)))


def _read_state(path: Path) -> dict[str, Any]:
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
