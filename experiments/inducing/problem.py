"""Classes in a square, defined by functions drawn from the GP prior, and measures of where points lie in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

SIDE = 5.0
CLASSES = 3
TERMS = 40  # of the kernel's series, beyond those that still grow; the rest is below rounding


@dataclass(frozen=True)
class Functions:
    """One draw from the prior with the RBF kernel for each class, defined everywhere in the square.

    exp(−(a − b)²/2) = Σ_k φ_k(a) φ_k(b) with φ_k(a) = exp(−a²/2) aᵏ/√k!, so in the plane φ(x₁)ᵀ E φ(x₂) with
    standard normal numbers in E has the covariance of the prior. This needs no factorization and no jitter.
    """

    weights: Array  # (C, K, K)
    lengthscale: float
    variance: float

    def __call__(self, X: Array) -> Array:
        """Return their values at rows (N, 2), as (N, C)."""
        first, second = (features(x / self.lengthscale, self.weights.shape[-1]) for x in X.T)
        return self.variance**0.5 * np.einsum("nk,ckl,nl->nc", first, self.weights, second, optimize=True)


@dataclass(frozen=True)
class Problem:
    """Functions, and labeled rows for training and testing."""

    functions: Functions
    X: Array
    y: Labels
    X_test: Array
    y_test: Labels


def draw(seed: int, rows: int, test_rows: int, lengthscale: float, variance: float, noise: float) -> Problem:
    """Draw rows uniformly in the square. The label is the class whose function, plus noise, is the largest."""
    rng = np.random.default_rng(seed)
    count = int(np.e * (SIDE / 2 / lengthscale) ** 2) + TERMS
    functions = Functions(rng.standard_normal((CLASSES, count, count)), lengthscale, variance)
    X = rng.uniform(-SIDE / 2, SIDE / 2, (rows + test_rows, 2))
    y = (functions(X) + noise**0.5 * rng.standard_normal((len(X), CLASSES))).argmax(1)
    return Problem(functions, X[:rows], y[:rows], X[rows:], y[rows:])


def features(x: Array, count: int) -> Array:
    """Return φ_0(x) to φ_{count−1}(x), as (N, count)."""
    steps = x[:, None] / np.sqrt(np.arange(1, count))
    return np.exp(-0.5 * x[:, None] ** 2) * np.cumprod(np.c_[np.ones_like(x), steps], axis=1)


def grid(n: int) -> Array:
    """Return the centers of n × n cells of the square, x₁ varying fastest, as (n², 2)."""
    x = SIDE * ((np.arange(n) + 0.5) / n - 0.5)
    return np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)


def boundary(labels: Labels, n: int) -> Array:
    """Return the points halfway between grid neighbors with different labels, as (K, 2)."""
    places, map_ = grid(n).reshape(n, n, 2), labels.reshape(n, n)
    across = 0.5 * (places[:, 1:] + places[:, :-1])[map_[:, 1:] != map_[:, :-1]]
    along = 0.5 * (places[1:] + places[:-1])[map_[1:] != map_[:-1]]
    return np.concatenate([across, along])


def distance(points: Array, targets: Array) -> float:
    """Return the median distance from points (..., 2) to the nearest target; a few points may be far away."""
    return float(np.median(KDTree(targets).query(points.reshape(-1, 2))[0]))


def outside(points: Array) -> float:
    """Return the share of points (..., 2) that have left the square."""
    return float((np.abs(points) > SIDE / 2).any(-1).mean())


def distinct(Z: Array, radius: float) -> float:
    """Return the share of points that remain if chains of points within the radius count as one."""
    return sum(connected_components(cdist(points, points) <= radius)[0] for points in Z) / (Z.shape[0] * Z.shape[1])
