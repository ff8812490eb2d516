"""Nets so small that a step takes no time."""

from ucb.experiments.bench.steps import MLPSizes, ResNetSizes

MLP = MLPSizes(side=5, classes=3, batch=8, samples=3, examples=100, hidden=7, batches=4)
RESNET = ResNetSizes(side=8, classes=3, batch=4, samples=2, examples=100, width=8)
