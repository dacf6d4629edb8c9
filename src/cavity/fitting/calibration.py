"""Calibration: the sharpness of the probabilities, one number that is set on held-out rows.

q(u) may be under- or overconfident as a whole. Multiplying every latent mean by one number, the sharpness, corrects
that and keeps the order of the classes in most rows. The best sharpness maximizes the likelihood of held-out rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from cavity.fitting.encoding import Scaler
from cavity.fitting.rows import TrainingRows
from cavity.gp.gaussian import Posterior
from cavity.gp.probabilities import log_p_of, moments

LOG_SD = 0.7  # of a normal prior on the log sharpness: few rows should not say much
LOG_BOUND = 2.0
BLOCK_ELEMENTS = 2**20  # rows times classes
Indices = NDArray[np.int64]


class HeldOut(NamedTuple):
    """The predictions of a model for held-out rows: moments of f, labels, weights, and the likelihood's ε."""

    mean: Float[Tensor, "C N"]
    var: Float[Tensor, "C N"]
    y: Int[Tensor, "N"]
    weight: Float[Tensor, "N"]
    epsilon: float


def folds(y: Indices, count: int, seed: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield training and held-out indices, `count` times; every class is spread evenly over the folds.

    A class that would have no training row left is not held out. Folds that hold out no row are skipped.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % count
    for i in range(count):
        is_held = fold == i
        hold = np.flatnonzero(is_held & np.isin(y, y[~is_held]))
        if len(hold):
            yield np.flatnonzero(~is_held), hold


def predict_held_out(posterior: Posterior, scaler: Scaler, rows: TrainingRows) -> HeldOut:
    """Predict rows that the model has not learned from."""
    mean, var = (part.cpu() for part in moments(posterior, torch.from_numpy(scaler.transform(rows.X))))
    return HeldOut(mean, var, torch.from_numpy(rows.y), torch.from_numpy(rows.weight), posterior.epsilon)


def best_sharpness(parts: Sequence[HeldOut]) -> float:
    """Return the sharpness that maximizes the likelihood of the held-out labels; 1 without such rows."""
    from scipy.optimize import minimize_scalar

    def loss(log_sharpness: float) -> float:
        nll = sum(_nll(part, math.exp(log_sharpness)) for part in parts)
        return nll + 0.5 * (log_sharpness / LOG_SD) ** 2

    found = minimize_scalar(loss, bounds=(-LOG_BOUND, LOG_BOUND), method="bounded", options={"xatol": 1e-3})
    return math.exp(float(found.x)) if found.fun < loss(0.0) else 1.0


def _nll(part: HeldOut, sharpness: float) -> float:
    """Return the negative log-likelihood, in blocks of rows: with many classes the quadrature takes much memory."""
    size, total = max(1, BLOCK_ELEMENTS // len(part.mean)), 0.0
    for first in range(0, len(part.y), size):
        rows = slice(first, first + size)
        log_p = log_p_of(part.mean[:, rows] * sharpness, part.var[:, rows], part.epsilon)
        total -= float((part.weight[rows] * log_p.gather(0, part.y[None, rows])[0]).sum())
    return total
