"""Three regression tasks one after another, with noise that depends on the input: what is kept, and how sure it is.

    python examples/regression_stream.py [--quick]     # about 10 seconds; --quick is to see that it runs

A net gives the mean and the log-variance of y (``HeteroscedasticGaussian``). All tasks share its trunk, and each has a
head of its own. UCB slows down the trunk's certain weights after each task; the second run leaves that out, all else
being equal. No task's data is used again. Printed are, on test data,

- R^2 of every task, after each task. Noise leaves at most .74 to .75 to be explained;
- how the noise that the net expects goes with the true one (the correlation of their logarithms), and how many targets
  lie within the 95 % that it is sure of;
- how much more the net doubts its weights four times as far out as the data reach (the ratio of epistemic variances).

It prints:

    R^2 of each task, with UCB
      after task 1:    0.71
      after task 2:    0.69   0.69
      after task 3:    0.71   0.65   0.74
      task 1: noise correlates by 0.97, 98 % within 95 %, 10 times the doubt far out
      task 2: noise correlates by 0.98, 98 % within 95 %, 7 times the doubt far out
      task 3: noise correlates by 0.98, 98 % within 95 %, 8 times the doubt far out
    R^2 of each task, with one rate for all weights
      after task 1:    0.71
      after task 2:    0.27   0.73
      after task 3:   -0.01   0.49   0.73
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import torch
from torch import Tensor, nn

import ucb
from ucb.bayes import HeteroscedasticGaussian, PredictiveMoments

INPUTS, HIDDEN, TASKS, BATCH = 2, 64, 3, 50
LIKELIHOOD = HeteroscedasticGaussian()


class Data(NamedTuple):
    """Inputs ``[rows, 2]``, targets ``[rows]``, and the standard deviation of the noise in each target."""

    x: Tensor
    y: Tensor
    noise: Tensor


def make_task(task: int, rows: int, generator: torch.Generator) -> Data:
    """Draw data: a wave along a direction of the task's own, and noise that grows along another."""
    of_task = torch.Generator().manual_seed(task)
    wave, growth = nn.functional.normalize(torch.randn(2, INPUTS, generator=of_task))
    x = 2 * torch.rand(rows, INPUTS, generator=generator) - 1
    noise = (-1.5 + 1.5 * x @ growth).exp()
    return Data(x, torch.sin(3 * x @ wave) + noise * torch.randn(rows, generator=generator), noise)


def learn(net: ucb.HeadedNet, optimizer: ucb.UCB, task: int, data: Data, epochs: int) -> None:
    """Train the trunk and a head that is new to the optimiser; afterwards the head rests."""
    net.current = task
    head = net.heads[task].requires_grad_(True)
    for group in ucb.param_groups(head, f"heads.{task}."):
        optimizer.add_param_group(group)
    objective = ucb.ELBO(len(data.x), likelihood=LIKELIHOOD, temperature=0.01, samples=4, estimator="local")
    for _ in range(epochs):
        for rows in torch.randperm(len(data.x)).split(BATCH):
            optimizer.zero_grad()
            objective.backward(net, data.x[rows], data.y[rows])
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    optimizer.remove_param_groups(f"heads.{task}.")
    head.requires_grad_(False)


def predict(net: ucb.HeadedNet, task: int, x: Tensor) -> PredictiveMoments:
    """Answer with the head of a task."""
    with net.using(task):
        return ucb.predict(net, x, samples=20, likelihood=LIKELIHOOD)


def run(train: list[Data], test: list[Data], epochs: int, *, slow_down: bool) -> ucb.HeadedNet:
    """Learn all tasks, and print R^2 on those so far after each."""
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
    plain = ucb.HeadedNet(trunk, HIDDEN, [LIKELIHOOD.outputs_for(data.y) for data in train])
    net = ucb.to_bayesian(plain, init_std_ratio=0.2)
    assert isinstance(net, ucb.HeadedNet)
    net.heads.requires_grad_(False)
    optimizer = ucb.UCB(ucb.param_groups(net.trunk, "trunk."), lr=0.03, momentum=0.9)
    for task, data in enumerate(train):
        learn(net, optimizer, task, data, epochs)
        if slow_down:
            optimizer.consolidate()
        scores = [LIKELIHOOD.score(predict(net, old, test[old].x), test[old].y) for old in range(task + 1)]
        print(f"  after task {task + 1}:", "".join(f"{score:7.2f}" for score in scores))
    return net


def describe_uncertainty(net: ucb.HeadedNet, test: list[Data]) -> None:
    """Print how the net's doubts compare with the truth."""
    for task, data in enumerate(test):
        said = predict(net, task, data.x)
        both = torch.stack([said.aleatoric.squeeze(1).log(), data.noise.log()])
        is_within = (said.mean.squeeze(1) - data.y).abs() < 1.96 * said.std.squeeze(1)
        far = predict(net, task, 4 * data.x).epistemic.mean() / said.epistemic.mean()
        print(f"  task {task + 1}: noise correlates by {both.corrcoef()[0, 1]:.2f},", end=" ")
        print(f"{100 * is_within.double().mean():.0f} % within 95 %, {far:.0f} times the doubt far out")


def main(quick: bool = False) -> None:
    """Learn the stream with UCB, then without its rates."""
    rows, epochs = (100, 2) if quick else (1000, 20)
    generator = torch.Generator().manual_seed(0)
    train, test = ([make_task(task, rows, generator) for task in range(TASKS)] for _ in range(2))
    print("R^2 of each task, with UCB")
    net = run(train, test, epochs, slow_down=True)
    describe_uncertainty(net, test)
    print("R^2 of each task, with one rate for all weights")
    run(train, test, epochs, slow_down=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="learn little, in a second")
    main(**vars(parser.parse_args()))
