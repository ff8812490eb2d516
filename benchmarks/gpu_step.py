"""One training step on a GPU: 784-1200-10, batch 64, 10 samples; samples stacked or one by one, eager PyTorch.

python benchmarks/gpu_step.py
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

from ucb.bayes import ELBO, ScaleMixture, to_bayesian
from ucb.optim import UCB, param_groups


def main() -> None:
    device = torch.device("cuda")
    x, y = torch.randn(64, 784, device=device), torch.randint(10, (64,), device=device)
    print(torch.cuda.get_device_name(), torch.__version__)
    for estimator in ("weights", "local", "flipout"):
        for stack in (True, False):
            net = to_bayesian(nn.Sequential(nn.Linear(784, 1200), nn.ReLU(), nn.Linear(1200, 10))).to(device)
            prior_samples = 10 if estimator == "weights" else 1
            elbo = ELBO(
                50_000, ScaleMixture(), samples=10, prior_samples=prior_samples, estimator=estimator, stack=stack
            )  # type: ignore[arg-type]
            optimizer = UCB(param_groups(net), 0.01)
            times = []
            for _ in range(60):
                torch.cuda.synchronize()
                start = time.perf_counter()
                optimizer.zero_grad()
                elbo.backward(net, x, y)
                optimizer.step()
                torch.cuda.synchronize()
                times.append(1000 * (time.perf_counter() - start))
            print(f"{estimator:8} {'stacked' if stack else 'one by one':10} {statistics.median(times[10:]):8.2f} ms")


if __name__ == "__main__":
    main()
