"""Covariances k(Z, x) and k(x, x) as a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cavity.export.graph import Value
from cavity.kernels import RBF, Constant, Kernel, Linear, Matern12, Matern32, Matern52, Params, Product, Sum

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """New rows beside the inducing points.

    Args:
        X: scaled rows, (N, D).
        Z: inducing points, (C, M, D), or one set for all classes.
    """

    X: Value
    Z: Array

    @cached_property
    def across(self) -> Value:
        """The rows as columns, (D, N)."""
        return self.X.mT

    @cached_property
    def center(self) -> Array:
        """Of all inducing points. Distances are differences of squares, which lose digits far from the origin."""
        return self.Z.mean((0, 1))

    @cached_property
    def centerd(self) -> Value:
        """The rows as columns, about the center."""
        return self.across - self.center[:, None]

    @cached_property
    def zeros(self) -> Value:
        """A zero for each row, (N,)."""
        return (self.X * 0.0).sum(1)


class Covariance(NamedTuple):
    """k(Z, x), (C, M, N), and k(x, x), (C, N), or one for all classes where they share it."""

    cross: Value
    diag: Value


def covariance(kernel: Kernel, params: Params, rows: Rows) -> Covariance:
    """The kernel at the rows. An error names a kernel that it does not know: a subclass may compute anything."""
    if type(kernel) in (Sum, Product):
        found = [covariance(part, own, rows) for part, own in kernel._split(params)]  # type: ignore[attr-defined]
        combine = Value.__add__ if type(kernel) is Sum else Value.__mul__
        return Covariance(reduce(combine, [f.cross for f in found]), reduce(combine, [f.diag for f in found]))
    if type(kernel) in SHAPES:
        return _stationary(SHAPES[type(kernel)], params, rows)
    if type(kernel) is Linear:
        return _linear(params, rows)
    if type(kernel) is Constant:
        return _constant(params, rows)
    raise TypeError(
        f"kernel={kernel!r} cannot be exported; RBF, Matern12, Matern32, Matern52, Linear, Constant, sums and "
        "products can"
    )


def _stationary(shape: Callable[[Value, Array], Value], params: Params, rows: Rows) -> Covariance:
    r2 = _squared_distances(np.exp(-2.0 * _array(params["log_lengthscale"])), rows)
    log_variance = _array(params["log_variance"])
    return Covariance(shape(r2, log_variance[:, None, None]), np.exp(log_variance)[:, None] + rows.zeros)


def _squared_distances(precision: Array, rows: Rows) -> Value:
    """r² = Σ_d (z_d − x_d)²/ℓ_d² as one product, (C, M, N)."""
    Z = rows.Z - rows.center
    scaled = Z * precision[:, None, :]
    of_rows = precision @ rows.centerd.square()
    r2 = _against(-2.0 * scaled, rows.centerd) + (Z * scaled).sum(-1)[..., None] + of_rows.grow(1)
    return r2.at_least(0.0)


def _linear(params: Params, rows: Rows) -> Covariance:
    precision = np.exp(_array(params["log_variance"])[:, None] - 2.0 * _array(params["log_lengthscale"]))
    return Covariance(_against(rows.Z * precision[:, None, :], rows.across), precision @ rows.across.square())


def _constant(params: Params, rows: Rows) -> Covariance:
    variance = np.exp(_array(params["log_variance"]))
    whole = np.broadcast_to(variance[:, None, None], (max(len(variance), len(rows.Z)), rows.Z.shape[1], 1))
    return Covariance(whole + rows.zeros, variance[:, None] + rows.zeros)


def _against(Z: Array, across: Value) -> Value:
    """zᵀx of every pair, as one product for all classes, (C, M, N)."""
    C, M, D = Z.shape
    return (Z.reshape(C * M, D) @ across).reshape(C, M, -1)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy()


# variance · shape(r²). The variance is in the exponent, where it stays float64: a number that multiplies a matrix on
# its way into a product, or out of it, is a factor of that product to onnxruntime, and float32. For the same reason no
# k(x, x) is a constant of the graph.


def _rbf(r2: Value, log_variance: Array) -> Value:
    return (r2 * -0.5 + log_variance).exp()


def _matern12(r2: Value, log_variance: Array) -> Value:
    return (log_variance - r2.sqrt()).exp()


def _matern32(r2: Value, log_variance: Array) -> Value:
    r = (r2 * 3.0).sqrt()
    return (r + 1.0) * (log_variance - r).exp()


def _matern52(r2: Value, log_variance: Array) -> Value:
    r2 = r2 * 5.0
    r = r2.sqrt()
    return (r + r2 * (1.0 / 3.0) + 1.0) * (log_variance - r).exp()


SHAPES: dict[type[Kernel], Callable[[Value, Array], Value]] = {
    RBF: _rbf,
    Matern12: _matern12,
    Matern32: _matern32,
    Matern52: _matern52,
}
