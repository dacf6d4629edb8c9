"""Initial values of a training run: kernel parameters, noise and inducing points, from the scaled rows."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import pdist

from cavity.gp.prior import KERNEL
from cavity.kernels import Grouped, Kernel
from cavity.kernels.base import log_start
from cavity.numerics.limits import LEAST_LENGTHSCALE
from cavity.training.parameters import ParametricPrior

Array = NDArray[np.float64]

MEDIAN_ROWS = 1000
KMEANS_ROWS = 5_000  # minimum size of the sample for k-means
ROWS_PER_CENTER = 20  # of that sample
LLOYD_STEPS = 5
LARGEST_ERROR = 1e-4  # of a squared distance, in units of the length-scale


def initial_prior(
    kernel: Kernel,
    X: Array,
    n_classes: int,
    Z: Array,
    noise: ArrayLike,
    learned: tuple[bool, bool],
    shared: tuple[bool, bool],
    lengthscale: float,
    device: torch.device,
    dtype: torch.dtype,
) -> ParametricPrior:
    """Return the prior at its initial values.

    Args:
        Z: inducing points, (C, M, D).
        learned: whether the kernel (with the noise) and the inducing points are learned.
        shared: whether all classes share the kernel (with the noise) and the inducing points.
        lengthscale: used if the kernel has none.
        dtype: of the distances; float64 is used instead of float32 if float32 is too coarse for X.
    """
    n_kernels = 1 if shared[0] else n_classes
    params = kernel.start(n_kernels, X.shape[1], lengthscale)
    values = {KERNEL + name: value for name, value in params.items()}
    values["log_noise"] = log_start("noise", noise, 1.0, (n_kernels,))
    learned_names = tuple(values) if learned[0] else ()
    values["Z"] = torch.tensor(Z[:1] if shared[1] else Z)
    if dtype != torch.float64:  # r² is a difference of squares, so its error grows with the most distant row
        params = kernel.expand(params) if isinstance(kernel, Grouped) else params
        scales = [value for name, value in params.items() if name.endswith("log_lengthscale")]
        squares = torch.from_numpy(X - values["Z"].mean((0, 1)).numpy()).square_()
        largest = max((float((squares @ torch.exp(-2.0 * scale).mT).max()) for scale in scales), default=0.0)
        dtype = dtype if torch.finfo(dtype).eps * largest <= LARGEST_ERROR else torch.float64
    values = {name: value.to(device) for name, value in values.items()}
    return ParametricPrior(kernel, values, learned_names + (("Z",) if learned[1] else ()), n_classes, dtype)


def median_distance(X: Array, rng: np.random.Generator, metric: str = "euclidean") -> float:
    """Return the median distance between rows, from at most a thousand of them; 1 if all are equal."""
    if len(X) > MEDIAN_ROWS:
        X = X[rng.choice(len(X), MEDIAN_ROWS, replace=False)]
    size = np.abs(X).max()
    distances = pdist(X / size, metric) * size if len(X) > 1 and size > 0 else np.zeros(1)
    return max(float(np.median(distances)) or float(distances.max()) or 1.0, LEAST_LENGTHSCALE)


# --- Inducing points ---


def initial_inducing_points(
    X: Array,
    y: NDArray[np.int64],
    n_classes: int,
    n_inducing: int,
    init: str,
    rng: np.random.Generator,
    nudge: float = 0.0,
    given: Array | None = None,
) -> Array:
    """Choose inducing points, (C, M, D), from the rows of X; M is at most the number of rows to choose from.

    Args:
        init: "kmeans" (k-means++ of all rows, the same points for every class), "kmeans-per-class" (half of them from
            the rows of the class) or "random" and "paper" (random rows, drawn separately for each class).
        nudge: standard deviation of noise added to the points, unless they are all the rows. At a row, the gradient
            along a feature that hardly varies is zero by symmetry. Without noise, rounding errors would decide where
            the points move, and results would differ between machines.
        given: scaled inducing points to use instead, (C, M, D) or (M, D) for every class.
    """
    if given is not None:
        return np.broadcast_to(given, (n_classes, *given.shape[-2:])).copy()
    if init in ("random", "paper"):
        n, n_distinct = min(n_inducing, len(X)), len(X)
        Z = np.stack([X[rng.choice(len(X), n, replace=False)] for _ in range(n_classes)])
    else:
        n_sample = max(KMEANS_ROWS, ROWS_PER_CENTER * n_inducing)
        if len(X) > n_sample:
            sample = rng.choice(len(X), n_sample, replace=False)
            X, y = X[sample], y[sample]
        distinct = np.unique(X, axis=0)
        n, n_distinct = min(n_inducing, len(distinct)), len(distinct)
        if init == "kmeans":
            Z = np.broadcast_to(_centers(distinct, n, rng), (n_classes, n, X.shape[1])).copy()
        else:
            own_rows = [np.unique(X[y == k], axis=0) for k in range(n_classes)]
            own = [_centers(rows, min(len(rows), n // 2), rng) if n > 1 else rows[:0] for rows in own_rows]
            common = {size: _centers(distinct, size, rng) for size in sorted({n - len(first) for first in own})}
            for k, first in enumerate(own):
                rest = common[n - len(first)]
                if _is_among(rest, first).any():  # choose other common centers
                    rest = _centers(distinct[~_is_among(distinct, first)], len(rest), rng)
                own[k] = np.concatenate([first, rest])
            Z = np.stack(own)
    return Z if n == n_distinct or not nudge else Z + nudge * rng.standard_normal(Z.shape[1:])


def _is_among(rows: Array, others: Array) -> NDArray[np.bool_]:
    """Return which rows are equal to one of the others."""
    known = {other.tobytes() for other in others}
    return np.array([row.tobytes() in known for row in rows], dtype=bool)


def _centers(distinct: Array, n: int, rng: np.random.Generator) -> Array:
    """Return n centers from k-means++ and a few Lloyd steps, or the rows themselves if there are at most n.

    SciPy's own seeding recomputes all distances for each seed: minutes for a few hundred seeds in many dimensions.
    """
    if n >= len(distinct):
        return distinct
    X = distinct - distinct.mean(0)
    size = np.abs(X).max()
    X = X / size if size > 0 else X
    squares = (X**2).sum(1)
    chosen, nearest = [int(rng.integers(len(X)))], np.full(len(X), np.inf)
    while len(chosen) < n:
        last = chosen[-1]
        nearest = np.minimum(nearest, np.maximum(squares + squares[last] - 2.0 * (X @ X[last]), 0.0))
        nearest[last] = 0.0
        if (total := nearest.sum()) > 0:
            chosen.append(int(rng.choice(len(X), p=nearest / total)))
        else:  # all distances are below the rounding error
            chosen.append(int(rng.choice(np.setdiff1d(np.arange(len(X)), chosen))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an emptied cluster keeps its seed, which is what we want
        centers, _ = kmeans2(distinct, distinct[chosen], iter=LLOYD_STEPS, minit="matrix")
    return np.asarray(centers)
