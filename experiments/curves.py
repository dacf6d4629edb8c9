"""Test scores during training: how they are measured, compared, averaged over fits and drawn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import log_ticks, new_figure, plain
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.metrics import scores
from cavity.training import Watch
from experiments.common import DIGITS, Mean, Split, mean_of, progress

Array = NDArray[np.float64]
Metric = Callable[[Array, NDArray[Any]], float]

FIRST_LOOK = 0.5  # seconds
EPOCHS = 1_000_000  # more than any time budget allows
WARM_UP_ROWS = 40
OVERHEAD = 15  # seconds for reading rows, scoring and the last pass
COLUMN = {"nll": 1, "error": 2}  # of a recorded curve, after the seconds


# --- Fits that are scored during training ---


def time_limit(seconds: float) -> dict[str, Any]:
    """Return the arguments of a fit that only a time limit ends."""
    return {"max_seconds": seconds, "max_epochs": EPOCHS, "tol": 0.0}


def fit_cost(seconds: float) -> float:
    """Estimate the seconds of a fit with all that its clock does not count."""
    return float(OVERHEAD + math.ceil(seconds))


def log_times(first: float, last: float, count: int) -> list[float]:
    """Return times that are evenly spaced on a logarithmic axis."""
    return [round(t, 4) for t in np.geomspace(first, last, count).tolist()]


def look_times(seconds: float, count: int) -> list[float]:
    """Return when to score a fit with a time limit: after its first step, and then evenly in log time."""
    return [0.0, *log_times(min(FIRST_LOOK, seconds / 2), seconds, count)[:-1]]


def warm_up(method: str, device: str) -> None:
    """Make a tiny fit, so that no measured fit pays for the start of a device and its libraries."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((WARM_UP_ROWS, 2)), np.arange(WARM_UP_ROWS) % 3
    GPClassifier.paper(method, 5, batch_size=WARM_UP_ROWS // 2, max_epochs=2, device=device, random_state=0).fit(X, y)


def tracked_fit(model: GPClassifier, rows: Split, at: Sequence[float], metric: Metric | None = None) -> Record:
    """Fit, and score the test rows during training: a `curve` of [seconds, NLL, error].

    A last point comes after training. Scoring does not count as training time. What `fit` does before its first step
    (k-means, moving rows to the device) and after its last (a pass over all rows) does not count either:
    `start_seconds` and `end_seconds` say how long they took.

    Args:
        model: the classifier to fit.
        rows: training and test rows.
        at: seconds of training at which to score the model.
        metric: a fourth value for each point, from log-probabilities and labels.
    """
    X, y, X_test, y_test = rows
    curve: list[list[float]] = []
    scoring = started = 0.0

    def look(shown: GPClassifier, trained: float) -> None:
        nonlocal scoring, started
        began = time.perf_counter()
        if not curve:
            started = began - trained
        log_p = shown.predict_log_proba(X_test)
        found = scores(y_test, log_p, shown.classes_)
        more = [] if metric is None else [metric(log_p, y_test)]
        curve.append([round(value, DIGITS) for value in (trained, found.nll, found.error, *more)])
        scoring += time.perf_counter() - began

    began = time.perf_counter()
    model.fit(X, y, watch=Watch(at, look))
    ended, trained = time.perf_counter(), model.history_[-1]["seconds"]
    start = started - began if curve else 0.0
    times = {"train_seconds": trained, "start_seconds": start, "end_seconds": ended - began - scoring - start - trained}
    look(model, trained)
    return {
        "curve": curve,
        "nll": curve[-1][1],
        "error": curve[-1][2],
        **{name: round(value, 3) for name, value in times.items()},
        **progress(model),
    }


# --- One curve ---


class Point(NamedTuple):
    """Scores of the test rows during training. `expected` is the mean of E[log p(y | f)], for VI only."""

    seconds: float
    nll: float
    error: float
    expected: float = math.nan


Curve = list[Point]


def curve_of(record: Record) -> Curve:
    """Return the curve of a record."""
    return [Point(*point) for point in record["curve"]]


def lowest_nll(curve: Curve) -> Point:
    """Return the point with the lowest NLL."""
    return min(curve, key=lambda point: point.nll)


def seconds_to(curve: Curve, nll: float, error: float = 1.0) -> float | None:
    """Return the time of the first point with NLL and error at or below these, or None.

    >>> seconds_to([Point(0.5, 1.2, 0.5), Point(1.0, 0.9, 0.4), Point(2.0, 0.7, 0.3)], 1.0)
    1.0
    """
    return next((point.seconds for point in curve if point.nll <= nll and point.error <= error), None)


def format_seconds(seconds: float | None) -> str:
    """Format a time with three digits, and None as "never".

    >>> format_seconds(12.345), format_seconds(None)
    ('12.3 s', 'never')
    """
    return "never" if seconds is None else f"{seconds:.3g} s"


def timed(value: float, point: Point) -> str:
    """Format a value and its time.

    >>> timed(0.25, Point(3.0, 0.25, 0.1))
    '0.2500 after 3 s'
    """
    return f"{value:.4f} after {format_seconds(point.seconds)}"


def is_earlier(one: float | None, other: float | None) -> bool:
    """Return whether the first time comes before the second. None means never."""
    return one is not None and (other is None or one < other)


# --- The mean over several fits ---


class MeanCurve(NamedTuple):
    """Mean and standard error of a score over time, NaN until most fits have a first value.

    Until `end`, when the last fit ends, fits that ended earlier count with their last value.
    """

    seconds: Array
    mean: Array
    se: Array
    end: float

    def at(self, seconds: float) -> float:
        """Return the mean at a time."""
        return float(np.interp(np.log(seconds), np.log(self.seconds), self.mean))

    def lowest(self) -> tuple[float, float]:
        """Return the lowest mean and its time."""
        index = int(np.nanargmin(self.mean))
        return float(self.mean[index]), min(float(self.seconds[index]), self.end)

    def first_below(self, level: float) -> float | None:
        """Return the first time at which the mean is at or below a level, or None."""
        below = np.flatnonzero(self.mean <= level)
        return float(self.seconds[below[0]]) if len(below) else None


def time_grid(records: list[Record], count: int = 120) -> Array:
    """Return times from the first point of any curve to the last, evenly spaced in log time."""
    times = [point[0] for record in records for point in record["curve"]]
    return np.geomspace(min(times), max(times), count)


def mean_curve(curves: list[list[list[float]]], column: int, seconds: Array) -> MeanCurve:
    """Average one column of recorded curves whose points lie at different times."""
    values = np.array([interpolate(curve, column, seconds) for curve in curves])
    known = np.isfinite(values)
    means = [
        mean_of(at_time[has]) if has.mean() > 0.5 else Mean(np.nan, np.nan)
        for at_time, has in zip(values.T, known.T, strict=True)
    ]
    mean, se = np.array(means).T
    return MeanCurve(seconds, mean, se, max(curve[-1][0] for curve in curves))


def interpolate(curve: list[list[float]], column: int, seconds: Array) -> Array:
    """Interpolate a curve linearly in log time: NaN before its first point, the last value after its end.

    >>> interpolate([[1.0, 0.8], [100.0, 0.4]], 1, np.array([0.1, 10.0, 1000.0]))
    array([nan, 0.6, 0.4])
    """
    points = np.array(curve)
    return np.interp(np.log(seconds), np.log(points[:, 0]), points[:, column], left=np.nan)


# --- Figures ---


def time_axis(axes: Any, steps: Sequence[float] = (1.0, 2.0, 5.0)) -> Any:
    """Make the x axis of plain axes one of log time."""
    plain(axes).set_xscale("log")
    log_ticks(axes.xaxis, steps)
    return axes


def time_panels(labels: Sequence[str], width: float = 9.0, height: float = 3.9) -> tuple[Any, list[Any]]:
    """Make a figure with one panel for each label of a y axis, side by side, all over training time."""
    figure = new_figure(width, height)
    panels = [time_axis(axes) for axes in figure.subplots(1, len(labels), squeeze=False)[0]]
    for axes, label in zip(panels, labels, strict=True):
        axes.set(xlabel="training time / s", ylabel=label)
    return figure, panels
