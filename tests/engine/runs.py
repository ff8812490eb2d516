"""Small runs for the tests."""

from ucb.engine import Job, Schedule, Training
from ucb.methods import find_method
from ucb.testing import EVERY, figures, weights
from ucb.testing import small_run as run_of_class

__all__ = ["figures", "small_job", "small_run", "weights"]


def small_job(epochs=1):
    """Fine-tuning on the first task of 5-Split MNIST, with four units."""
    training = {"epochs": epochs, "checkpoint_every": 20, "eval_samples": 1}
    return Job("mnist-5split", "ord-ft", tasks=1, net_options={"hidden": [4]}, training=training)


def small_run(
    name, folder=None, stream=None, *, epochs=2, checkpoint_every=EVERY, graphs=True, precision="tf32", **options
):
    """A method on a tiny stream, at its own rate; the same arguments give the same run."""
    kind = find_method(name)
    training = Training(
        Schedule(epochs=epochs, patience=1),
        batch_size=32,
        eval_samples=3,
        checkpoint_every=checkpoint_every,
        graphs=graphs,
        precision=precision,
    )
    return run_of_class(kind, folder, stream, training=training, **{"lr": kind.settings_type().lr} | options)
