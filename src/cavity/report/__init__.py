"""Reports on fitted classifiers: `examine` computes the findings, `Report` shows them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cavity.metrics import Scores, calibration_error, scores
    from cavity.report.analysis import examine
    from cavity.report.findings import Findings
    from cavity.report.page import Report

__all__ = ["Findings", "Report", "Scores", "calibration_error", "examine", "scores"]

MODULES = {
    "Findings": "cavity.report.findings",
    "Report": "cavity.report.page",
    "Scores": "cavity.metrics",
    "calibration_error": "cavity.metrics",
    "examine": "cavity.report.analysis",
    "scores": "cavity.metrics",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the baselines of `examine` need scikit-learn, tables and palettes do not."""
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
