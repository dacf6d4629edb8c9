"""Differences of latent means as sums over the inducing points, Σ_m α_m k(z_m, x), and their gradients by x.

The mean of f_c at x is α_cᵀ k_c(Z, x) with α = L⁻ᵀm, so it takes no product with W. A margin weighs the means of a few
classes by a sign for each class; only the classes whose sign is not 0 are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.gaussian import Posterior
from cavity.kernels import Params
from cavity.kernels.base import BoundKernel
from cavity.numerics.linalg import vector_times

BLOCK_ELEMENTS = 2**18  # of k(Z, X) at a time


class _Part(NamedTuple):
    """The classes that share k(Z, x): all of them, or one; and their α."""

    classes: list[int]
    params: Params
    Z: Float[Tensor, "1 M D"]
    alpha: Float[Tensor, "G M"]
    bound: BoundKernel


@dataclass(frozen=True)
class Margins:
    """The margins Σ_c sign_c · sharpness · mean f_c(x) under a posterior."""

    posterior: Posterior
    _parts: dict[int, _Part] = field(default_factory=dict, init=False)

    @torch.inference_mode()
    def at(self, X: Float[Tensor, "N D"], sign: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
        """Return the margin of each row."""
        found = X.new_zeros(len(X))
        for part, rows in self._blocks(sign):
            means = part.alpha @ part.bound.blocks_to_predict(X[rows]).cross[0]
            found[rows] += (means * sign[rows][:, part.classes].mT).sum(0)
        return found

    @torch.inference_mode()
    def gradient(self, X: Float[Tensor, "N D"], sign: Float[Tensor, "N C"]) -> Float[Tensor, "N D"]:
        """Return the gradient of each row's margin by the row.

        A kernel is symmetric: with the rows in the place of the inducing points, its gradient by these is that by rows.
        """
        found, kernel = torch.zeros_like(X), self.posterior.prior.kernel
        for part, rows in self._blocks(sign):
            bound = kernel.bind(part.params, X[None, rows], X.dtype)
            by_cross = (sign[rows][:, part.classes] @ part.alpha)[None]
            by_gram, by_diag = torch.zeros_like(bound.gram), X.new_zeros(1, part.Z.shape[1])
            found[rows] += bound.pull_back(bound.blocks(part.Z[0]), by_gram, by_cross, by_diag).by_Z[0]
        return found

    def _blocks(self, sign: Float[Tensor, "N C"]) -> Iterator[tuple[_Part, Tensor]]:
        """Yield the parts that any row needs, each with blocks of these rows."""
        prior = self.posterior.prior
        is_shared = len(prior.L) == 1
        needed = sign.abs().sum(-1, keepdim=True) if is_shared else sign
        size = max(1, BLOCK_ELEMENTS // prior.Z.shape[-2])
        for c in (needed != 0).any(0).nonzero()[:, 0].tolist():
            for rows in needed[:, c].nonzero()[:, 0].split(size):
                yield self._part(c, is_shared), rows

    def _part(self, c: int, is_shared: bool) -> _Part:
        if c not in self._parts:
            prior, q = self.posterior.prior, self.posterior
            classes = list(range(prior.n_classes)) if is_shared else [c]
            own = slice(None) if is_shared else slice(c, c + 1)
            alpha = q.sharpness * vector_times(q.whitened.m[own], prior.L_inverse[own])
            params = {name: value if len(value) == 1 else value[own] for name, value in prior.params.items()}
            Z = prior.Z if len(prior.Z) == 1 else prior.Z[own]
            self._parts[c] = _Part(classes, params, Z, alpha, prior.kernel.bind(params, Z, Z.dtype))
        return self._parts[c]
