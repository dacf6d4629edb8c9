"""Kernels of the inner product, and the constant kernel that gives them an offset."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from cavity.kernels.base import Blocks, BoundKernel, Kernel, KernelGradient, Params, ScaledKernel, log_start
from cavity.numerics.limits import largest_to_square
from cavity.numerics.linalg import sum_to


class Linear(ScaledKernel):
    """variance · Σ_d x_d x'_d / ℓ_d²: latent functions that are planes through the origin.

    Add `Constant()` for planes with an offset. Arguments as for `RBF`.

    >>> Linear() + Constant()
    Linear(lengthscale=None, variance=None) + Constant(variance=None)
    """

    def bind(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> BoundKernel:
        return _BoundLinear(params, Z, dtype)


class _BoundLinear(BoundKernel):
    """k(Z, X) = ABᵀ, where A and B are Z and X scaled by √variance/ℓ."""

    def __init__(self, params: Params, Z: Tensor, dtype: torch.dtype) -> None:
        self._scale = torch.exp(0.5 * params["log_variance"][:, None] - params["log_lengthscale"])[:, None, :]
        self._Z_shape, self._dtype, self._largest = Z.shape, dtype, largest_to_square(dtype)
        self._A = self._scaled(Z)
        self.gram = torch.matmul(self._A, self._A.mT)

    def blocks(self, X: Float[Tensor, "B D"]) -> Blocks:
        B = self._scaled(X)
        return Blocks(X, self._product(self._A, B.mT), B.square().sum(-1), B)

    def pull_back(self, blocks: Blocks, by_gram: Tensor, by_cross: Tensor, by_diag: Tensor) -> KernelGradient:
        A, B = self._A, blocks.saved
        by_A = 2.0 * torch.matmul(by_gram, A) + self._product(by_cross, B)
        by_B = self._product(by_cross.mT, A) + 2.0 * by_diag[..., None] * B
        by_A, by_B = (torch.where(x.abs() < self._largest, by, 0.0) for x, by in ((A, by_A), (B, by_B)))
        by_log_scale = sum_to((by_A * A).sum(-2) + (by_B * B).sum(-2), self._scale[:, 0].shape)
        by_params = {"log_lengthscale": -by_log_scale, "log_variance": 0.5 * by_log_scale.sum(-1)}
        return KernelGradient(by_params, sum_to(by_A * self._scale, self._Z_shape))

    def _scaled(self, x: Float[Tensor, "*_ D"]) -> Float[Tensor, "_ N D"]:
        return (x * self._scale).clamp(-self._largest, self._largest)

    def _product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return a·b, computed in the precision of k(Z, X)."""
        return torch.matmul(a.to(self._dtype), b.to(self._dtype)).to(a.dtype)


@dataclass(frozen=True, eq=False)
class Constant(Kernel):
    """The same covariance, `variance`, between any two points: an offset of the latent function."""

    variance: ArrayLike | None = None

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        return {"log_variance": log_start("variance", self.variance, 1.0, (n_classes,))}

    def fitted(self, params: Params) -> Kernel:
        return replace(self, variance=torch.exp(params["log_variance"]).cpu().numpy())

    def bind(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> BoundKernel:
        return _BoundConstant(params, Z)


class _BoundConstant(BoundKernel):
    def __init__(self, params: Params, Z: Tensor) -> None:
        self._variance, self._Z = torch.exp(params["log_variance"]), Z
        self.gram = self._block(Z.shape[-2])

    def blocks(self, X: Float[Tensor, "B D"]) -> Blocks:
        return Blocks(X, self._block(len(X)), self._variance[:, None].expand(-1, len(X)))

    def pull_back(self, blocks: Blocks, by_gram: Tensor, by_cross: Tensor, by_diag: Tensor) -> KernelGradient:
        total = by_gram.sum((-2, -1)) + by_cross.sum((-2, -1)) + by_diag.sum(-1)
        by_variance = sum_to(total, self._variance.shape) * self._variance
        return KernelGradient({"log_variance": by_variance}, torch.zeros_like(self._Z))

    def _block(self, n_columns: int) -> Float[Tensor, "_ M B"]:
        n_classes = max(len(self._variance), len(self._Z))
        return self._variance[:, None, None].expand(n_classes, self._Z.shape[-2], n_columns)
