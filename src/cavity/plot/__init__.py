"""Plots of fitted classifiers, as scikit-learn displays: `from_estimator` makes one, `plot` draws it again."""

from cavity.plot.boundary import BoundaryDisplay
from cavity.plot.history import HistoryDisplay
from cavity.plot.relevance import RelevanceDisplay
from cavity.plot.reliability import ReliabilityDisplay

__all__ = ["BoundaryDisplay", "HistoryDisplay", "RelevanceDisplay", "ReliabilityDisplay"]
