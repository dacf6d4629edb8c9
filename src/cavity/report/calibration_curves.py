"""Confidence against frequency: of the most probable label, and of every class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cavity.metrics import BINS, bins_of, calibration_error
from cavity.report.findings import Array, Reliability
from cavity.report.intervals import wilson

LEAST_ROWS = 10  # of a bin that is drawn


def reliability(y: NDArray[np.int64], log_p: Array, classes: list[str]) -> list[Reliability]:
    """The curve of the most probable label first, then of each class.

    Bins hold equally many rows, ten at least where there are so many, so small data give few bins. The calibration
    error is that of `scores`, over fifteen bins whatever is drawn.
    """
    p = np.exp(log_p)
    top = curve(None, p.max(1), log_p.argmax(1) == y)
    return [top, *(curve(name, p[:, k], y == k) for k, name in enumerate(classes))]


def curve(label: str | None, confidence: Array, has_come_true: NDArray[np.bool_]) -> Reliability:
    """One curve: how sure, and how often that was right."""
    bins = bins_of(confidence, int(np.clip(len(confidence) // LEAST_ROWS, 1, BINS)))
    hits = np.array([has_come_true[places].sum() for places in bins])
    count = np.array([len(places) for places in bins], dtype=np.int64)
    return Reliability(
        label,
        np.array([confidence[places].mean() for places in bins]),
        hits / count,
        *wilson(hits, count),
        count,
        calibration_error(confidence, has_come_true),
    )
