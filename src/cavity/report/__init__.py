"""Scores and what people look at."""

from cavity.metrics import Scores, calibration_error, scores
from cavity.report.examine import examine
from cavity.report.findings import Findings
from cavity.report.result import Report

__all__ = ["Findings", "Report", "Scores", "calibration_error", "examine", "scores"]
