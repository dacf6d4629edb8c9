"""Kernels of the scaled distance r² = Σ_d (x_d − x'_d)² / ℓ_d²: RBF and the Matérn family."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.kernels.base import Blocks, BoundKernel, KernelGradient, Params, ScaledKernel
from cavity.numerics.distances import SquaredDistances
from cavity.numerics.limits import tiny
from cavity.numerics.linalg import sum_to


class Stationary(ScaledKernel):
    """variance · correlation(r²). Arguments as for `ScaledKernel`."""

    @abstractmethod
    def correlation(self, r2: Tensor) -> Tensor:
        """Return the correlation at the squared scaled distance `r2`; 1 at 0."""

    @abstractmethod
    def log_derivative(self, r2: Tensor) -> Tensor | float:
        """Return the derivative of log correlation by r²; a moderate value at 0, where r² does not change."""

    def correlation_(self, r2: Tensor) -> Tensor:
        """Return the correlation; override it to reuse the memory of `r2` if `log_derivative` ignores `r2`."""
        return self.correlation(r2)

    def bind(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> BoundKernel:
        return _BoundStationary(self, params, Z, dtype)

    def bind_part(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> BoundKernel:
        return _BoundStationary(self, params, Z, dtype, torch.exp(-params["log_lengthscale"]))


class _BoundStationary(BoundKernel):
    """Blocks and gradients in closed form: of each block one product forward and one backward."""

    def __init__(
        self, kernel: Stationary, params: Params, Z: Tensor, dtype: torch.dtype, scale: Tensor | None = None
    ) -> None:
        self._kernel, self._variance = kernel, torch.exp(params["log_variance"])
        self._precision = torch.exp(-2.0 * params["log_lengthscale"])
        self._distances = SquaredDistances(Z, self._precision, dtype, scale)
        self._within = self._distances.within
        self.gram = self._covariance(self._within)

    def blocks(self, X: Float[Tensor, "B D"]) -> Blocks:
        r2 = self._distances.to(X)
        return Blocks(X, self._covariance(r2), self._variance[:, None].expand(-1, len(X)), r2)

    def blocks_to_predict(self, X: Float[Tensor, "B D"]) -> Blocks:
        r2 = self._distances.to_predict(X)
        cross = self._kernel.correlation_(r2).mul_(self._variance[:, None, None])
        return Blocks(X, cross, self._variance[:, None].expand(-1, len(X)))

    def pull_back(self, blocks: Blocks, by_gram: Tensor, by_cross: Tensor, by_diag: Tensor) -> KernelGradient:
        by_gram = sum_to(by_gram, self.gram.shape).mul_(self.gram)
        by_cross = sum_to(by_cross, blocks.cross.shape).mul_(blocks.cross)
        of_rows = by_cross.sum((-2, -1), dtype=by_gram.dtype)
        by_variance = sum_to(by_gram.sum((-2, -1)) + of_rows, self._variance.shape)
        by_variance = by_variance + sum_to(by_diag.sum(-1), self._variance.shape) * self._variance
        by_within = by_gram.mul_(self._kernel.log_derivative(self._within))
        by_to = by_cross.mul_(self._kernel.log_derivative(blocks.saved))
        by_within.diagonal(dim1=-2, dim2=-1).zero_()
        by_Z, by_precision = self._distances.gradient(blocks.X, by_within, by_to)
        by_params = {"log_lengthscale": -2.0 * self._precision * by_precision, "log_variance": by_variance}
        return KernelGradient(by_params, by_Z)

    def _covariance(self, r2: Tensor) -> Tensor:
        correlation, variance = self._kernel.correlation_(r2), self._variance[:, None, None]
        return correlation.mul_(variance) if correlation.dtype == variance.dtype else variance * correlation


class RBF(Stationary):
    """The Gaussian kernel of the paper: variance · exp(−r²/2).

    >>> RBF(lengthscale=2.0)
    RBF(lengthscale=2.0, variance=None)
    """

    def correlation(self, r2: Tensor) -> Tensor:
        return torch.exp(-0.5 * r2)

    def correlation_(self, r2: Tensor) -> Tensor:
        return r2.mul_(-0.5).exp_() if type(self).correlation is RBF.correlation else self.correlation(r2)

    def log_derivative(self, r2: Tensor) -> Tensor | float:
        return -0.5


class Matern12(Stationary):
    """variance · exp(−r): continuous, nowhere smooth."""

    def correlation(self, r2: Tensor) -> Tensor:
        return torch.exp(-_root(r2))

    def correlation_(self, r2: Tensor) -> Tensor:
        return _root(r2).neg_().exp_() if type(self).correlation is Matern12.correlation else self.correlation(r2)

    def log_derivative(self, r2: Tensor) -> Tensor | float:
        return _root(r2).reciprocal_().mul_(-0.5).masked_fill_(r2 < tiny(r2), 0.0)  # coincident points do not pull


class Matern32(Stationary):
    """variance · (1 + √3 r) exp(−√3 r): once differentiable."""

    def correlation(self, r2: Tensor) -> Tensor:
        r = _root(3.0 * r2)
        return (1.0 + r) * torch.exp(-r)

    def log_derivative(self, r2: Tensor) -> Tensor | float:
        return -1.5 / (1.0 + _root(3.0 * r2))


class Matern52(Stationary):
    """variance · (1 + √5 r + 5r²/3) exp(−√5 r): twice differentiable."""

    def correlation(self, r2: Tensor) -> Tensor:
        r = _root(5.0 * r2)
        return (1.0 + r + r.square() / 3.0) * torch.exp(-r)

    def log_derivative(self, r2: Tensor) -> Tensor | float:
        r = _root(5.0 * r2)
        return -5.0 / 6.0 * (1.0 + r) / (1.0 + r + r.square() / 3.0)


def _root(r2: Tensor) -> Tensor:
    # the gradient of √ at 0 is infinite; below the clamp it is 0, the right subgradient for coincident points
    r2 = r2.clamp_min(tiny(r2))
    return torch.sqrt(r2) if r2.requires_grad else r2.sqrt_()
