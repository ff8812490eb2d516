"""Reading data of your own: folders of images, tables and arrays become examples of one shape."""

from ucb.waves.sources.examples import Examples, Shape, Skipped, fingerprint
from ucb.waves.sources.reading import labelled, unlabelled

__all__ = ["Examples", "Shape", "Skipped", "fingerprint", "labelled", "unlabelled"]
