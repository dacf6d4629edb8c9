"""The defaults of mini-batches on many features, such as pixels, for which a search would take too long."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cavity.fitting.encoding import fit_scaler, has_common_unit
from cavity.fitting.settings import BATCH_SIZE, MOST_SEARCHED, N_INDUCING, Settings, batch_size_of, leaves_open

Array = NDArray[np.float64]

# How these were chosen: docs/adr/0014-thresholds.md.
ROWS_PER_STEP, STEPS = 20, (2000, 3000)  # the fewest and the most steps
GPU_INDUCING, GPU_BATCH = 500, 1000  # on a GPU, where these cost little more than the usual ones
NEIGHBOR_ROWS, CLEAR = 2000, 0.8  # a sample of rows, and how many of them have the label of the nearest other row


def for_many_features(s: Settings, X: Array, y: NDArray[np.int64], n_rows: int, on_gpu: bool) -> Settings:
    """Return the settings of mini-batches on many features without a search, such as pixels; others as they are.

    Features of one kind get one scale. VI predicts better than SEP where labels are clear, and worse where they are
    noisy: it is used if the nearest other row mostly has the same label.

    Args:
        X, y: some of the rows, which are numbers.
        n_rows: of all rows.
    """
    if X.shape[1] <= MOST_SEARCHED or batch_size_of(s, n_rows) is None or not leaves_open(s):
        return s
    is_alike, (fewest, most) = has_common_unit(X), STEPS
    steps = min(max(n_rows // ROWS_PER_STEP, fewest), most)
    if on_gpu and s.batch_size == "auto" and n_rows > GPU_BATCH:
        s = replace(s, batch_size=GPU_BATCH)  # for as many epochs, so half the steps
    return replace(
        s,
        method="vi" if s.method == "auto" and _agreement_of_neighbors(X, y, is_alike) >= CLEAR else s.method,
        scaling="common" if is_alike and s.scaling == "default" else s.scaling,
        init="kmeans-per-class",
        n_inducing=GPU_INDUCING if on_gpu else N_INDUCING,
        max_epochs=math.ceil(steps * BATCH_SIZE / n_rows),
    )


def _agreement_of_neighbors(X: Array, y: NDArray[np.int64], is_alike: bool) -> float:
    """Return the share of rows that have the label of the nearest other row, in a sample; `is_alike`: of one scale."""
    sample = np.random.default_rng(0).permutation(len(y))[:NEIGHBOR_ROWS]
    X, y = X[sample], y[sample]
    X = fit_scaler("common" if is_alike else "standard", X, np.ones(len(y))).transform(X)
    squares = (X**2).sum(1)
    distances = squares[:, None] + squares - 2.0 * X @ X.T
    np.fill_diagonal(distances, np.inf)
    return float((y[distances.argmin(1)] == y).mean())
