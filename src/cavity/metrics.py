"""Scores of predicted probabilities, their confidence intervals, and calibration.

The report, the plots, the command line and the experiments all compute scores, calibration bins and intervals here.
Labels are encoded as 0 … C−1 and probabilities are (N, C), except in `scores`, which takes labels of any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

BINS = 15  # of the calibration error
MIN_ROWS_PER_BIN = 10  # of a reliability curve, by default
Z = 1.959964  # normal quantile of a 95 % interval
BELOW, ABOVE = 0.04, 0.015  # levels of the tests behind the interval of a calibration error. Most tests are cautious:
# in simulations, the intervals miss the true error in 4 % of cases on average (experiments/coverage).
DRAWS = 500  # simulated for each calibration error that is tested
ROUNDING = 1e-9
THRESHOLD = 1.25  # gap of a bin that counts as shown, in standard deviations of its noise
RARE = 3  # rows with infinite losses, at most, that a repetition could miss


class Scores(NamedTuple):
    """Averages over rows; lower is better.

    Attributes:
        error: share of rows whose most probable label is wrong.
        nll: negative log-probability of the true label, in nats.
        brier: squared distance of the probabilities from the one-hot label, 0 to 2.
        ece: expected calibration error of the most probable label: mean distance between confidence and accuracy, over
            bins with equal numbers of rows.
    """

    error: float
    nll: float
    brier: float
    ece: float


class Interval(NamedTuple):
    """A value with its 95 % confidence interval. An NLL is infinite if a label of probability 0 occurred."""

    value: float
    low: float
    high: float


class ScoreIntervals(NamedTuple):
    """The scores of one model with their intervals; `note` says what a baseline was trained on."""

    name: str
    error: Interval
    nll: Interval
    brier: Interval
    ece: Interval
    note: str = ""


class ReliabilityCurve(NamedTuple):
    """Accuracy against confidence, in bins of increasing confidence.

    Attributes:
        name: of the class or model; None for the most probable label.
        confidence: mean confidence in each bin.
        accuracy: share of the bin's rows for which the prediction came true.
        low, high: 95 % Wilson interval of that share.
        rows: number of rows in each bin.
        ece: expected calibration error over 15 bins with equal numbers of rows, whatever the bins of the curve.
        spread: histogram of the confidence over [0, 1], with as many bins as were asked for.
        interval: 95 % interval of the calibration error, if it was asked for.
    """

    name: str | None
    confidence: Array
    accuracy: Array
    low: Array
    high: Array
    rows: Indices
    ece: float
    spread: Indices
    interval: Interval | None = None


class CalibrationCheck(NamedTuple):
    """Whether the confidence in the most probable label is right.

    Attributes:
        ece: the calibration error, with the interval of `calibration_interval`.
        mean_confidence, accuracy: averages over the rows.
        fault: "overconfident", "underconfident" or "mixed" (right on average only); None if the interval starts at 0,
            because chance alone can explain the error.
    """

    ece: Interval
    mean_confidence: float
    accuracy: float
    fault: str | None


def scores(y: ArrayLike, log_proba: ArrayLike, classes: ArrayLike) -> Scores:
    """Score log-probabilities against labels.

    Args:
        y: labels, (N,).
        log_proba: log-probabilities, (N, C).
        classes: the labels of the columns, (C,).

    Raises:
        ValueError: if a label is not in `classes`.

    >>> scores(["a", "b"], np.log([[0.9, 0.1], [0.4, 0.6]]), ["a", "b"]).error
    0.0
    """
    log_p, truth = np.asarray(log_proba, dtype=np.float64), one_hot(y, classes)
    p, is_right = np.exp(log_p), truth[np.arange(len(log_p)), log_p.argmax(1)]
    return Scores(
        error=float(1.0 - is_right.mean()),
        nll=float(-log_p[truth].mean()),
        brier=float(((p - truth) ** 2).sum(1).mean()),
        ece=calibration_error(p.max(1), is_right),
    )


def one_hot(y: ArrayLike, classes: ArrayLike) -> Mask:
    """Compare labels with classes, (N, C); every label must be in `classes`."""
    labels, names = np.asarray(y), np.asarray(classes)
    truth = labels[:, None] == names[None, :]
    if not truth.any(1).all():
        raise ValueError(f"`y` must contain only labels in classes={names!r}, got {labels[~truth.any(1)][0]!r}.")
    return np.asarray(truth)


def score_intervals(name: str, y: Indices, log_p: Array, note: str = "") -> ScoreIntervals:
    """Score log-probabilities against encoded labels, with a 95 % confidence interval for each score.

    The error has a Wilson interval. NLL and Brier score have t intervals that Hall's transformation corrects for
    skewness. Rows without a single error say little about the losses of errors, so these intervals then extend to the
    mean loss at the largest error that such rows leave possible. The calibration error has the interval of
    `calibration_interval`.

    If a label has probability 0, the NLL is infinite, and so is the upper end of its interval; the lower end is too,
    unless such rows are so few that other rows could have none.
    """
    found, each, top = scores(y, log_p, np.arange(log_p.shape[1])), np.arange(len(y)), log_p.argmax(1)
    is_right, losses = top == y, row_losses(y, log_p)
    reach = [0.0, 0.0]
    if is_right.all():  # the loss of each row if it were wrong, for the largest share of wrong rows that is possible
        p, most_wrong = np.exp(log_p), 1 - 0.025 ** (1 / len(y))
        others = p.copy()
        others[each, top] = 0.0
        others /= np.maximum(others.sum(1, keepdims=True), np.finfo(float).tiny)
        if_wrong = -(others * np.where(p > 0, log_p, 0.0)).sum(1), (p**2).sum(1) + 1 - 2 * (others * p).sum(1)
        reach = [float((loss + most_wrong * (to - loss)).mean()) for loss, to in zip(losses, if_wrong, strict=True)]
    n_wrong = len(y) - int(is_right.sum())
    return ScoreIntervals(
        name=name,
        error=Interval(n_wrong / len(y), *(float(end) for end in wilson_interval(n_wrong, len(y)))),
        nll=_mean_interval(found.nll, losses[0], reach[0]),
        brier=_mean_interval(found.brier, losses[1], reach[1]),
        ece=calibration_interval(np.exp(log_p.max(1)), is_right),
        note=note,
    )


def row_losses(y: Indices, log_p: Array) -> tuple[Array, Array]:
    """Return the NLL and the Brier score of each row."""
    p, each = np.exp(log_p), np.arange(len(y))
    p_true = p[each, y].copy()
    p[each, y] = 0.0
    return -log_p[each, y], (p**2).sum(1) + (1.0 - p_true) ** 2


def wilson_interval(hits: ArrayLike, rows: ArrayLike) -> tuple[Array, Array]:
    """Return both ends of the 95 % interval of a frequency that was `hits` out of `rows`.

    >>> low, high = wilson_interval(5, 10)
    >>> print(f"{low:.3f} {high:.3f}")
    0.237 0.763
    """
    n = np.asarray(rows, dtype=np.float64)
    share = np.asarray(hits, dtype=np.float64) / n
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * np.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2) / (1 + Z**2 / n)
    return np.asarray(np.clip(middle - half, 0.0, share)), np.asarray(np.clip(middle + half, share, 1.0))


def argsort_by_confidence(confidence: Array) -> Indices:
    """Return the order of increasing confidence; ties are shuffled, so that a bin does not hold rows given together."""
    shuffled = np.random.default_rng(3).permutation(len(confidence))
    return shuffled[np.argsort(confidence[shuffled], kind="stable")]


def calibration_bins(confidence: Array, n_bins: int, strategy: str = "quantile") -> list[Indices]:
    """Divide rows into bins of increasing confidence; empty bins are dropped.

    Args:
        confidence: probabilities, (N,).
        n_bins: at most.
        strategy: "quantile" (equal numbers of rows) or "uniform" (equal widths from 0 to 1).

    Returns:
        The indices of the rows in each bin.

    >>> [rows.tolist() for rows in calibration_bins(np.array([0.9, 0.2, 0.8]), 2)]
    [[1, 2], [0]]
    >>> [rows.tolist() for rows in calibration_bins(np.array([0.9, 0.2, 0.8]), 2, "uniform")]
    [[1], [0, 2]]
    """
    if strategy not in ("quantile", "uniform"):
        raise ValueError(f"`strategy` must be 'quantile' or 'uniform', got strategy={strategy!r}.")
    if strategy == "quantile":
        order = argsort_by_confidence(confidence)
        return [rows for rows in np.array_split(order, min(n_bins, max(len(order), 1))) if len(rows)]
    of_row = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    return [np.flatnonzero(of_row == i) for i in np.unique(of_row)]


def calibration_error(confidence: Array, is_right: Mask, bins: int = BINS) -> float:
    """Return the mean distance between confidence and accuracy over bins with equal numbers of rows."""
    gaps = [abs((confidence[rows] - is_right[rows]).sum()) for rows in calibration_bins(confidence, bins)]
    return float(sum(gaps) / len(confidence))


def calibration_interval(confidence: Array, is_right: Mask, bins: int = BINS) -> Interval:
    """Return the calibration error with a 95 % interval of the error that remains without chance.

    In bins of few rows, chance alone separates confidence and accuracy, so the measured error is too large. The
    interval is one of the true error: the mean distance between confidence and the probability to be right, in the same
    bins. It holds the errors that a test does not reject. The test corrects the gap of each bin for chance and compares
    the mean with simulated rows of models that have this error: models that are overconfident or underconfident by the
    same amount everywhere, where an error is hardest to notice, and models that are wrong where these rows show it.

    The interval starts at 0 if a perfectly calibrated model would have such rows in more than 4 % of cases. It includes
    the measured error, and what the rows of a calibrated model typically leave possible: rows that agree with their
    confidence by luck do not rule out more.
    """
    rows = calibration_bins(confidence, bins)
    n = np.array([len(part) for part in rows])
    stated = np.clip([confidence[part].mean() for part in rows], 0.0, 1.0)
    hits = np.array([is_right[part].sum() for part in rows])
    gap = stated - hits / n
    weight, noise = n / n.sum(), np.sqrt(stated * (1 - stated) / n) + np.finfo(float).eps

    def corrected(gap: Array) -> Array:
        """The mean size of gaps; for normal noise, off by at most a third of the noise, where |gap| is by 0.8 of it."""
        z2 = np.minimum((gap / noise) ** 2, 100.0)
        return np.asarray((np.abs(gap) - noise * (1 - z2 / 1.5) * np.exp(-z2 / 2)) @ weight)

    def simulate(accuracy: Array) -> Array:
        """Values of rows with this accuracy in each bin; the same for the same rows."""
        return corrected(stated - np.random.default_rng(hits).binomial(n, accuracy, (DRAWS, len(n))) / n)

    def is_too_small(accuracy: Array) -> bool:
        return bool((simulate(accuracy) >= found - ROUNDING).mean() <= BELOW)

    def is_possible(accuracy: Array) -> bool:
        return bool((simulate(accuracy) <= typical + ROUNDING).mean() > ABOVE)

    def shifted(direction: Array | float, size: float) -> Array:
        return np.clip(stated - size * direction, 0.0, 1.0)

    def least(direction: Array | float) -> float:
        return error(shifted(direction, _last(lambda size: is_too_small(shifted(direction, size)), start)))

    def most(direction: Array | float) -> float:
        return error(shifted(direction, _last(lambda size: is_possible(shifted(direction, size)), start)))

    def error(accuracy: Array) -> float:
        return float(weight @ np.abs(stated - accuracy))

    found, value, low = corrected(gap), error(hits / n), 0.0
    typical, start = np.maximum(found, np.median(simulate(stated))), value + float(weight @ noise)
    high = max(value, most(1.0), most(-1.0))
    if is_too_small(stated):
        shown = np.where(np.abs(gap) > THRESHOLD * noise, gap, 0.0)
        seen = [float(np.sign(weight @ gap)), *([shown / np.abs(shown).max()] if shown.any() else [])]
        low, high = min(value, *map(least, seen)), max(high, *map(most, seen))
    return Interval(value, low, high)


def check_calibration(y: Indices, log_p: Array) -> CalibrationCheck:
    """Check the confidence in the most probable label."""
    return calibration_check(np.exp(log_p.max(1)), log_p.argmax(1) == y)


def calibration_check(confidence: Array, is_right: Mask) -> CalibrationCheck:
    """Check confidence against what came true."""
    ece, mean, accuracy = calibration_interval(confidence, is_right), float(confidence.mean()), float(is_right.mean())
    noise = Z * float(np.sqrt((confidence * (1 - confidence)).mean() / len(confidence)))
    fault = "mixed" if abs(mean - accuracy) <= noise else "overconfident" if mean > accuracy else "underconfident"
    return CalibrationCheck(ece, mean, accuracy, fault if ece.low > 0 else None)


def reliability_curve(
    name: str | None, confidence: Array, came_true: Mask, n_bins: int | None = None, strategy: str = "quantile"
) -> ReliabilityCurve:
    """Compute how often predictions of each confidence come true.

    Args:
        name: of the curve.
        confidence: predicted probabilities, (N,).
        came_true: whether each prediction came true, (N,).
        n_bins: by default at most 15, each with at least ten rows where there are that many.
        strategy: as for `calibration_bins`.
    """
    n_bins = int(np.clip(len(confidence) // MIN_ROWS_PER_BIN, 1, BINS)) if n_bins is None else n_bins
    bins = calibration_bins(confidence, n_bins, strategy)
    hits = np.array([came_true[rows].sum() for rows in bins])
    count = np.array([len(rows) for rows in bins], dtype=np.int64)
    return ReliabilityCurve(
        name,
        np.array([confidence[rows].mean() for rows in bins]),
        hits / count,
        *wilson_interval(hits, count),
        count,
        calibration_error(confidence, came_true),
        np.histogram(confidence, bins=n_bins, range=(0.0, 1.0))[0],
    )


def reliability_curves(y: Indices, log_p: Array, classes: Sequence[str]) -> list[ReliabilityCurve]:
    """Compute the curve of the most probable label, followed by the curve of each class."""
    p = np.exp(log_p)
    top = reliability_curve(None, p.max(1), log_p.argmax(1) == y)
    return [top, *(reliability_curve(name, p[:, k], y == k) for k, name in enumerate(classes))]


def _last(is_true: Callable[[float], bool], start: float) -> float:
    """Return the last number from 0 to 1 up to which a condition is true, within 0.3 %; begin at `start`."""
    low, high = 0.0, min(max(start, ROUNDING), 1.0)
    while is_true(high):
        if high == 1.0:
            return high
        low, high = high, min(2 * high, 1.0)
    while high - low > max(0.003 * high, ROUNDING):
        middle = (low + high) / 2
        low, high = (middle, high) if is_true(middle) else (low, middle)
    return low


def _mean_interval(value: float, losses: Array, reach: float) -> Interval:
    """Correct the t interval of a mean for skewness by Hall's transformation; it extends at least to `reach`."""
    from scipy.special import stdtrit

    finite = losses[np.isfinite(losses)]
    n, is_finite = len(finite), len(finite) == len(losses)
    if len(losses) - n > RARE or n == 0:
        return Interval(value, value, value)
    low = high = mean = float(finite.mean())
    sd = float(finite.std(ddof=1)) if n > 1 else 0.0
    if sd > 0.0:
        skewness = float(((finite - mean) ** 3).mean() / sd**3 / np.sqrt(n))
        t = stdtrit(n - 1, 0.5 + 0.475 * np.array([1, -1])) - skewness / 6
        if abs(skewness) > ROUNDING:
            t = 3 * (np.cbrt(1 + skewness * t) - 1) / skewness
        low, high = (mean - t * sd / np.sqrt(n)).tolist()
    return Interval(value, min(max(low, 0.0), value), max(high, reach, value) if is_finite else np.inf)
