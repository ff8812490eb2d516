"""Small runs for the tests."""

import torch

from tests.support import tiny_stream
from ucb.engine import Job, Observer, Run, Schedule, Training
from ucb.engine.checkpoint import FolderCheckpoints
from ucb.engine.config import replace_fields
from ucb.methods import known_methods
from ucb.nets import mlp
from ucb.seeds import derive_seed, generator_for


def small_job(epochs=1):
    """Fine-tuning on the first task of 5-Split MNIST, with four units."""
    training = {"epochs": epochs, "checkpoint_every": 20, "eval_samples": 1}
    return Job("mnist-5split", "ord-ft", tasks=1, net_options={"hidden": [4]}, training=training)


def small_run(
    name,
    folder=None,
    stream=None,
    seed=0,
    observer=None,
    epochs=2,
    checkpoint_every=3,
    device="cpu",
    graphs=True,
    precision="tf32",
    **settings,
):
    """A method on a tiny stream; the same arguments give the same run."""
    device = torch.device(device)
    stream = tiny_stream() if stream is None else stream
    kind = known_methods()[name]
    torch.manual_seed(derive_seed("weights", seed))
    net = mlp((8,), stream.head_sizes, [16]).to(device)
    method = kind(net, replace_fields(kind.settings_type(), settings), generator_for("noise", seed, device=device))
    training = Training(
        Schedule(epochs=epochs, patience=1),
        batch_size=32,
        eval_samples=3,
        checkpoint_every=checkpoint_every,
        graphs=graphs,
        precision=precision,
    )
    observer = Observer() if observer is None else observer
    checkpoints = None if folder is None else FolderCheckpoints(folder, observer.noted)
    return Run(stream, method, training, seed=seed, device=device, checkpoints=checkpoints, observer=observer)


def figures(run):
    """Everything a run has found, times aside."""
    judged = [[[accuracy] for accuracy in row] for row in run.progress.rows] + [run.progress.own, run.progress.last]
    return judged, run.progress.before, run.progress.at_start, run.progress.epochs_used, run.progress.steps


def weights(run):
    return {name: value.clone() for name, value in run.method.net.state_dict().items()}
