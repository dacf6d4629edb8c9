"""Real data with rows held out for scoring, and one start for every competitor."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from cavity.bench.problems import Start
from cavity.datasets import load
from cavity.fitting.settings import BATCH_START

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

TASKS = ("satellite", "mnist", "digits")
KMEANS_ROWS, LLOYD_STEPS, MEDIAN_ROWS = 5000, 5, 1000


class Task(NamedTuple):
    """Scaled rows to learn from, and rows that are only scored: nothing is chosen by them."""

    name: str
    X: Array
    y: Labels
    X_test: Array
    y_test: Labels


def task(name: str) -> Task:
    """The authors' first split of Satellite, standardized; MNIST's own split; a quarter of the digits held out."""
    data = load(name)
    if name == "digits":
        rows = np.random.default_rng(0).permutation(len(data.X))
        parts = tuple(part[half] for half in np.split(rows, [3 * len(rows) // 4]) for part in (data.X, data.y))
    else:
        parts = data.split(0)
    X, y, X_test, y_test = parts
    scaler = StandardScaler().fit(X) if name == "satellite" else None
    return Task(name, _scaled(X, scaler, name), y.astype(np.int64), _scaled(X_test, scaler, name), y_test)


def _scaled(X: NDArray, scaler: StandardScaler | None, name: str) -> Array:
    """Pixels to [0, 1], other features to mean 0 and standard deviation 1 on the training rows."""
    scaled = scaler.transform(X) if scaler is not None else X / {"mnist": 255.0, "digits": 16.0}[name]
    return np.ascontiguousarray(scaled, dtype=np.float64)


def find_start(X: Array, n_classes: int, n_inducing: int, lengthscale: float | None = None, seed: int = 0) -> Start:
    """Centers of k-means for every class and the kernel that cavity starts mini-batches with, timed."""
    began = time.perf_counter()
    rows = np.random.default_rng(seed).permutation(len(X))
    means = KMeans(min(n_inducing, len(X)), n_init=1, max_iter=LLOYD_STEPS, random_state=seed)
    Z = means.fit(X[rows[:KMEANS_ROWS]]).cluster_centers_
    if lengthscale is None:
        lengthscale = BATCH_START.lengthscale * float(np.median(pdist(X[rows[:MEDIAN_ROWS]])))
    every = np.broadcast_to(Z, (n_classes, *Z.shape)).copy()
    return Start(every, lengthscale, BATCH_START.variance, time.perf_counter() - began)
