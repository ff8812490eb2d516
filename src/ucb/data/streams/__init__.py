"""Data sets, tasks, the order they come in, and who may know which task it is."""

from ucb.data.streams.benchmarks import BENCHMARKS, Benchmark, benchmark
from ucb.data.streams.builders import from_arrays, from_datasets, permute_pixels, sequence, split_by_classes
from ucb.data.streams.examples import DatasetExamples, Examples, Preparation, Resident, TensorExamples
from ucb.data.streams.sources import MNIST, Source, load_mnist
from ucb.data.streams.tasks import Scenario, Stream, Task, blur_boundaries

__all__ = [
    "BENCHMARKS",
    "MNIST",
    "Benchmark",
    "DatasetExamples",
    "Examples",
    "Preparation",
    "Resident",
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
