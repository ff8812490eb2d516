"""UCB and UCB-P from scratch: the whole experiment in one file of plain PyTorch, to be read from top to bottom.

A net learns five tasks one after another (0 or 1? 2 or 3? ... 8 or 9?) and sees no old data again. Every weight is a
Gaussian, not a number. After a task, UCB lets the weights that are certain learn slowly; UCB-P reserves the weights
that stand out of their noise for the task, and gives the others to the next one. Equations and algorithms are those of
Ebrahimi et al., "Uncertainty-guided Continual Learning with Bayesian Neural Networks", ICLR 2020.

    python examples/ucb_in_one_file.py [--method ucb|ucb-p] [--seed 1] [--quick] [--out FILE]

A run takes about 8 minutes on one core. Mean and standard deviation in percent over seeds 1, 2 and 3, beside those of
the package (results/tables/5split-mnist, seeds 0, 1 and 2; its steps are the same, its noise is not):

              ACC here         BWT here        ACC, package     BWT, package
    ucb       99.57 +- 0.13   -0.15 +- 0.12    99.64 +- 0.05   -0.01 +- 0.07
    ucb-p     99.79 +- 0.02   +0.02 +- 0.03    99.76 +- 0.03   +0.01 +- 0.01

    for method in ucb ucb-p; do for seed in 1 2 3; do
        python examples/ucb_in_one_file.py --method $method --seed $seed --out results/examples/ucb_in_one_file.json
    done; done
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ucb.data.streams import load_mnist  # the digits as they were published: all that is used of the package

# 1. Settings. The package's recipes have the same; they were chosen on held-out data, and test data chose nothing.

HIDDEN, BATCH, SAMPLES = 1200, 64, 10
EPOCHS, PATIENCE, FACTOR, LEAST_RATE = 10, 5, 0.3, 1e-4  # the plateau rule: see learn_task
CLIP = 1.0  # the largest norm of a gradient; with it, a learning rate of 2 is stable
INIT_STD_RATIO = 0.5  # sigma at the start, relative to the weights of its layer


class Settings(NamedTuple):
    """What differs between the two methods: the base learning rate, the factor of the KL term, and the prior."""

    lr: float
    temperature: float
    pi: float
    sigma_1: float
    sigma_2: float
    gain: float = 1.0  # UCB: what sigma is multiplied by to give the factor of a rate
    tolerance: float = 1.0  # UCB-P: the points of held-out accuracy that pruning may cost


SETTINGS = {
    "ucb": Settings(lr=2.0, temperature=1e-5, pi=0.75, sigma_1=math.exp(-1), sigma_2=math.exp(-8), gain=0.5),
    "ucb-p": Settings(lr=1.0, temperature=0.01, pi=0.25, sigma_1=1.0, sigma_2=math.exp(-6)),
}


# 2. The data: 5-Split MNIST. The split is written out here, because it is part of what the figures mean. (In the
# package, ucb.benchmark("mnist-5split") makes the same tasks.)


class Task(NamedTuple):
    """Images [examples, 784] and labels, 0 and 1: to learn from, to choose the epoch and the pruning by, to test on."""

    x: Tensor
    y: Tensor
    x_held_out: Tensor
    y_held_out: Tensor
    x_test: Tensor
    y_test: Tensor


def split_mnist() -> list[Task]:
    """Return the digits in pairs, in ascending order. 15 % of each task's training images are held out."""
    x_train, y_train, x_test, y_test = load_mnist()

    def normalise(x: Tensor) -> Tensor:
        return (x.flatten(1) / 255 - 0.1307) / 0.3081  # mean and standard deviation of MNIST's pixels

    tasks = []
    for pair in range(5):
        train, test = ((y // 2 == pair).nonzero().squeeze(1) for y in (y_train, y_test))
        train = train[torch.randperm(len(train))]
        held_out, train = train.tensor_split([round(0.15 * len(train))])
        rows = ((x_train, y_train, train), (x_train, y_train, held_out), (x_test, y_test, test))
        tasks.append(Task(*(part for x, y, r in rows for part in (normalise(x[r]), y[r] % 2))))
    return tasks


# 3. The net. Instead of a number w, every weight has a posterior q(w) = N(mu, sigma^2), and mu and rho are learnt.


class Gaussian:
    """A tensor of weights, each an independent Gaussian."""

    def __init__(self, mu: Tensor, sigma: float) -> None:
        self.mu = mu.clone().requires_grad_()
        self.rho = torch.full_like(mu, math.log(math.expm1(sigma))).requires_grad_()
        self.rate = torch.ones_like(mu)  # UCB: the factor on mu's learning rate
        self.owner = torch.zeros_like(mu)  # UCB-P: 0 is free, n belongs to the n-th task for good
        self.keep: Tensor | None = None  # UCB-P: a weight is switched off where it is 0

    @property
    def sigma(self) -> Tensor:
        """Sigma = log(1 + exp(rho)): above 0 whatever rho is."""
        return F.softplus(self.rho)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance of every weight; both are 0 where it is switched off."""
        mean, variance = self.mu, self.sigma.square()
        return (mean, variance) if self.keep is None else (mean * self.keep, variance * self.keep)


class Layer:
    """A linear layer of Gaussian weights. The means start where PyTorch starts the weights of an ordinary layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        plain = nn.Linear(inputs, outputs).requires_grad_(False)
        sigma = INIT_STD_RATIO * float(plain.weight.square().mean().sqrt())
        self.gaussians = [Gaussian(plain.weight, sigma), Gaussian(plain.bias, sigma)]

    def __call__(self, x: Tensor, samples: int) -> Tensor:
        """Turn x, [batch, 1 or samples, inputs], into [batch, samples, outputs]; 0 samples use the mean weights.

        We could draw weights, w = mu + sigma * epsilon, and multiply. But a sum of independent Gaussians is a Gaussian:
        so is each output, and we know its mean and its variance. To draw the outputs themselves (local
        reparameterisation, Kingma et al. 2015) takes two products, however many samples the first layer makes. And
        every row of the batch then sees weights of its own, so that the gradient has less noise.
        """
        (weight, weight_variance), (bias, bias_variance) = (g.moments() for g in self.gaussians)
        mean = F.linear(x, weight, bias)
        if samples == 0:
            return mean
        variance = F.linear(x.square(), weight_variance, bias_variance)
        return mean + variance.sqrt() * torch.randn(len(x), samples, mean.shape[-1])


class Net:
    """A trunk that all tasks share, 784-1200 and a ReLU, and an output layer (a head) for each task."""

    def __init__(self, tasks: int) -> None:
        self.trunk = Layer(784, HIDDEN)
        self.heads = [Layer(HIDDEN, 2) for _ in range(tasks)]

    def __call__(self, x: Tensor, task: int, samples: int) -> Tensor:
        """Return logits, [batch, samples, 2], or with 0 samples [batch, 1, 2]."""
        return self.heads[task](torch.relu(self.trunk(x.unsqueeze(1), samples)), samples)

    def learning(self, task: int) -> list[Gaussian]:
        """Return what a task learns: the trunk and its own head. The heads of old tasks never change again."""
        return self.trunk.gaussians + self.heads[task].gaussians


# 4. The objective. We look for the q that is nearest to the true posterior of the weights (Eq. 1): that is the one with
# the least KL(q || prior) - E_q log P(data | w) (Eq. 2). We divide this by the number of training examples, so that a
# batch can stand for all of them. The KL is multiplied by a temperature; the paper has 1, and below 1 we aim at a
# posterior that is colder (narrower) than the true one.


def elbo(net: Net, x: Tensor, y: Tensor, task: int, num_examples: int, s: Settings) -> Tensor:
    """Return the loss of a batch: the negative evidence lower bound, for each example."""
    logits = net(x, task, SAMPLES)
    nll = F.cross_entropy(logits.flatten(0, 1), y.repeat_interleave(SAMPLES))
    kl = torch.stack([kl_divergence(g, s) for g in net.learning(task)]).sum()
    return nll + s.temperature / num_examples * kl


def kl_divergence(g: Gaussian, s: Settings) -> Tensor:
    """Return KL(q || prior) = E_q [log q(w) - log p(w)], summed over a tensor of weights.

    The prior is the mixture p(w) = pi N(0, sigma_1^2) + (1 - pi) N(0, sigma_2^2): a weight may be large, but many are
    almost 0 (Algorithm 1, l_2). E log q is known, -log sigma - 1/2; E log p is not, and one weight sample estimates it
    (Eq. 3). Both contain -log sqrt(2 pi), which we leave out of both.
    """
    w = g.mu + g.sigma * torch.randn(g.mu.shape)
    first = math.log(s.pi / s.sigma_1) - 0.5 * (w / s.sigma_1).square()
    second = math.log((1 - s.pi) / s.sigma_2) - 0.5 * (w / s.sigma_2).square()
    return (-g.sigma.log() - 0.5 - torch.logaddexp(first, second)).sum()


@torch.no_grad()
def descend(loss: Tensor, gaussians: list[Gaussian], lr: float) -> None:
    """Take a step of gradient descent: mu <- mu - alpha_mu * gradient, and rho alike (Algorithm 1).

    Under UCB every mu has a rate of its own, and all rhos have the base rate: the paper found that best (Algorithm 2).
    Under UCB-P both rates are 0 for a weight that belongs to an old task (Algorithm 3).
    """
    gradients = list(torch.autograd.grad(loss, [p for g in gaussians for p in (g.mu, g.rho)]))
    for i, gradient in enumerate(gradients):
        gradients[i] = gradient * (gaussians[i // 2].owner == 0)
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    alpha = lr * (CLIP / (norm + 1e-6)).clamp_max(1)
    for g, by_mu, by_rho in zip(gaussians, gradients[::2], gradients[1::2], strict=True):
        g.mu -= alpha * g.rate * by_mu
        g.rho -= alpha * by_rho


# 5. UCB: when a task ends, certain weights become slow. (How certain are they? Under plain gradient descent sigma stays
# within a percent of where it began, so that these rates are nearly one rate: docs/methods.md compares the two.)


@torch.no_grad()
def slow_down(net: Net, s: Settings) -> None:
    """Set alpha_mu = alpha / Omega (Eq. 4) with the importance Omega = 1 / (gain * sigma) (Eq. 6).

    The rate is never above the base rate. Each task's end sets it anew: Algorithm 2, read literally, divides the last
    rate again each time, and as sigma is small, nothing could be learnt soon.
    """
    for g in net.trunk.gaussians:
        g.rate = (s.gain * g.sigma).clamp_max(1)


# 6. UCB-P: when a task ends, it keeps what it needs, and nobody changes that again.


@torch.no_grad()
def find_important(g: Gaussian, pruned: float) -> Tensor:
    """Rank the free weights by Omega = |mu| / sigma (Eq. 7); mark all but the lowest, a share of ``pruned``."""
    free = (g.owner == 0).flatten().nonzero().squeeze(1)
    order = (g.mu.abs() / g.sigma).flatten()[free].argsort(stable=True)
    important = torch.zeros(g.mu.numel(), dtype=torch.bool)
    important[free[order[round(pruned * len(free)) :]]] = True
    return important.view_as(g.mu)


def prune(net: Net, task: int, data: Task, s: Settings) -> float:
    """Give the important weights to a task, and return the share of the free ones that was pruned.

    The paper does not say how much that is. We take the largest share at which the mean weights lose no more held-out
    accuracy than we tolerate, or one half.
    """
    before = count_right(net, task, data.x_held_out, data.y_held_out, samples=0)
    for percent in range(100, 45, -5):
        masks = [find_important(g, percent / 100) for g in net.trunk.gaussians]
        for g, mask in zip(net.trunk.gaussians, masks, strict=True):
            g.keep = mask | (g.owner > 0)  # weights of earlier tasks take part in all later ones
        lost = before - count_right(net, task, data.x_held_out, data.y_held_out, samples=0)
        if 100 * lost <= s.tolerance * len(data.y_held_out):
            break
    for g, mask in zip(net.trunk.gaussians, masks, strict=True):
        g.owner[mask] = task + 1
    return percent / 100


def use_weights_of(net: Net, task: int | None) -> None:
    """Switch off all weights that belong neither to a task nor to an earlier one; None switches all of them on."""
    for g in net.trunk.gaussians:
        g.keep = None if task is None else (g.owner > 0) & (g.owner <= task + 1)


@torch.no_grad()
def restart_free_weights(net: Net) -> None:
    """Let the weights that belong to no task begin anew, like those of a fresh net."""
    for g, fresh in zip(net.trunk.gaussians, Layer(784, HIDDEN).gaussians, strict=True):
        g.mu[g.owner == 0] = fresh.mu[g.owner == 0]
        g.rho[g.owner == 0] = fresh.rho[g.owner == 0]


# 7. Training: gradient descent until the held-out loss no longer falls.


def learn_task(net: Net, task: int, data: Task, s: Settings, epochs: int) -> None:
    """Learn one task. The rate drops when the held-out loss has not fallen for 5 epochs; the best epoch is kept."""
    rate, best, waited = s.lr, math.inf, 0
    for _ in range(epochs):
        for rows in torch.randperm(len(data.y)).split(BATCH):
            loss = elbo(net, data.x[rows], data.y[rows], task, len(data.y), s)
            descend(loss, net.learning(task), rate)
        held_out_loss, waited = measure_loss(net, task, data.x_held_out, data.y_held_out), waited + 1
        if held_out_loss < best:
            best, waited = held_out_loss, 0
            weights = [(g.mu.detach().clone(), g.rho.detach().clone()) for g in net.learning(task)]
        if waited == PATIENCE:
            rate, waited = rate * FACTOR, 0
        if rate < LEAST_RATE:
            break
    for g, (mu, rho) in zip(net.learning(task), weights, strict=True):
        g.mu, g.rho = mu.requires_grad_(), rho.requires_grad_()


@torch.no_grad()
def measure_loss(net: Net, task: int, x: Tensor, y: Tensor) -> float:
    """Return the mean negative log-likelihood of the labels under the mean weights."""
    return float(F.cross_entropy(net(x, task, samples=0).squeeze(1), y))


@torch.no_grad()
def count_right(net: Net, task: int, x: Tensor, y: Tensor, samples: int = SAMPLES) -> int:
    """Return how many answers are right. A Bayesian net answers with class probabilities, averaged over samples."""
    answers = [net(some, task, samples).softmax(-1).mean(1).argmax(1) for some in x.split(1000)]
    return int((torch.cat(answers) == y).sum())


# 8. The experiment, and what it measures.


def acc_and_bwt(accuracy: list[list[float]]) -> tuple[float, float]:
    """Return ACC, the mean accuracy at the end, and BWT, its mean change since each task was learnt (Eq. 8).

    ``accuracy[t][i]`` is that of task i after task t. A BWT below 0 is forgetting.
    """
    last, learnt = accuracy[-1], [row[-1] for row in accuracy]
    return sum(last) / len(last), sum(now - then for now, then in zip(last, learnt, strict=True)) / len(last)


def run(method: str, seed: int, quick: bool = False) -> dict[str, object]:
    """Learn the tasks one after another; print the accuracy on all so far after each; return the figures."""
    start, s = time.monotonic(), SETTINGS[method]
    torch.manual_seed(seed)
    tasks, epochs = split_mnist(), EPOCHS
    if quick:  # to see that it works
        tasks, epochs = [task._replace(x=task.x[:640], y=task.y[:640]) for task in tasks[:2]], 2
    net, accuracy, pruned = Net(len(tasks)), list[list[float]](), list[float]()

    def percent_right(t: int) -> float:
        return 100 * count_right(net, t, tasks[t].x_test, tasks[t].y_test) / len(tasks[t].y_test)

    for t, data in enumerate(tasks):
        if method == "ucb-p" and t > 0:
            restart_free_weights(net)
        learn_task(net, t, data, s, epochs)
        accuracy.append([percent_right(t)])  # of UCB-P, as in the paper, before anything is pruned
        if method == "ucb":
            slow_down(net, s)
        else:
            pruned.append(prune(net, t, data, s))
        for old in reversed(range(t)):
            use_weights_of(net, old if method == "ucb-p" else None)
            accuracy[t].insert(0, percent_right(old))
        use_weights_of(net, None)
        print(f"after task {t + 1}: " + "  ".join(f"{value:6.2f}" for value in accuracy[t]), flush=True)
    (acc, bwt), seconds = acc_and_bwt(accuracy), time.monotonic() - start
    print(f"{method}, seed {seed}: ACC {acc:.2f}  BWT {bwt:+.2f}  {seconds:.0f} s")
    return {"quick": quick, "acc": acc, "bwt": bwt, "accuracy_matrix": accuracy, "pruned": pruned, "seconds": seconds}


def main() -> None:
    """Run one method with one seed, and with --out add its figures to a JSON file."""
    parser = argparse.ArgumentParser(description="UCB and UCB-P on 5-Split MNIST.")
    parser.add_argument("--method", choices=SETTINGS, default="ucb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="two small tasks, in a few seconds")
    parser.add_argument("--out", type=Path, help="a JSON file; the runs that it holds already stay in it")
    words = parser.parse_args()
    figures = run(words.method, words.seed, words.quick)
    if words.out is not None:
        runs = json.loads(words.out.read_text()) if words.out.exists() else {}
        words.out.parent.mkdir(parents=True, exist_ok=True)
        words.out.write_text(json.dumps({**runs, f"{words.method}-seed{words.seed}": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
