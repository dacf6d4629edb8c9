"""Reports on fitted classifiers: `examine` computes the findings, `Report` shows them."""

from cavity.metrics import Scores, calibration_error, scores
from cavity.report.analysis import examine
from cavity.report.findings import Findings
from cavity.report.page import Report

__all__ = ["Findings", "Report", "Scores", "calibration_error", "examine", "scores"]
