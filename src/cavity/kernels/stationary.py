"""Kernels of the scaled distance r² = Σ_d (x_d − x'_d)² / ℓ_d²: RBF and the Matérn family."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from cavity.kernels.base import Anchored, Kernel, Params, Slopes, log_start
from cavity.numerics.distances import Points
from cavity.numerics.limits import tiny
from cavity.numerics.linalg import squared_distances, sum_to


@dataclass(frozen=True, eq=False)
class Stationary(Kernel):
    """variance · shape(r²), with one length-scale per feature (ARD).

    Args:
        lengthscale: start value, a float or an array that broadcasts to (C, D); by default chosen from the data.
        variance: start value, a float or an array that broadcasts to (C,); 1 by default.
    """

    lengthscale: ArrayLike | None = None
    variance: ArrayLike | None = None

    @abstractmethod
    def shape(self, r2: Tensor) -> Tensor:
        """The correlation at squared scaled distance `r2`; 1 at 0."""

    @abstractmethod
    def log_slope(self, r2: Tensor) -> Tensor | float:
        """The derivative of its logarithm by r²; anything at 0, where r² itself does not move."""

    def shape_(self, r2: Tensor) -> Tensor:
        """The correlation in the memory of `r2`, if `log_slope` has no use for it."""
        return self.shape(r2)

    def anchor(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> Anchored:
        return _AnchoredStationary(self, params, Z, dtype)

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        return {
            "log_lengthscale": log_start("lengthscale", self.lengthscale, lengthscale, (n_classes, n_features)),
            "log_variance": log_start("variance", self.variance, 1.0, (n_classes,)),
        }

    def cross(self, params: Params, Z: Float[Tensor, "#C M D"], X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ M B"]:
        inverse = torch.exp(-params["log_lengthscale"])[:, None, :]
        return self._scaled(params, squared_distances(Z * inverse, X * inverse))

    def gram(self, params: Params, Z: Float[Tensor, "#C M D"]) -> Float[Tensor, "_ M M"]:
        scaled = Z * torch.exp(-params["log_lengthscale"])[:, None, :]
        off_diagonal = 1.0 - torch.eye(Z.shape[-2], dtype=Z.dtype, device=Z.device)
        return self._scaled(params, squared_distances(scaled, scaled) * off_diagonal)

    def diag(self, params: Params, X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ B"]:
        return torch.exp(params["log_variance"])[:, None].expand(-1, X.shape[-2])

    def fitted(self, params: Params) -> Kernel:
        values = {name: torch.exp(params[f"log_{name}"]).cpu().numpy() for name in ("lengthscale", "variance")}
        return replace(self, **values)

    def _scaled(self, params: Params, r2: Tensor) -> Tensor:
        return torch.exp(params["log_variance"])[:, None, None] * self.shape(r2)


class _AnchoredStationary(Anchored):
    """Blocks and gradients in closed form: of each block one product forward and one backward."""

    def __init__(self, kernel: Stationary, params: Params, Z: Tensor, dtype: torch.dtype) -> None:
        self._kernel, self._variance = kernel, torch.exp(params["log_variance"])
        self._precision = torch.exp(-2.0 * params["log_lengthscale"])
        self._points = Points(Z, self._precision, dtype)
        self._within = self._points.within()
        self.gram = self._covariance(self._within)

    def cross(self, X: Float[Tensor, "B D"]) -> Float[Tensor, "_ M B"]:
        self._to = self._points.to(X)
        self._cross = self._covariance(self._to)
        return self._cross

    def diag(self, X: Float[Tensor, "B D"]) -> Float[Tensor, "_ B"]:
        return self._variance[:, None].expand(-1, len(X))

    def pull_back(self, X: Tensor, by_gram: Tensor, by_cross: Tensor, by_diag: Tensor) -> Slopes:
        by_gram = sum_to(by_gram, self.gram.shape).mul_(self.gram)
        by_cross = sum_to(by_cross, self._cross.shape).mul_(self._cross)
        by_variance = sum_to(by_gram.sum((-2, -1)) + by_cross.sum((-2, -1)), self._variance.shape)
        by_variance = by_variance + sum_to(by_diag.sum(-1), self._variance.shape) * self._variance
        by_within = by_gram.mul_(self._kernel.log_slope(self._within))
        by_to = by_cross.mul_(self._kernel.log_slope(self._to))
        by_within.diagonal(dim1=-2, dim2=-1).zero_()
        by_Z, by_precision = self._points.gradient(X, by_within, by_to)
        by_params = {"log_lengthscale": -2.0 * self._precision * by_precision, "log_variance": by_variance}
        return Slopes(by_params, by_Z)

    def _covariance(self, r2: Tensor) -> Tensor:
        shape, variance = self._kernel.shape_(r2), self._variance[:, None, None]
        return shape.mul_(variance) if shape.dtype == variance.dtype else variance * shape


class RBF(Stationary):
    """The Gaussian kernel of the paper: variance · exp(−r²/2).

    >>> RBF(lengthscale=2.0)
    RBF(lengthscale=2.0, variance=None)
    """

    def shape(self, r2: Tensor) -> Tensor:
        return torch.exp(-0.5 * r2)

    def shape_(self, r2: Tensor) -> Tensor:
        return r2.mul_(-0.5).exp_() if type(self).shape is RBF.shape else self.shape(r2)

    def log_slope(self, r2: Tensor) -> Tensor | float:
        return -0.5


class Matern12(Stationary):
    """variance · exp(−r): continuous, nowhere smooth."""

    def shape(self, r2: Tensor) -> Tensor:
        return torch.exp(-_root(r2))

    def log_slope(self, r2: Tensor) -> Tensor | float:
        return -0.5 / _root(r2)


class Matern32(Stationary):
    """variance · (1 + √3 r) exp(−√3 r): once differentiable."""

    def shape(self, r2: Tensor) -> Tensor:
        r = _root(3.0 * r2)
        return (1.0 + r) * torch.exp(-r)

    def log_slope(self, r2: Tensor) -> Tensor | float:
        return -1.5 / (1.0 + _root(3.0 * r2))


class Matern52(Stationary):
    """variance · (1 + √5 r + 5r²/3) exp(−√5 r): twice differentiable."""

    def shape(self, r2: Tensor) -> Tensor:
        r = _root(5.0 * r2)
        return (1.0 + r + r.square() / 3.0) * torch.exp(-r)

    def log_slope(self, r2: Tensor) -> Tensor | float:
        r = _root(5.0 * r2)
        return -5.0 / 6.0 * (1.0 + r) / (1.0 + r + r.square() / 3.0)


def _root(r2: Tensor) -> Tensor:
    # the gradient of √ at 0 is infinite; below the clamp it is 0, the right subgradient for coincident points
    return torch.sqrt(r2.clamp_min(tiny(r2)))
