"""Scores of predicted probabilities, their confidence intervals, and calibration.

The report, the plots, the command line and the experiments all compute scores, calibration bins and intervals here.
Labels are encoded as 0 … C−1 and probabilities are (N, C), except in `scores`, which takes labels of any kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

BINS = 15  # of the calibration error
MIN_ROWS_PER_BIN = 10  # of a reliability curve, by default
Z = 1.959964  # normal quantile of a 95 % interval
RESAMPLES = 1000
BLOCK = 2**20  # numbers drawn at a time


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
    """

    name: str | None
    confidence: Array
    accuracy: Array
    low: Array
    high: Array
    rows: Indices
    ece: float
    spread: Indices


class CalibrationCheck(NamedTuple):
    """Whether chance explains a calibration error.

    Attributes:
        ece: the calibration error.
        chance: what 95 % of perfectly calibrated models stay below on rows of the same confidence.
        mean_confidence, accuracy: averages over the rows.
        fault: "overconfident", "underconfident" or "mixed" (right on average only); None if `ece` is at most `chance`.
    """

    ece: float
    chance: float
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

    The error has a Wilson interval. NLL and Brier score have bootstrap intervals, corrected for bias and skewness
    (BCa). The calibration error is biased upward, because chance alone separates confidence and accuracy in every bin,
    and the bootstrap adds to this bias. Its interval is therefore the reverse-percentile one, and it starts at 0 if a
    perfectly calibrated model would often have an error as large.

    If a label has probability 0, the NLL is infinite, and so is the upper end of its interval; the lower end is too,
    unless many resamples miss the row.
    """
    from scipy.special import ndtr

    found, check = scores(y, log_p, np.arange(log_p.shape[1])), check_calibration(y, log_p)
    order = argsort_by_confidence(log_p.max(1))
    y, log_p = y[order], log_p[order]
    is_right, losses = log_p.argmax(1) == y, row_losses(y, log_p)
    gap = np.exp(log_p.max(1)) - is_right
    resampled, rng = [], np.random.default_rng(0)
    for size in _blocks(len(y)):
        rows = np.sort(rng.integers(len(y), size=(size, len(y)), dtype=np.int32), axis=1)
        resampled.append((*(loss[rows].mean(1) for loss in losses), binned_gap(gap[rows])))
    nll, brier, ece = (np.concatenate(part) for part in zip(*resampled, strict=True))
    n_wrong = len(y) - int(is_right.sum())
    beyond = check.ece - check.chance
    low, high = 2 * check.ece - np.quantile(ece, ndtr([Z, -Z]))
    low = 0.0 if beyond <= 0 else low if low > 0 else beyond
    return ScoreIntervals(
        name=name,
        error=Interval(n_wrong / len(y), *(float(end) for end in wilson_interval(n_wrong, len(y)))),
        nll=_bca_interval(found.nll, nll, losses[0]),
        brier=_bca_interval(found.brier, brier, losses[1]),
        ece=Interval(check.ece, min(float(low), check.ece), float(np.clip(high, check.ece, 1.0))),
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


def binned_gap(gap: Array, bins: int = BINS) -> Array:
    """Return calibration errors from confidence − accuracy of rows; the last axis is sorted by confidence."""
    n = gap.shape[-1]
    sizes = [len(part) for part in np.array_split(np.empty(n), min(bins, n))]
    starts = np.cumsum([0, *sizes[:-1]])
    return np.asarray(np.abs(np.add.reduceat(gap, starts, axis=-1)).sum(-1) / n)


def chance_calibration_errors(confidence: Array) -> Array:
    """Simulate the calibration error of perfectly calibrated models on rows of this confidence; sorted."""
    rng, p = np.random.default_rng(1), np.sort(confidence)
    drawn = [binned_gap(p - (rng.random((size, len(p))) < p)) for size in _blocks(len(p))]
    return np.sort(np.concatenate(drawn))


def check_calibration(y: Indices, log_p: Array) -> CalibrationCheck:
    """Compare the calibration error of the most probable label with what chance alone gives."""
    order = argsort_by_confidence(log_p.max(1))
    confidence, is_right = np.exp(log_p.max(1))[order], (log_p.argmax(1) == y)[order]
    ece = float(binned_gap(confidence - is_right))
    chance = float(np.quantile(chance_calibration_errors(confidence), 0.95))
    mean, accuracy = float(confidence.mean()), float(is_right.mean())
    noise = Z * float(np.sqrt((confidence * (1 - confidence)).mean() / len(y)))
    fault = "mixed" if abs(mean - accuracy) <= noise else "overconfident" if mean > accuracy else "underconfident"
    return CalibrationCheck(ece, chance, mean, accuracy, fault if ece > chance else None)


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


def _blocks(n: int) -> Iterator[int]:
    """Numbers of resamples of n rows that are drawn at a time."""
    size = max(1, BLOCK // n)
    yield from (min(size, RESAMPLES - first) for first in range(0, RESAMPLES, size))


def _bca_interval(value: float, resampled: Array, rows: Array) -> Interval:
    """Bootstrap percentiles corrected for bias and skewness; plain percentiles if a row's loss is infinite."""
    from scipy.special import ndtr, ndtri

    levels = ndtr([-Z, Z])
    if np.isfinite(value):
        below = 0.5 * ((resampled < value).mean() + (resampled <= value).mean())
        bias = ndtri(np.clip(below, 1 / (RESAMPLES + 1), RESAMPLES / (RESAMPLES + 1)))
        deviation = rows - rows.mean()
        size = (deviation**2).sum() ** 1.5
        skewness = (deviation**3).sum() / (6 * size) if size > 0 else 0.0
        z = bias + np.array([-Z, Z])
        levels = ndtr(bias + z / np.maximum(1 - skewness * z, 0.1))
    low, high = np.quantile(resampled, levels, method="inverted_cdf")  # no mean of a finite and an infinite value
    return Interval(value, min(float(low), value), max(float(high), value))
