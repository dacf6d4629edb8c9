"""Reports on fitted classifiers: `examine` computes the findings, `Report` shows them."""

from cavity.metrics import Scores, calibration_error, scores
from cavity.report.analysis import examine
from cavity.report.drift import DriftReport, examine_drift
from cavity.report.findings import Drift, Findings
from cavity.report.page import Report

__all__ = [
    "Drift",
    "DriftReport",
    "Findings",
    "Report",
    "Scores",
    "calibration_error",
    "examine",
    "examine_drift",
    "scores",
]
