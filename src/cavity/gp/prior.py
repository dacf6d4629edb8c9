"""The sparse prior: p(u) at the inducing points Z, and p(f | u) at the rows of a batch.

In whitened coordinates, L⁻¹u with L = chol k(Z, Z), the prior is N(0, I), and the paper's υ_i is a column w_i of W =
L⁻¹k(Z, X). The class axis comes first; its length is 1 where all classes share kernel and inducing points.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cavity.kernels import Kernel, Params
from cavity.kernels.base import Blocks, BoundKernel
from cavity.numerics.limits import floor_positive, least_diagonal
from cavity.numerics.linalg import (
    add_to_diagonal_,
    cholesky,
    congruence,
    inverse_lower,
    lower_times,
    symmetrize,
    vector_times,
)

KERNEL = "kernel."  # precedes the names of the kernel's parameters


class Conditional(NamedTuple):
    """p(f | u) at the rows of a batch: mean Wᵀ(L⁻¹u) with W = L⁻¹k(Z, X) (eq. 4), and variance s (eq. 5)."""

    W: Float[Tensor, "_ M B"]
    s: Float[Tensor, "C B"]
    blocks: Blocks


@dataclass(frozen=True)
class Prior:
    """p(u) and p(f | u) at one setting of the hyper-parameters.

    Args:
        kernel: the covariance function.
        params: its parameters in log space.
        log_noise: log of the latent noise variance of each class. The noise is on the diagonal of K and in κ, never in
            k(Z, X).
        Z: inducing points.
        n_classes: C, which shapes do not show if all classes share kernel and inducing points.
        dtype: precision of k(Z, X), and for mini-batches of all products with it; K and all factors are float64.
        noise_in_u: whether u contains the noise, as in the paper; otherwise only f does.
    """

    kernel: Kernel
    params: Params
    log_noise: Float[Tensor, "_"]
    Z: Float[Tensor, "_ M D"]
    n_classes: int
    dtype: torch.dtype = torch.float64
    noise_in_u: bool = True

    def __getstate__(self) -> dict[str, object]:
        """Return the arguments only: copies compute the rest again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def bound(self) -> BoundKernel:
        """The kernel at these parameters and inducing points."""
        return self.kernel.bind(self.params, self.Z, self.dtype)

    @cached_property
    def _bound_in_double(self) -> BoundKernel:
        is_double = self.dtype == self.Z.dtype
        return self.bound if is_double else self.kernel.bind(self.params, self.Z, self.Z.dtype)

    @cached_property
    def noise(self) -> Float[Tensor, "_"]:
        """The latent noise variance of each class."""
        return torch.exp(self.log_noise)

    @cached_property
    def K(self) -> Float[Tensor, "_ M M"]:
        """k(Z, Z) + noise · I, without jitter; without the noise if u does not contain it."""
        gram = self.bound.gram
        if not self.noise_in_u:
            return gram
        return add_to_diagonal_(gram.expand(max(len(gram), len(self.noise)), -1, -1).clone(), self.noise[:, None])

    @cached_property
    def L(self) -> Float[Tensor, "_ M M"]:
        """The Cholesky factor of K, its diagonal raised where the noise is too small."""
        return cholesky(add_to_diagonal_(self.K.clone(), self._missing_noise.clamp_min(0.0)[:, None]))

    @cached_property
    def _missing_noise(self) -> Float[Tensor, "_"]:
        present = self.noise if self.noise_in_u else 0.0
        return self.least_noise * self.K.diagonal(dim1=-2, dim2=-1).mean(-1) - present

    @property
    def least_noise(self) -> float:
        """The least noise on the diagonal of K, relative to its mean."""
        return least_diagonal(self.dtype)

    @property
    def is_raised(self) -> Bool[Tensor, "_"]:
        """Whether the diagonal of K is raised to `least_noise`: then it follows its mean instead of the noise."""
        return self._missing_noise > 0.0

    @cached_property
    def L_inverse(self) -> Float[Tensor, "_ M M"]:
        """L⁻¹."""
        return inverse_lower(self.L)

    @cached_property
    def _rounded_L_inverse(self) -> Float[Tensor, "_ M M"]:
        return self.L_inverse.to(self.dtype)

    def whitening(self, dtype: torch.dtype) -> Float[Tensor, "_ M M"]:
        """Return L⁻¹ in the precision of what it is multiplied with."""
        return self.L_inverse if dtype == self.L_inverse.dtype else self._rounded_L_inverse

    def conditional(self, X: Float[Tensor, "B D"], in_double: bool = False, is_batch: bool = False) -> Conditional:
        """Return p(f | u) at the rows of X (eqs. 4, 5), with k(Z, X) in `dtype`, or in double precision to predict.

        For a mini-batch W is in `dtype` too, and so are all products with it. Sweeps of all rows need it in double
        precision, or they would not settle.
        """
        blocks = self._bound_in_double.blocks_to_predict(X) if in_double else self.bound.blocks(X)
        cross = blocks.cross.to(self.dtype) if is_batch else blocks.cross
        W = lower_times(self.whitening(cross.dtype), cross)
        kappa = blocks.diag + self.noise[:, None]
        s = floor_positive(kappa - W.square().sum(-2, dtype=kappa.dtype), kappa, self.dtype)
        return Conditional(W, s.expand(self.n_classes, -1), blocks)

    def whiten(self, T: Float[Tensor, "C M M"], t: Float[Tensor, "C M"]) -> tuple[Tensor, Tensor]:
        """Move natural parameters from u-space to whitened space: LᵀTL, symmetric up to rounding, and Lᵀt."""
        return congruence(self.L, T), vector_times(t, self.L)

    def unwhiten(self, S: Float[Tensor, "C M M"], r: Float[Tensor, "C M"]) -> tuple[Tensor, Tensor]:
        """Move natural parameters from whitened space to u-space: L⁻ᵀSL⁻¹ and L⁻ᵀr."""
        return symmetrize(congruence(self.L_inverse, S)), vector_times(r, self.L_inverse)
