"""How far a score may be off: 95 % confidence intervals.

The error has the interval of Wilson. The others draw the rows again and again with replacement: NLL and Brier score,
means over rows, with the corrections for bias and skewness (BCa). A calibration error is too large by nature, since
chance alone moves confidence and accuracy apart in every bin, and larger still in the draws. So its interval is taken
on the other side of the figure, and reaches down to 0 where a model with no fault at all would often show as much.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from cavity.metrics import BINS, by_confidence, scores
from cavity.report.findings import Array, Interval, ScoreLine

Z = 1.959964  # normal quantile of a 95 % interval
DRAWS = 1000
BLOCK = 2**20  # numbers drawn at a time


def wilson(hits: ArrayLike, rows: ArrayLike) -> tuple[Array, Array]:
    """Where a frequency may lie that was met `hits` times in so many rows.

    >>> low, high = wilson(5, 10)
    >>> print(f"{low:.3f} {high:.3f}")
    0.237 0.763
    """
    n = np.asarray(rows, dtype=np.float64)
    share = np.asarray(hits, dtype=np.float64) / n
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    reach = Z * np.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2) / (1 + Z**2 / n)
    return np.asarray(np.clip(middle - reach, 0.0, share)), np.asarray(np.clip(middle + reach, share, 1.0))


def score_line(name: str, y: NDArray[np.int64], log_p: Array, note: str = "") -> ScoreLine:
    """The scores of log-probabilities (N, C) against labels 0 … C−1, each with its interval.

    Where a label was held to be impossible the NLL is infinite; so is the end of its interval, and its start too unless
    many draws miss the row.
    """
    found, order = scores(y, log_p, np.arange(log_p.shape[1])), by_confidence(log_p.max(1))
    y, log_p = y[order], log_p[order]
    confidence, is_right = np.exp(log_p.max(1)), log_p.argmax(1) == y
    gap, losses = confidence - is_right, row_losses(y, log_p)
    drawn = [(*(loss[rows].mean(1) for loss in losses), mean_gap(gap[rows])) for rows in _draws(len(y))]
    nll, brier, ece = (np.concatenate(part) for part in zip(*drawn, strict=True))
    return ScoreLine(
        name=name,
        error=_share(len(y) - int(is_right.sum()), len(y)),
        nll=_corrected(found.nll, nll, losses[0]),
        brier=_corrected(found.brier, brier, losses[1]),
        ece=_mirrored(float(mean_gap(gap)), ece, by_chance(confidence)),
        note=note,
    )


def row_losses(y: NDArray[np.int64], log_p: Array) -> tuple[Array, Array]:
    """What each row adds to the NLL and to the Brier score."""
    p, each = np.exp(log_p), np.arange(len(y))
    p_true = p[each, y].copy()
    p[each, y] = 0.0
    return -log_p[each, y], (p**2).sum(1) + (1.0 - p_true) ** 2


def mean_gap(gap: Array, bins: int = BINS) -> Array:
    """Calibration errors from confidence − accuracy of rows in rising order of confidence, which is the last axis."""
    n = gap.shape[-1]
    sizes = [len(part) for part in np.array_split(np.empty(n), min(bins, n))]
    starts = np.cumsum([0, *sizes[:-1]])
    return np.asarray(np.abs(np.add.reduceat(gap, starts, axis=-1)).sum(-1) / n)


def by_chance(confidence: Array) -> Array:
    """Calibration errors that models with no fault show on rows of this confidence; sorted."""
    rng, p = np.random.default_rng(1), np.sort(confidence)
    drawn = [mean_gap(p - (rng.random((size, len(p))) < p)) for size in _blocks(len(p))]
    return np.sort(np.concatenate(drawn))


def _share(hits: int, rows: int) -> Interval:
    low, high = wilson(hits, rows)
    return Interval(hits / rows, float(low), float(high))


def _draws(n: int) -> Iterator[NDArray[np.int32]]:
    """Rows drawn with replacement, in rising order, a block of draws at a time."""
    rng = np.random.default_rng(0)
    for size in _blocks(n):
        yield np.sort(rng.integers(n, size=(size, n), dtype=np.int32), axis=1)


def _blocks(n: int) -> Iterator[int]:
    size = max(1, BLOCK // n)
    yield from (min(size, DRAWS - first) for first in range(0, DRAWS, size))


def _corrected(value: float, drawn: Array, rows: Array) -> Interval:
    """Percentiles, moved for bias and skewness; as they are where a row's loss is infinite."""
    levels = _levels(value, drawn, rows) if np.isfinite(value) else ndtr([-Z, Z])
    low, high = np.quantile(drawn, levels, method="inverted_cdf")  # no mean of a finite and an infinite one
    return Interval(value, min(float(low), value), max(float(high), value))


def _levels(value: float, drawn: Array, rows: Array) -> Array:
    below = 0.5 * ((drawn < value).mean() + (drawn <= value).mean())
    bias = ndtri(np.clip(below, 1 / (DRAWS + 1), DRAWS / (DRAWS + 1)))
    deviation = rows - rows.mean()
    size = (deviation**2).sum() ** 1.5
    skewness = (deviation**3).sum() / (6 * size) if size > 0 else 0.0
    z = bias + np.array([-Z, Z])
    return np.asarray(ndtr(bias + z / np.maximum(1 - skewness * z, 0.1)))


def _mirrored(value: float, drawn: Array, chance: Array) -> Interval:
    """Above 0 just where the figure is beyond chance."""
    low, high = 2 * value - np.quantile(drawn, ndtr([Z, -Z]))
    beyond = value - np.quantile(chance, 0.95)
    low = 0.0 if beyond <= 0 else low if low > 0 else beyond
    return Interval(value, min(float(low), value), float(np.clip(high, value, 1.0)))
