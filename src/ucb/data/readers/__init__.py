"""Reading data of your own: folders of images, tables and arrays become examples of one shape."""

from ucb.data.readers.columns import ColumnKind
from ucb.data.readers.inputs import open_labelled, open_unlabelled
from ucb.data.readers.reader import ExampleReader, Shape, Skipped, fingerprint

__all__ = ["ColumnKind", "ExampleReader", "Shape", "Skipped", "fingerprint", "open_labelled", "open_unlabelled"]
