"""Pictures of a fitted classifier, as scikit-learn's displays: made by `from_estimator`, drawn again by `plot`."""

from cavity.plot.boundary import BoundaryDisplay
from cavity.plot.history import HistoryDisplay
from cavity.plot.relevance import RelevanceDisplay
from cavity.plot.reliability import ReliabilityDisplay

__all__ = ["BoundaryDisplay", "HistoryDisplay", "RelevanceDisplay", "ReliabilityDisplay"]
