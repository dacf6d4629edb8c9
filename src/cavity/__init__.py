"""Gaussian process classification for many classes and any number of rows, with probabilities you can trust."""

from cavity.estimator import GPClassifier, load
from cavity.version import __version__

__all__ = ["GPClassifier", "__version__", "load"]
