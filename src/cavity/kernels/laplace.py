"""The kernel of the scaled Manhattan distance, Σ_d |x_d − x'_d| / ℓ_d."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.kernels.base import Params, ScaledKernel
from cavity.numerics.limits import largest_to_square


class Laplace(ScaledKernel):
    """variance · exp(−Σ_d |x_d − x'_d| / ℓ_d): a product of Matérn 1/2 kernels, one for each feature.

    Its functions are rough along the axes and treat each feature by itself, as trees do: it suits thresholds. torch's
    `cdist` computes the distance and its gradient. Arguments as for `ScaledKernel`.

    >>> Laplace(lengthscale=2.0)
    Laplace(lengthscale=2.0, variance=None)
    """

    def cross(self, params: Params, Z: Float[Tensor, "#C M D"], X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ M B"]:
        scale, largest = torch.exp(-params["log_lengthscale"])[:, None, :], largest_to_square(Z.dtype)
        Z, X = ((x * scale).clamp(-largest, largest) for x in (Z, X))
        return self._variance(params)[:, :, None] * torch.exp(-torch.cdist(Z, X.expand(len(Z), -1, -1), p=1.0))

    def diag(self, params: Params, X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ B"]:
        return self._variance(params).expand(-1, X.shape[1])

    @staticmethod
    def _variance(params: Params) -> Float[Tensor, "_ 1"]:
        return torch.exp(params["log_variance"])[:, None]
