"""A method of your own: written, checked against the contract, and compared with fine-tuning on 5-Split MNIST.

    python examples/your_own_method.py           # five tasks, three epochs each: ten seconds
    python examples/your_own_method.py --quick   # two tasks, one epoch each

The same class runs from the command line, in this folder: ucb run mnist-5split --method your_own_method:Anchor
"""

import argparse
from dataclasses import dataclass

import torch

import ucb
from ucb import checks
from ucb.data.streams import Stream
from ucb.methods import Method, Settings, TaskData
from ucb.methods.base import setting
from ucb.methods.ordinary import OrdinaryMethod
from ucb.nets import mlp
from ucb.testing import check_method


@dataclass(frozen=True)
class AnchorSettings(Settings):
    """How strongly the last weights pull. `ucb tune` tries the values of the grid."""

    strength: float = setting(0.1, grid=(0.01, 0.1, 1.0), check=checks.not_negative)


class Anchor(OrdinaryMethod):
    """Adds strength / 2 * ||theta - theta_last||^2 over the weights that tasks share.

    It is EWC with the same importance for every weight.
    """

    name = "anchor"
    summary = "weights are pulled towards those of the last task"
    memory = "one value for every shared weight"
    settings: AnchorSettings
    remembered = ("last",)
    last: dict[str, torch.Tensor] = {}  # noqa: RUF012 (replaced as a whole, never changed)

    def adjust_gradients(self) -> None:
        """Add the gradient of the penalty, strength * (theta - theta_last)."""
        for name, parameter in self.shared().items():
            if name in self.last and parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - self.last[name], alpha=self.settings.strength)

    def end_task(self, data: TaskData) -> None:
        """Keep the weights that the task has led to."""
        self.last = {name: parameter.detach().clone() for name, parameter in self.shared().items()}


def compare(method: str | type[Method], stream: Stream, epochs: int) -> None:
    """Learn the stream, and print ACC, the mean accuracy at the end, and BWT, what later tasks changed of it."""
    torch.manual_seed(0)
    net = mlp((1, 28, 28), stream.head_sizes, [100])
    learner = ucb.Learner(net, stream, method, training=ucb.Training(ucb.Schedule(epochs=epochs)), lr=0.1)
    for task in stream.tasks:
        learner.learn(task)
    name = method if isinstance(method, str) else method.name
    print(f"{name}: ACC {learner.matrix.acc:.2f}   BWT {learner.matrix.bwt:+.2f}")


def main(quick: bool) -> None:
    """Check the method, and compare it with plain fine-tuning."""
    check_method(Anchor)
    print("anchor keeps the promises of a method")
    stream = ucb.benchmark("mnist-5split", tasks=2 if quick else None)
    for method in ("ord-ft", Anchor):
        compare(method, stream, epochs=1 if quick else 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two tasks, one epoch each")
    main(parser.parse_args().quick)
