"""How good are the probabilities: error, negative log-likelihood, Brier score, calibration error."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavity.calibration import bins_of

BINS = 15


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
