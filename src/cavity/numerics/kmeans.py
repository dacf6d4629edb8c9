"""k-means: k-means++ and a few steps of Lloyd's algorithm, as matrix products.

The result does not depend on the device or the number of threads, but for rounding errors: whatever decides between
centers is computed in double precision, and sums are in the order of the rows.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

# Seeds from a sample of this size, or of all rows if these are fewer, give centers as good as those from 10,000 rows
# (`python -m benchmarks start`).
SEED_ROWS, SEED_ROWS_PER_CENTER = 2_000, 5
LLOYD_STEPS = 5
ROUNDING_ERRORS = 64.0  # relative to what is subtracted: two centers so close together may have changed places


def find_centers(
    X: Float[np.ndarray, "N D"], n: int, rng: np.random.Generator, device: torch.device
) -> Float[np.ndarray, "n D"]:
    """Return n k-means centers of distinct rows, or the rows themselves if there are at most n.

    A cluster that becomes empty keeps its center.
    """
    if n >= len(X):
        return X
    rows = torch.from_numpy(X).to(device)
    origin = rows.mean(0)
    size = (rows - origin).abs().max()
    size = torch.where(size > 0, size, 1.0)
    scaled = (rows - origin).div_(size)
    n_sample, places = max(SEED_ROWS, SEED_ROWS_PER_CENTER * n), np.arange(len(X))
    if len(X) > n_sample:
        places = rng.choice(len(X), n_sample, replace=False)
    sample = torch.from_numpy(places).to(device)
    centers = rows[sample[draw_seeds(scaled[sample], n, rng).to(device)]]
    # On a GPU, products in single precision may be rounded to fewer digits than it has.
    coarse = scaled.float() if device.type == "cpu" else scaled
    for _ in range(LLOYD_STEPS):
        centers = means(rows, nearest(scaled, (centers - origin) / size, coarse), centers)
    found: Array = centers.cpu().numpy()
    return found


def draw_seeds(X: Float[Tensor, "N D"], n: int, rng: np.random.Generator) -> Int[Tensor, "n"]:
    """Draw the positions of n rows by k-means++: a row is drawn by its squared distance to the nearest one so far.

    All distances are computed at once. The draws are made on the CPU, because each depends on the one before.
    """
    products = (X @ X.mT).cpu().numpy()
    squares = products.diagonal().copy()
    chosen, distance = [int(rng.integers(len(X)))], np.full(len(X), np.inf)
    while len(chosen) < n:
        last = chosen[-1]
        distance = np.minimum(distance, np.maximum(squares + squares[last] - 2.0 * products[last], 0.0))
        distance[last] = 0.0
        if (total := distance.sum()) > 0:
            chosen.append(int(rng.choice(len(X), p=distance / total)))
        else:  # all distances are below the rounding error
            chosen.append(int(rng.choice(np.setdiff1d(np.arange(len(X)), chosen))))
    return torch.tensor(chosen)


def nearest(
    X: Float[Tensor, "N D"], centers: Float[Tensor, "M D"], coarse: Float[Tensor, "N D"] | None = None
) -> Int[Tensor, "N"]:
    """Return the position of the center nearest to each row; of several, the first.

    Args:
        coarse: X in a lower precision. Only where this is too coarse to tell the two nearest centers apart are
            distances computed from X itself.
    """
    coarse = X if coarse is None else coarse
    fine, centers_of_coarse = ROUNDING_ERRORS * torch.finfo(X.dtype).eps, centers.to(coarse.dtype)
    error, squares = ROUNDING_ERRORS * torch.finfo(coarse.dtype).eps, centers_of_coarse.square().sum(1)
    # Lower bounds of the squared distances, without the squares of the rows: a far center is as uncertain as it is far.
    least = torch.addmm((1.0 - error) * squares, coarse, centers_of_coarse.mT, alpha=-2.0)
    bound, index = least.topk(min(2, len(centers)), 1, largest=False)
    uncertain = 2.0 * error * (coarse.square().sum(1) + squares[index[:, 0]])
    rows = (~(bound[:, -1] - bound[:, 0] > uncertain)).nonzero().squeeze(1)
    distance = torch.cdist(X[rows], centers, compute_mode="donot_use_mm_for_euclid_dist")
    is_nearest = distance <= (1.0 + fine) * distance.amin(1, keepdim=True)
    place = torch.arange(len(centers), device=X.device)
    return index[:, 0].index_copy(0, rows, torch.where(is_nearest, place, len(centers)).amin(1))


def means(X: Float[Tensor, "N D"], index: Int[Tensor, "N"], centers: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
    """Return the mean of the rows of each cluster; the center of an empty one stays."""
    count = torch.bincount(index, minlength=len(centers))
    order = torch.argsort(index, stable=True)
    # A sum over sorted rows; index_add adds in any order on a GPU.
    total = torch.nn.functional.embedding_bag(order, X, count.cumsum(0) - count, mode="sum")
    return torch.where(count[:, None] > 0, total / count[:, None].clamp(min=1), centers)
