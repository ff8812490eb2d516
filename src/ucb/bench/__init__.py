"""What one training step costs: ours, beside its floors and other libraries."""

from ucb.bench.on_cpu import cpu_result
from ucb.bench.on_gpu import gpu_result
from ucb.bench.table import groups_of, markdown

__all__ = ["cpu_result", "gpu_result", "groups_of", "markdown"]
