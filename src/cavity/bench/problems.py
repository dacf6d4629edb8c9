"""What the benchmarks run on: how large, from where, and rows like MNIST's that need no download."""

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
        """Floating-point operations that a SEP step cannot do without, in products.

        Distances within Z and from Z to X, forward and backward; W, the sites, the projections of cavity and gradient,
        and three factors with their inverses.
        """
        C, M, B, D = self
        kernel = 4.0 * C * M * D * (B + M)
        inference = 2.0 * C * M * M * (6 * B + 4 * M)
        return kernel + inference


class Options(NamedTuple):
    """What a case may be told; each takes what concerns it.

    Attributes:
        dtype: one precision only; None for all that the case has.
        data: the set of the case `quality`, and `seconds` its budgets of training time.
        rate: Adam's, for the rivals.
        own_rate: Adam's, for cavity; None for its default.
        lengthscale: where all start in `quality`; None for what cavity makes of the data.
        what: competitors of `quality` by name; all where there is none.
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

    def takes_part(self, what: str) -> bool:
        """Whether this competitor is asked for."""
        return not self.what or what in self.what

    def dtypes(self, *usual: str) -> tuple[str, ...]:
        """The precisions to run: those that are usual for the case, or the one asked for."""
        return usual if self.dtype is None else (self.dtype,)


class Rows(NamedTuple):
    """Inputs, labels and one set of inducing points per class."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    Z: NDArray[np.float64]


class Start(NamedTuple):
    """Where every competitor starts: inducing points (C, M, D), a kernel, and the seconds that finding them took."""

    Z: NDArray[np.float64]
    lengthscale: float
    variance: float = 1.0
    seconds: float = 0.0


def sparse_images(size: Size, n_batches: int = 4, seed: int = 0) -> Rows:
    """Mostly dark images with values in [0, 1] about a mean image of each class."""
    rng = np.random.default_rng(seed)
    n = n_batches * size.B
    y = np.arange(n) % size.C
    typical = rng.random((size.C, size.D)) * (rng.random((size.C, size.D)) < 0.2)
    X = np.clip(typical[y] + 0.3 * rng.standard_normal((n, size.D)) * (rng.random((n, size.D)) < 0.2), 0.0, 1.0)
    pick = [rng.choice(n, size.M, replace=n < size.M) for _ in range(size.C)]
    return Rows(X, y, np.stack([X[rows] + 1e-3 * rng.standard_normal((size.M, size.D)) for rows in pick]))
