"""Data sets, tasks, the order they come in, and who may know which task it is."""

from ucb.data.streams.benchmarks import (
    BENCHMARKS,
    benchmark,
    from_arrays,
    from_datasets,
    permute_pixels,
    sequence,
    split_by_classes,
)
from ucb.data.streams.sources import Source, load_mnist
from ucb.data.streams.tasks import Examples, Preparation, Scenario, Stream, Task, TensorExamples, blur_boundaries

__all__ = [
    "BENCHMARKS",
    "Examples",
    "Preparation",
    "Scenario",
    "Source",
    "Stream",
    "Task",
    "TensorExamples",
    "benchmark",
    "blur_boundaries",
    "from_arrays",
    "from_datasets",
    "load_mnist",
    "permute_pixels",
    "sequence",
    "split_by_classes",
]
