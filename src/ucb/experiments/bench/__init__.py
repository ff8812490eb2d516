"""What one training step costs: ours, beside its floors and, where they are given, other libraries."""

from ucb.experiments.bench.results import cpu_result, gpu_result
from ucb.experiments.bench.tables import groups_of, markdown

__all__ = ["cpu_result", "gpu_result", "groups_of", "markdown"]
