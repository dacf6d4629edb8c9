"""Scores along training, averaged over fits whose points lie at different times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.records import Record
from cavity.reproduce.common import Mean, mean_of

Array = NDArray[np.float64]
Curve = list[list[float]]

PLACE = {"nll": 1, "error": 2}  # in a point of a curve, after the seconds


class Course(NamedTuple):
    """Mean and standard error of a score at every moment, NaN before most fits have a first value.

    `end` is when the last fit has ended; until then those that ended earlier count with their last value.
    """

    seconds: Array
    mean: Array
    se: Array
    end: float

    def at(self, seconds: float) -> float:
        """The mean then."""
        return float(np.interp(np.log(seconds), np.log(self.seconds), self.mean))

    def lowest(self) -> tuple[float, float]:
        """The lowest mean, and its seconds."""
        place = int(np.nanargmin(self.mean))
        return float(self.mean[place]), min(float(self.seconds[place]), self.end)

    def first_below(self, level: float) -> float | None:
        """Seconds until the mean is at or below a level, if it ever is."""
        below = np.flatnonzero(self.mean <= level)
        return float(self.seconds[below[0]]) if len(below) else None


def moments(records: list[Record], count: int = 120) -> Array:
    """Seconds, evenly spaced in their logarithm, from the first point of any curve to the last."""
    times = [point[0] for record in records for point in record["curve"]]
    return np.geomspace(min(times), max(times), count)


def course(curves: list[Curve], place: int, seconds: Array) -> Course:
    """The mean over several fits of what stands at a place of their points."""
    values = np.array([along(curve, place, seconds) for curve in curves])
    known = np.isfinite(values)
    means = [
        mean_of(column[has]) if has.mean() > 0.5 else Mean(np.nan, np.nan)
        for column, has in zip(values.T, known.T, strict=True)
    ]
    mean, se = np.array(means).T
    return Course(seconds, mean, se, max(curve[-1][0] for curve in curves))


def along(curve: Curve, place: int, seconds: Array) -> Array:
    """One fit's value at each moment: linear in log time, NaN before its first point, the last one after its end.

    >>> along([[1.0, 0.8], [100.0, 0.4]], 1, np.array([0.1, 10.0, 1000.0]))
    array([nan, 0.6, 0.4])
    """
    points = np.array(curve)
    return np.interp(np.log(seconds), np.log(points[:, 0]), points[:, place], left=np.nan)
