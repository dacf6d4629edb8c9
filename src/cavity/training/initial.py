"""Initial values of a training run: kernel parameters, noise and inducing points, from the scaled rows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from cavity.data.source import row_hashes
from cavity.gp.prior import KERNEL
from cavity.kernels import Grouped, Kernel
from cavity.kernels.base import log_start
from cavity.numerics.kmeans import find_centers
from cavity.numerics.limits import LEAST_LENGTHSCALE
from cavity.training.parameters import ParametricPrior

Array = NDArray[np.float64]

CPU = torch.device("cpu")

MEDIAN_ROWS = 1000
KMEANS_ROWS = 5_000  # minimum size of the sample for k-means
ROWS_PER_CENTER = 20  # of that sample
SORTED_ROWS = 2_000  # at most; sorting more takes longer than finding equal ones by a hash
BLOCK_ROWS = 1024  # whose squares fit into a cache
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
        precisions = [torch.exp(-2.0 * scale).mT for scale in scales]
        center, found = values["Z"].mean((0, 1)).numpy(), []
        for first in range(0, len(X), BLOCK_ROWS):
            squares = torch.from_numpy(X[first : first + BLOCK_ROWS] - center).square_()
            found += [(squares @ precision).max() for precision in precisions]
        is_fine = not found or float(torch.finfo(dtype).eps * torch.stack(found).max()) <= LARGEST_ERROR
        dtype = dtype if is_fine else torch.float64
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
    device: torch.device = CPU,
) -> Array:
    """Choose inducing points, (C, M, D), from the rows of X; M is at most the number of rows to choose from.

    Args:
        init: "kmeans" (k-means++ of all rows, the same points for every class), "kmeans-per-class" (half of them from
            the rows of the class) or "random" and "paper" (random rows, drawn separately for each class).
        nudge: standard deviation of noise added to the points, unless they are all the rows. At a row, the gradient
            along a feature that hardly varies is zero by symmetry. Without noise, rounding errors would decide where
            the points move, and results would differ between machines.
        given: scaled inducing points to use instead, (C, M, D) or (M, D) for every class.
        device: that computes k-means.
    """
    if given is not None:
        return np.broadcast_to(given, (n_classes, *given.shape[-2:])).copy()
    if init in ("random", "paper"):
        n, n_distinct = min(n_inducing, len(X)), len(X)
        Z = np.stack([X[rng.choice(len(X), n, replace=False)] for _ in range(n_classes)])
    else:
        is_sorted, is_common = len(X) <= SORTED_ROWS, init == "kmeans"
        n_sample = max(KMEANS_ROWS, ROWS_PER_CENTER * n_inducing)
        rows = of_classes = np.arange(len(X))
        if len(X) > n_sample:
            has_others = not is_common and len(X) >= 2 * n_sample
            rows = of_classes = rng.choice(len(X), 2 * n_sample if has_others else n_sample, replace=False)
            if has_others:  # the points of classes come from other rows, so that none occurs twice
                rows, of_classes = rows[::2], rows[1::2]
        distinct = _distinct(X[rows], is_sorted)
        n, n_distinct = min(n_inducing, len(distinct)), len(distinct)
        if is_common:
            Z = np.broadcast_to(find_centers(distinct, n, rng, device), (n_classes, n, X.shape[1])).copy()
        else:
            own_rows = [_distinct(X[of_classes[y[of_classes] == k]], is_sorted) for k in range(n_classes)]
            own = [find_centers(rows, n // 2, rng, device) if n > 1 else rows[:0] for rows in own_rows]
            sizes = sorted({n - len(first) for first in own})
            common = {size: find_centers(distinct, size, rng, device) for size in sizes}
            for k, first in enumerate(own):
                rest = common[n - len(first)]
                if _is_among(rest, first).any():  # choose other common centers
                    rest = find_centers(distinct[~_is_among(distinct, first)], len(rest), rng, device)
                own[k] = np.concatenate([first, rest])
            Z = np.stack(own)
    return Z if n == n_distinct or not nudge else Z + nudge * rng.standard_normal(Z.shape[1:])


def _distinct(X: Array, is_sorted: bool) -> Array:
    """Return the distinct rows, sorted or in the order of X."""
    if is_sorted:
        return np.unique(X, axis=0)
    return X[np.sort(np.unique(row_hashes(X), return_index=True)[1])]


def _is_among(rows: Array, others: Array) -> NDArray[np.bool_]:
    """Return which rows are equal to one of the others."""
    return np.isin(row_hashes(rows), row_hashes(others))
