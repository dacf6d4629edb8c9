"""The training curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cavity.report.findings import Course
from cavity.training import describe


def course(history: Sequence[dict[str, Any]]) -> Course:
    """Epochs with an objective, and everything that was noted on the way."""
    risen = [record for record in history if _is_number(record.get("objective"))]
    return Course(
        np.array([record["epoch"] for record in risen], dtype=np.int64),
        np.array([record.get("seconds") or 0.0 for record in risen], dtype=np.float64),  # a stream keeps no time
        np.array([record["objective"] for record in risen], dtype=np.float64),
        [(int(record["epoch"]), describe(record)) for record in history if record.get("event")],
        [record for record in history if record.get("event")],
    )


def is_rising(found: Course, share: float = 0.05) -> bool:
    """Whether the last epochs, ten at most, still brought a good part of all that was gained since the start."""
    values, window = found.objective, min(10, len(found.objective) // 2)
    if window == 0:
        return False
    gained = values.max() - values[0]
    late = values[-window:].mean() - values[-2 * window : -window].mean()
    return bool(gained > 0 and late > share * gained)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
