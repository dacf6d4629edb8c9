"""Scores and what people look at."""

from cavity.report.examine import examine
from cavity.report.findings import Findings
from cavity.report.result import Report
from cavity.report.scores import Scores, calibration_error, scores

__all__ = ["Findings", "Report", "Scores", "calibration_error", "examine", "scores"]
