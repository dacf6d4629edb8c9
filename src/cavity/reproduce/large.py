"""What the experiments on large sets share: fits by the clock that are scored on their way, and their curves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.bench.figures import log_ticks, new_figure, plain
from cavity.classifier import GPClassifier
from cavity.records import Record
from cavity.report import scores
from cavity.reproduce.common import DIGITS, Rows, log_times
from cavity.training import Watch

FIRST_LOOK = 0.5  # seconds
EPOCHS = 1_000_000  # more than any budget allows: seconds are the limit
WARM_ROWS = 40
AROUND = 15  # seconds of reading rows, scoring and the last pass

Also = Callable[[NDArray[np.float64], NDArray[Any]], float]


class Point(NamedTuple):
    """Scores of the test rows after some training; `expected` is of VI only, the mean of E[log p(y | f)]."""

    seconds: float
    nll: float
    error: float
    expected: float = math.nan


Curve = list[Point]


def by_clock(seconds: float) -> dict[str, Any]:
    """The arguments of a fit that ends after so much training, and for no other reason."""
    return {"max_seconds": seconds, "max_epochs": EPOCHS, "tol": 0.0}


def fit_cost(seconds: float) -> float:
    """Whole seconds that a fit takes with all that is off its clock."""
    return float(AROUND + math.ceil(seconds))


def warm_up(method: str, device: str) -> None:
    """A tiny fit, so that a device and its libraries start on nobody's clock."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((WARM_ROWS, 2)), np.arange(WARM_ROWS) % 3
    GPClassifier.paper(method, 5, batch_size=WARM_ROWS // 2, max_epochs=2, device=device, random_state=0).fit(X, y)


class Scorer:
    """Scores a model whenever it is shown: [seconds, NLL, error], and what `also` makes of log p and the labels."""

    def __init__(self, X: NDArray[Any], y: NDArray[Any], also: Also | None) -> None:
        self.curve: list[list[float]] = []
        self.spent, self.started = 0.0, 0.0  # the second: when the clock of training did
        self._rows, self._also = (X, y), also

    def __call__(self, model: GPClassifier, trained: float) -> None:
        """Add a point after so many seconds of training."""
        began = time.perf_counter()
        if not self.curve:
            self.started = began - trained
        X, y = self._rows
        log_p = model.predict_log_proba(X)
        found = scores(y, log_p, model.classes_)
        more = [] if self._also is None else [self._also(log_p, y)]
        self.curve.append([round(value, DIGITS) for value in (trained, found.nll, found.error, *more)])
        self.spent += time.perf_counter() - began


def watched_fit(model: GPClassifier, rows: Rows, looks: int, seconds: float, also: Also | None = None) -> Record:
    """A fit and its `curve` on the test rows.

    Looks are evenly spaced in the logarithm of time; one more comes after the first step and one at the end. Scoring is
    off the clock. So is what `fit` does before its first step (k-means, rows to the device) and after its last (a pass
    over all rows for log Z); they are `start_seconds` and `end_seconds`.
    """
    X, y, X_test, y_test = rows
    scorer = Scorer(X_test, y_test, also)
    at = [0.0, *log_times(min(FIRST_LOOK, seconds / 2), seconds, looks)[:-1]]
    began = time.perf_counter()
    model.fit(X, y, watch=Watch(at, scorer))
    start = scorer.started - began
    trained = model.history_[-1]["seconds"]
    end = time.perf_counter() - began - scorer.spent - start - trained
    scorer(model, trained)
    _, nll, error, *_ = scorer.curve[-1]
    times = {"train_seconds": trained, "start_seconds": start, "end_seconds": end}
    return {
        "curve": scorer.curve,
        "nll": nll,
        "error": error,
        **{name: round(value, 3) for name, value in times.items()},
        "epochs": model.n_iter_,
        "events": sum(record["event"] is not None for record in model.history_),
    }


def curve_of(record: Record) -> Curve:
    """The curve of a record."""
    return [Point(*point) for point in record["curve"]]


def best(curve: Curve) -> Point:
    """The point of the least NLL."""
    return min(curve, key=lambda point: point.nll)


def seconds_to(curve: Curve, nll: float, error: float = 1.0) -> float | None:
    """When a look first found NLL and error at or below these.

    >>> seconds_to([Point(0.5, 1.2, 0.5), Point(1.0, 0.9, 0.4), Point(2.0, 0.7, 0.3)], 1.0)
    1.0
    """
    return next((point.seconds for point in curve if point.nll <= nll and point.error <= error), None)


def as_seconds(seconds: float | None) -> str:
    """Three digits of it, or "never".

    >>> as_seconds(12.345), as_seconds(None)
    ('12.3 s', 'never')
    """
    return "never" if seconds is None else f"{seconds:.3g} s"


def at(value: float, point: Point) -> str:
    """A value and when it was found.

    >>> at(0.25, Point(3.0, 0.25, 0.1))
    '0.2500 after 3 s'
    """
    return f"{value:.4f} after {as_seconds(point.seconds)}"


def is_earlier(one: float | None, other: float | None) -> bool:
    """Whether the one comes first; what never comes is last."""
    return one is not None and (other is None or one < other)


def panels(titles: Iterable[str], width: float = 9.0, height: float = 3.9) -> tuple[Any, list[Any]]:
    """A figure and its axes side by side, each against training time."""
    figure, titles = new_figure(width, height), list(titles)
    all_axes = []
    for place, title in enumerate(titles, start=1):
        axes = plain(figure.add_subplot(1, len(titles), place))
        axes.set_xscale("log")
        log_ticks(axes.xaxis)
        axes.set_xlabel("training time / s")
        axes.set_ylabel(title)
        all_axes.append(axes)
    return figure, all_axes
