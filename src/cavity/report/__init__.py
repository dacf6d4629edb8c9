"""Scores and what people look at."""

from cavity.report.scores import Scores, calibration_error, scores

__all__ = ["Scores", "calibration_error", "scores"]
