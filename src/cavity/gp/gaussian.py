"""Gaussians over the inducing values u: products of sites, q in whitened coordinates, and the posterior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from cavity.gp.prior import Prior
from cavity.gp.residual import Residual
from cavity.numerics.limits import floor_positive
from cavity.numerics.linalg import add_to_diagonal_, cholesky, inverse_lower, lower_times, times_vector, vector_times


class Natural(NamedTuple):
    """Natural parameters of a product of sites over L⁻¹u: precision S, and r = precision × mean."""

    S: Float[Tensor, "C M M"]
    r: Float[Tensor, "C M"]


def sum_of_sites(
    W: Float[Tensor, "_ M B"], precision: Float[Tensor, "C B"], precision_mean: Float[Tensor, "C B"]
) -> Natural:
    """Sum the rank-one sites of eq. (8), whitened, by one product: Σ_i Δ_i w_i w_iᵀ and Σ_i ν_i w_i."""
    (C, B), M = precision.shape, W.shape[-2]
    scaled = W.new_empty(C, M + 1, B)
    torch.mul(W, precision[:, None, :], out=scaled[:, :M])
    scaled[:, M] = precision_mean
    both = torch.matmul(scaled, W.mT.expand(C, -1, -1))
    return Natural(both[:, :M], both[:, M])


@dataclass(frozen=True)
class Whitened:
    """A Gaussian over L⁻¹u of every class: covariance P⁻¹, kept as R⁻¹ with R = chol P, and mean m."""

    R_inverse: Float[Tensor, "*_ C M M"]
    m: Float[Tensor, "*_ C M"]

    @classmethod
    def from_sites(
        cls, S: Float[Tensor, "C M M"], r: Float[Tensor, "C M"], keep: Float[Tensor, "*_ C"] | None = None
    ) -> Whitened:
        """Multiply the prior by sites: P = I + S, m = P⁻¹r (supplement, "Reconstruction of the posterior").

        `keep` is the fraction of the sites to multiply in; further axes of it give as many Gaussians.
        """
        P, r = (S.clone(), r) if keep is None else (keep[..., None, None] * S, keep[..., None] * r)
        R = cholesky(add_to_diagonal_(P, 1.0))
        del P  # with many classes it is the largest tensor
        R_inverse = inverse_lower(R)
        return cls(R_inverse, vector_times(times_vector(R_inverse, r), R_inverse))

    def project(self, W: Float[Tensor, "_ M B"]) -> tuple[Tensor, Tensor]:
        """Return mean a and variance h of υᵀu for every row."""
        return vector_times(self.m, W), lower_times(self.R_inverse, W).square_().sum(-2)

    def project_with_covariance(self, W: Float[Tensor, "_ M B"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return a, h and P⁻¹W, by one product with the rows."""
        covW = torch.matmul(self.covariance, W)
        return vector_times(self.m, W), (W * covW).sum(-2), covW

    def log_normalizer(self, r: Float[Tensor, "*_ C M"]) -> Tensor:
        """Return g(q) − g(prior) of each class (eq. 9); r is the linear part of the sites."""
        return 0.5 * (r * self.m).sum(-1) + self.R_inverse.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @cached_property
    def covariance(self) -> Float[Tensor, "*_ C M M"]:
        """P⁻¹."""
        return torch.matmul(self.R_inverse.mT, self.R_inverse)


@dataclass(frozen=True)
class Posterior:
    """q(u), one Gaussian per class: the result of every method, and all that prediction needs.

    `epsilon` is the fraction of labels that are random, each class with ε/C; 0 except for VI. A vector instead has the
    part of each class: calibration shrinks probabilities towards class frequencies this way. `sharpness` multiplies the
    means of f before they become probabilities; 1 unless the model is calibrated. `residual` says how much of
    the variance of f given u is open to learning; None, as in files of cavity 0.1, takes all of it for open.
    """

    prior: Prior
    whitened: Whitened
    epsilon: float | Float[Tensor, "C"] = 0.0
    sharpness: float = 1.0
    residual: Residual | None = None

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of the inducing values, (C, M)."""
        return times_vector(self.prior.L, self.whitened.m).cpu().numpy()

    @property
    def cov(self) -> NDArray[np.float64]:
        """Covariance of the inducing values, (C, M, M)."""
        half = torch.matmul(self.whitened.R_inverse, self.prior.L.mT)
        return torch.matmul(half.mT, half).cpu().numpy()

    def marginals(self, X: Float[Tensor, "B D"]) -> tuple[Float[Tensor, "C B"], Float[Tensor, "C B"]]:
        """Return mean and variance of f, noise included, at new rows (supplement, "Predictive distribution").

        Always in double precision: the rounding errors of a row depend on the rows that are computed with it.
        """
        f = self.prior.conditional(X, in_double=True)
        a, h = self.whitened.project(f.W)
        return a, f.s + h

    def parts(self, X: Float[Tensor, "B D"]) -> tuple[Float[Tensor, "C B"], Float[Tensor, "C B"], Float[Tensor, "C B"]]:
        """Return the mean of f and two parts of its variance: what more rows would remove, and what would remain."""
        f = self.prior.conditional(X, in_double=True)
        a, h = self.whitened.project(f.W)
        residual = (f.s - self.prior.noise[:, None]).clamp_min(0.0)
        if self.residual is None:
            return a, h + residual, f.s - residual
        share = self.residual.open_share(residual, f.blocks.diag.expand_as(residual))
        open_part, whole = h + share * residual, f.s + h
        if self.sharpness < 1.0:  # held-out rows have shown noise that the model misses: it is as large at every row
            widened, beyond = 1.0 - self.sharpness**2, (whole - self.residual.typical[:, None]).clamp_min(0.0)
            open_part = torch.lerp(open_part, torch.minimum(open_part, beyond), widened)
        return a, open_part, floor_positive(whole - open_part, whole, whole.dtype)

    def to(self, device: torch.device) -> Posterior:
        """Return a copy on another device, detached from any autograd graph."""
        params = {name: value.detach().to(device) for name, value in self.prior.params.items()}
        log_noise, Z = (x.detach().to(device) for x in (self.prior.log_noise, self.prior.Z))
        whitened = Whitened(self.whitened.R_inverse.to(device), self.whitened.m.to(device))
        residual = None if self.residual is None else Residual(*(part.to(device) for part in self.residual))
        epsilon = self.epsilon.to(device) if isinstance(self.epsilon, Tensor) else self.epsilon
        prior = replace(self.prior, params=params, log_noise=log_noise, Z=Z)
        return replace(self, prior=prior, whitened=whitened, epsilon=epsilon, residual=residual)
