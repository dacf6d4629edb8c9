"""Start values of the inducing points: rows, or centers of them."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

KMEANS_ROWS = 5_000  # at least; more inducing points take more
ROWS_PER_CENTER = 20
LLOYD_STEPS = 5


def choose_inducing(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    n_classes: int,
    n_inducing: int,
    how: str,
    rng: np.random.Generator,
    nudge: float = 0.0,
) -> NDArray[np.float64]:
    """Start values of the inducing points, (C, M, D), from rows of X; M is at most the number of rows to choose from.

    Args:
        how: "kmeans" (k-means++ of all rows, the same for every class), "kmeans-per-class" (half from the rows of the
            class, half from all) or "random" (rows drawn for each class apart, as in the paper).
        nudge: how far to move the points off where the gradient vanishes by symmetry, unless they are all the rows.
            Along a feature that hardly varies, points on the rows balance like pencils on their tips: rounding errors
            would decide where they fall, and every machine would learn something else.
    """
    if how == "random":
        n, n_distinct = min(n_inducing, len(X)), len(X)
        Z = np.stack([X[rng.choice(len(X), n, replace=False)] for _ in range(n_classes)])
    else:
        n_sample = max(KMEANS_ROWS, ROWS_PER_CENTER * n_inducing)
        if len(X) > n_sample:
            sample = rng.choice(len(X), n_sample, replace=False)
            X, y = X[sample], y[sample]
        distinct = np.unique(X, axis=0)
        n, n_distinct = min(n_inducing, len(distinct)), len(distinct)
        Z = _kmeans(distinct, X, y, n_classes, n, how, rng)
    return Z if n == n_distinct or not nudge else Z + nudge * rng.standard_normal(Z.shape[1:])


def _kmeans(
    distinct: NDArray, X: NDArray, y: NDArray, n_classes: int, n: int, how: str, rng: np.random.Generator
) -> NDArray:
    if how == "kmeans":
        return np.broadcast_to(_centers(distinct, n, rng), (n_classes, n, X.shape[1])).copy()
    own_rows = [np.unique(X[y == k], axis=0) for k in range(n_classes)]
    own = [_centers(rows, min(len(rows), n // 2), rng) if len(rows) and n > 1 else rows[:0] for rows in own_rows]
    common = {missing: _centers(distinct, missing, rng) for missing in sorted({n - len(first) for first in own})}
    return np.stack([_with_common(first, common[n - len(first)], distinct, rng) for first in own])


def _with_common(own: NDArray, common: NDArray, distinct: NDArray, rng: np.random.Generator) -> NDArray:
    """Both; other centers in place of the common ones where a row is among both."""
    if _is_among(common, own).any():
        common = _centers(distinct[~_is_among(distinct, own)], len(common), rng)
    return np.concatenate([own, common])


def _is_among(rows: NDArray, others: NDArray) -> NDArray[np.bool_]:
    """Which rows are equal to one of the others."""
    as_one = np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))
    rows, others = (np.ascontiguousarray(part).view(as_one)[:, 0] for part in (rows, others))
    return np.isin(rows, others)


def _centers(distinct: NDArray, n: int, rng: np.random.Generator) -> NDArray:
    """n centers by k-means++ and a few Lloyd steps; the rows themselves when there are no more of them."""
    if n >= len(distinct):
        return distinct
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an emptied cluster keeps its seed, which is what we want
        centers, _ = kmeans2(distinct, _seeds(distinct, n, rng), iter=LLOYD_STEPS, minit="matrix")
    return centers


def _seeds(distinct: NDArray, n: int, rng: np.random.Generator) -> NDArray:
    """Rows drawn one by one with probability proportional to the squared distance from those drawn before.

    scipy's own seeding measures all distances anew for each row: minutes for a few hundred seeds in many dimensions.
    """
    X = distinct - distinct.mean(0)
    size = np.abs(X).max()
    X = X / size if size > 0 else X
    squares = (X**2).sum(1)
    chosen, nearest = [int(rng.integers(len(X)))], np.full(len(X), np.inf)
    while len(chosen) < n:
        last = chosen[-1]
        nearest = np.minimum(nearest, np.maximum(squares + squares[last] - 2.0 * (X @ X[last]), 0.0))
        nearest[last] = 0.0
        chosen.append(_draw(nearest, chosen, rng))
    return distinct[chosen]


def _draw(weight: NDArray, taken: list[int], rng: np.random.Generator) -> int:
    total = weight.sum()
    if total > 0:
        return int(rng.choice(len(weight), p=weight / total))
    return int(rng.choice(np.setdiff1d(np.arange(len(weight)), taken)))  # distances below rounding: any row left
