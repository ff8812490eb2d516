"""Data sets, tasks, the order they come in, and who may know which task it is."""

from ucb.stream.benchmarks import BENCHMARKS, Benchmark, benchmark
from ucb.stream.blurred import blurred
from ucb.stream.builders import from_arrays, from_datasets, permuted, sequence, split_by_classes
from ucb.stream.examples import DatasetExamples, Examples, Resident, TensorExamples
from ucb.stream.mnist import MNIST, load_mnist
from ucb.stream.preparation import Preparation
from ucb.stream.source import Source
from ucb.stream.task import Scenario, Stream, Task

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
    "blurred",
    "from_arrays",
    "from_datasets",
    "load_mnist",
    "permuted",
    "sequence",
    "split_by_classes",
]
