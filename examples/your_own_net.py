"""Your own net in your own training loop: three lines make it Bayesian, and a fourth protects what it has learnt.

The net learns two tasks on generated data, one after the other, once as it is and once protected:

    python examples/your_own_net.py [--quick]

    without consolidate(): task 1 97.2 %, then 83.1 %; task 2 97.4 %
    with consolidate():    task 1 97.2 %, then 95.9 %; task 2 92.0 %
    of the half of task 2 that it is surer of, 100.0 % are right; of the other half 84.0 %

That has a price: weights that became slow learn the second task more slowly, too. (Without a C compiler the package
draws other noise, and the figures differ by a few points.)
"""

import argparse

import torch
from torch import Tensor, nn

import ucb


class TwoHeads(nn.Module):
    """An ordinary net: layers that both tasks share, and an output layer for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(64, 2), nn.Linear(64, 2)])
        self.task = 0

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the present task, [batch, 2]."""
        logits: Tensor = self.heads[self.task](self.trunk(x))
        return logits


def make_task(task: int, examples: int = 1000) -> tuple[Tensor, Tensor]:
    """Return inputs [examples, 20] and on which side of a plane, the task's own, each of them lies."""
    x = torch.randn(examples, 20)
    return x, (x @ torch.randn(20, generator=torch.Generator().manual_seed(task)) > 0).long()


def learn(protects: bool, epochs: int) -> None:
    """Learn both tasks, and say how well they are known."""
    torch.manual_seed(0)
    net = ucb.to_bayesian(TwoHeads(), init_std_ratio=0.5)  # 1. each weight becomes a Gaussian: mu and sigma
    assert isinstance(net, TwoHeads)  # it is a twin of the same class, and its forward is yours
    optimizer = ucb.UCB(ucb.param_groups(net.trunk, "trunk."), lr=0.3)  # 2. each weight has a rate of its own
    tests, right = [make_task(0), make_task(1)], []
    for task in range(2):
        x, y = make_task(task)
        net.task = task
        net.heads.requires_grad_(False)  # the old head stays as it is
        net.heads[task].requires_grad_(True)
        for group in ucb.param_groups(net.heads[task], f"heads.{task}."):
            optimizer.add_param_group(group)  # a new head begins at the full rate
        objective = ucb.ELBO(num_examples=len(x), temperature=0.01, samples=4, estimator="local")
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                objective.backward(net, x[rows], y[rows])  # 3. instead of loss.backward()
                optimizer.step()
        if protects:
            optimizer.consolidate()  # 4. the task ends: from now on, weights with a small sigma learn slowly
        for net.task in range(task + 1):
            x, y = tests[net.task]
            prediction = ucb.predict(net, x, samples=10)
            right.append(prediction.label == y)
    first, later, second = (f"{100 * each.double().mean():.1f} %" for each in right)
    name = "with consolidate():   " if protects else "without consolidate():"
    print(f"{name} task 1 {first}, then {later}; task 2 {second}")
    if protects:
        surest = prediction.entropy.argsort()  # mutual_information is the part of it that more data could remove
        sure, unsure = (f"{100 * right[-1][half].double().mean():.1f} %" for half in surest.chunk(2))
        print(f"of the half of task 2 that it is surer of, {sure} are right; of the other half {unsure}")


def main() -> None:
    """Learn without and with protection."""
    parser = argparse.ArgumentParser(description="A net of your own, made Bayesian, learns two tasks.")
    parser.add_argument("--quick", action="store_true", help="fewer epochs")
    epochs = 3 if parser.parse_args().quick else 15
    for protects in (False, True):
        learn(protects, epochs)


if __name__ == "__main__":
    main()
