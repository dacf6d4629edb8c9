"""How good are the probabilities: error, negative log-likelihood, Brier score, calibration error."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS = 15
Places = NDArray[np.int64]


class Scores(NamedTuple):
    """Averages over rows; lower is better.

    Attributes:
        error: share of rows whose most probable label is wrong.
        nll: negative log of the probability of the true label, in nats.
        brier: squared distance of the probabilities from the one-hot label, 0 to 2.
        ece: expected calibration error of the most probable label: how far confidence and accuracy lie apart, over
            bins that hold equally many rows.
    """

    error: float
    nll: float
    brier: float
    ece: float


def scores(y: ArrayLike, log_proba: ArrayLike, classes: ArrayLike) -> Scores:
    """Score log-probabilities (N, C) against labels.

    >>> scores(["a", "b"], np.log([[0.9, 0.1], [0.4, 0.6]]), ["a", "b"]).error
    0.0
    """
    log_p = np.asarray(log_proba, dtype=np.float64)
    truth = np.asarray(y)[:, None] == np.asarray(classes)[None, :]
    if not truth.any(1).all():
        raise ValueError("y holds labels that are not among classes")
    p, is_right = np.exp(log_p), truth[np.arange(len(log_p)), log_p.argmax(1)]
    return Scores(
        error=float(1.0 - is_right.mean()),
        nll=float(-log_p[truth].mean()),
        brier=float(((p - truth) ** 2).sum(1).mean()),
        ece=calibration_error(p.max(1), is_right),
    )


def calibration_error(confidence: NDArray[np.float64], is_right: NDArray[np.bool_], bins: int = BINS) -> float:
    """Mean distance between confidence and accuracy over bins of equally many rows."""
    gaps = [abs((confidence[rows] - is_right[rows]).sum()) for rows in bins_of(confidence, bins)]
    return float(sum(gaps) / len(confidence))


def by_confidence(confidence: NDArray[np.float64]) -> Places:
    """Rows in rising order of confidence; equal ones mixed, else a bin would hold those that were given together."""
    mixed = np.random.default_rng(3).permutation(len(confidence))
    return mixed[np.argsort(confidence[mixed], kind="stable")]


def bins_of(confidence: NDArray[np.float64], count: int, strategy: str = "quantile") -> list[Places]:
    """Rows in bins of rising confidence, as places; bins that hold none are left out.

    Args:
        confidence: probabilities, (N,).
        count: of bins, at most.
        strategy: "quantile" (equally many rows in each) or "uniform" (bins of one width from 0 to 1).

    >>> [places.tolist() for places in bins_of(np.array([0.9, 0.2, 0.8]), 2)]
    [[1, 2], [0]]
    >>> [places.tolist() for places in bins_of(np.array([0.9, 0.2, 0.8]), 2, "uniform")]
    [[1], [0, 2]]
    """
    if strategy not in ("quantile", "uniform"):
        raise ValueError(f"strategy={strategy!r} cannot be used; 'quantile' or 'uniform' may be")
    if strategy == "quantile":
        order = by_confidence(confidence)
        return [places for places in np.array_split(order, min(count, max(len(order), 1))) if len(places)]
    place = np.minimum((confidence * count).astype(np.int64), count - 1)
    return [np.flatnonzero(place == i) for i in np.unique(place)]
