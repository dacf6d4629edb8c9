"""Gaussian process classification for many classes and any number of rows, with probabilities you can trust."""

from cavity.estimator import GPClassifier

__all__ = ["GPClassifier"]
__version__ = "0.1.0"
