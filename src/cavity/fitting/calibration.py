"""How sharp the probabilities should be: one number, found on rows that the model has not seen.

q(u) may be too timid or too bold as a whole. Where inducing points are few it is timid: what they do not explain of f
counts as noise. Multiplying every mean of f by one number, the sharpness, mends that and keeps the order of the classes
in most rows. It is the number under which rows held out of cross-fitting are most probable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from cavity.gp.gaussian import Posterior
from cavity.gp.probabilities import log_p_of, moments

LOG_SD = 0.7  # of a normal prior on the log sharpness: few rows should not say much
LOG_BOUND = 2.0
BLOCK = 2**20  # numbers: rows times classes
Places = NDArray[np.int64]


@runtime_checkable
class Labeled(Protocol):
    """Rows with labels 0 … C−1 and weights."""

    @property
    def y(self) -> Places:
        """Labels."""

    @property
    def weight(self) -> NDArray[np.float64]:
        """Weights."""


class HeldOut(NamedTuple):
    """What a model says of rows it has not seen: moments of f, labels, weights, and the likelihood's ε."""

    mean: Float[Tensor, "C N"]
    var: Float[Tensor, "C N"]
    y: Int[Tensor, "N"]
    weight: Float[Tensor, "N"]
    epsilon: float


def folds(y: Places, count: int, seed: int) -> Iterator[tuple[Places, Places]]:
    """Rows to learn from and rows held out, `count` times; every class is spread evenly over the folds.

    Where a class has no row left to learn from, its rows are not held out either; folds that hold out none are left
    out.
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


def held_out(posterior: Posterior, X: Float[Tensor, "N D"], rows: Labeled) -> HeldOut:
    """What the model says of these rows, whose scaled features are X."""
    mean, var = (part.cpu() for part in moments(posterior, X))
    return HeldOut(mean, var, torch.from_numpy(rows.y), torch.from_numpy(rows.weight), posterior.epsilon)


def best_sharpness(parts: Sequence[HeldOut]) -> float:
    """The sharpness under which the labels of the held-out rows are most probable; 1 with no such rows."""

    def surprise(log_sharpness: float) -> float:
        total = sum(_surprise(part, math.exp(log_sharpness)) for part in parts)
        return total + 0.5 * (log_sharpness / LOG_SD) ** 2

    found = minimize_scalar(surprise, bounds=(-LOG_BOUND, LOG_BOUND), method="bounded", options={"xatol": 1e-3})
    return math.exp(float(found.x)) if found.fun < surprise(0.0) else 1.0


def _surprise(part: HeldOut, sharpness: float) -> float:
    """In blocks of rows: with many classes a quadrature of all at once is large."""
    size, total = max(1, BLOCK // len(part.mean)), 0.0
    for mean, var, y, weight in zip(
        part.mean.split(size, 1), part.var.split(size, 1), part.y.split(size), part.weight.split(size), strict=True
    ):
        log_p = log_p_of(mean * sharpness, var, part.epsilon)
        total -= float((weight * log_p.gather(0, y[None])[0]).sum())
    return total
