"""Kernels of the inner product, and the constant kernel that gives them an offset."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from cavity.kernels.base import Kernel, Params, log_start
from cavity.numerics.limits import within_squares


@dataclass(frozen=True, eq=False)
class Linear(Kernel):
    """variance · Σ_d x_d x'_d / ℓ_d²: latent functions that are planes through the origin.

    Add `Constant()` for planes with an offset. Arguments as for `RBF`.

    >>> Linear() + Constant()
    Linear(lengthscale=None, variance=None) + Constant(variance=None)
    """

    lengthscale: ArrayLike | None = None
    variance: ArrayLike | None = None

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        return {
            "log_lengthscale": log_start("lengthscale", self.lengthscale, lengthscale, (n_classes, n_features)),
            "log_variance": log_start("variance", self.variance, 1.0, (n_classes,)),
        }

    def cross(self, params: Params, Z: Float[Tensor, "#C M D"], X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ M B"]:
        scale = _scale(params)
        return torch.matmul(within_squares(Z * scale), within_squares(X * scale).mT)

    def gram(self, params: Params, Z: Float[Tensor, "#C M D"]) -> Float[Tensor, "_ M M"]:
        return self.cross(params, Z, Z)

    def diag(self, params: Params, X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ B"]:
        return within_squares(X * _scale(params)).square().sum(-1)

    def fitted(self, params: Params) -> Kernel:
        values = {name: torch.exp(params[f"log_{name}"]).cpu().numpy() for name in ("lengthscale", "variance")}
        return replace(self, **values)


def _scale(params: Params) -> Float[Tensor, "_ 1 D"]:
    """√variance/ℓ_d: k is the inner product of inputs scaled by it."""
    return torch.exp(0.5 * params["log_variance"][:, None] - params["log_lengthscale"])[:, None, :]


@dataclass(frozen=True, eq=False)
class Constant(Kernel):
    """The same covariance, `variance`, between any two points: an offset of the latent function."""

    variance: ArrayLike | None = None

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        return {"log_variance": log_start("variance", self.variance, 1.0, (n_classes,))}

    def cross(self, params: Params, Z: Float[Tensor, "#C M D"], X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ M B"]:
        n_classes = max(len(params["log_variance"]), len(Z), len(X))
        return torch.exp(params["log_variance"])[:, None, None].expand(n_classes, Z.shape[-2], X.shape[-2])

    def gram(self, params: Params, Z: Float[Tensor, "#C M D"]) -> Float[Tensor, "_ M M"]:
        return self.cross(params, Z, Z)

    def diag(self, params: Params, X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ B"]:
        return torch.exp(params["log_variance"])[:, None].expand(-1, X.shape[-2])

    def fitted(self, params: Params) -> Kernel:
        return replace(self, variance=torch.exp(params["log_variance"]).cpu().numpy())
