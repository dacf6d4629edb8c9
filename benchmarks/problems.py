"""What benchmarks run on: sizes, options, and synthetic rows like those of MNIST."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Size(NamedTuple):
    """Classes, inducing points, rows of a batch, features."""

    C: int = 10
    M: int = 200
    B: int = 200
    D: int = 784

    def step_flops(self) -> float:
        """Count the floating-point operations that a SEP step needs at least, in products.

        Distances within Z and from Z to X, forward and backward; W, the sites, the projections of cavity and gradient,
        and three factors with their inverses.
        """
        C, M, B, D = self
        kernel = 4.0 * C * M * D * (B + M)
        inference = 2.0 * C * M * M * (6 * B + 4 * M)
        return kernel + inference


class Options(NamedTuple):
    """Options of the command line. Each benchmark uses those that concern it.

    Attributes:
        dtype: the only precision to run; None for all of the benchmark.
        data: the data set of `quality`.
        seconds: the training times at which `quality` scores.
        rate: the rivals' learning rate of Adam.
        own_rate: cavity's learning rate of Adam; None for its default.
        lengthscale: where all competitors of `quality` start; None for cavity's choice from the data.
        what: competitors of `quality`, fits of `busy`, tables of `short_limits` and `start`, or rows of `memory` by
            name; empty for all, in `memory` for Parquet.
        rows: of `memory`, instead of its own sizes.
    """

    size: Size = Size()
    device: str = "cpu"
    dtype: str | None = None
    data: str = "satellite"
    seconds: tuple[float, ...] = (5.0, 10.0, 20.0, 40.0, 80.0)
    rate: float = 0.01
    own_rate: float | None = None
    lengthscale: float | None = None
    what: tuple[str, ...] = ()
    rows: int | None = None

    def selects(self, what: str) -> bool:
        """Return whether to run this competitor or table."""
        return not self.what or what in self.what


class Problem(NamedTuple):
    """Inputs, labels and one set of inducing points per class."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    Z: NDArray[np.float64]


class Start(NamedTuple):
    """Where every competitor starts: inducing points (C, M, D), a kernel, and the seconds it took to find them."""

    Z: NDArray[np.float64]
    lengthscale: float
    variance: float = 1.0
    seconds: float = 0.0


def sparse_images(size: Size, n_batches: int = 4, seed: int = 0) -> Problem:
    """Generate mostly dark images with values in [0, 1] around a mean image of each class."""
    rng = np.random.default_rng(seed)
    n = n_batches * size.B
    y = np.arange(n) % size.C
    typical = rng.random((size.C, size.D)) * (rng.random((size.C, size.D)) < 0.2)
    X = np.clip(typical[y] + 0.3 * rng.standard_normal((n, size.D)) * (rng.random((n, size.D)) < 0.2), 0.0, 1.0)
    pick = [rng.choice(n, size.M, replace=n < size.M) for _ in range(size.C)]
    return Problem(X, y, np.stack([X[rows] + 1e-3 * rng.standard_normal((size.M, size.D)) for rows in pick]))
