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
from cavity.numerics.linalg import (
    add_to_diagonal_,
    cholesky,
    inverse_lower,
    lower_times,
    square_of_lower,
    times_vector,
    vector_times,
)

# The terms of `Thinned` and the largest fraction of the sites for them: what is left out is below 1e-10.
SERIES = {2: 1e-5, 3: 1e-4}
SOLVED_ROWS = 1.5  # for each inducing point, up to which a triangular solve is faster than an inverse and a product


class Natural(NamedTuple):
    """Natural parameters of a product of sites over L⁻¹u: precision S, and r = precision × mean."""

    S: Float[Tensor, "C M M"]
    r: Float[Tensor, "C M"]


def sum_of_sites(
    W: Float[Tensor, "_ M B"], precision: Float[Tensor, "C B"], precision_mean: Float[Tensor, "C B"]
) -> Natural:
    """Sum the rank-one sites of eq. (8), whitened, by one product: Σ_i Δ_i w_i w_iᵀ and Σ_i ν_i w_i.

    The product has the precision of W, its result that of the sites.
    """
    (C, B), M = precision.shape, W.shape[-2]
    scaled = W.new_empty(C, M + 1, B)
    torch.mul(W, precision[:, None, :], out=scaled[:, :M])
    scaled[:, M] = precision_mean
    both = torch.matmul(scaled, W.mT.expand(C, -1, -1)).to(precision.dtype)
    return Natural(both[:, :M], both[:, M])


def project_sites(
    natural: Natural, W: Float[Tensor, "_ M B"], keep: Float[Tensor, "C"] | None = None
) -> tuple[Float[Tensor, "C B"], Float[Tensor, "C B"]]:
    """Return mean and variance of υᵀu for every row under the prior times sites, of which `keep` is the fraction.

    The same as `Whitened.from_sites(…).project(W)`; on a CPU, for few rows, by one triangular solve without an inverse.
    """
    S, r = natural
    if W.is_cuda or W.shape[-1] > SOLVED_ROWS * W.shape[-2]:
        return Whitened.from_sites(S, r, keep).project(W)
    R = _factor(S, keep)
    r = r if keep is None else keep[:, None] * r
    columns = torch.cat([W.expand(len(S), -1, -1), r[:, :, None].to(W.dtype)], -1)
    half = torch.linalg.solve_triangular(R.to(W.dtype), columns, upper=False)
    a = vector_times(half[..., -1], half[..., :-1])
    return a.to(r.dtype), half[..., :-1].square().sum(-2, dtype=r.dtype)


def _factor(S: Float[Tensor, "C M M"], keep: Float[Tensor, "*_ C"] | None) -> Float[Tensor, "*_ C M M"]:
    """Return R = chol P of P = I + S, or of I + keep · S."""
    P = S.clone() if keep is None else keep[..., None, None] * S
    return cholesky(add_to_diagonal_(P, 1.0))


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
        r = r if keep is None else keep[..., None] * r
        R_inverse = inverse_lower(_factor(S, keep))
        return cls(R_inverse, vector_times(times_vector(R_inverse, r), R_inverse))

    def project(self, W: Float[Tensor, "_ M B"]) -> tuple[Tensor, Tensor]:
        """Return mean a and variance h of υᵀu for every row. Products have the precision of W, sums that of q."""
        half = lower_times(self.R_inverse.to(W.dtype), W)
        return self._project_mean(W), half.square_().sum(-2, dtype=self.m.dtype)

    def project_with_covariance(self, W: Float[Tensor, "_ M B"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return a, h and P⁻¹W, by one product with the rows."""
        covW = torch.matmul(self.covariance.to(W.dtype), W)
        return self._project_mean(W), (W * covW).sum(-2, dtype=self.m.dtype), covW

    def _project_mean(self, W: Float[Tensor, "_ M B"]) -> Float[Tensor, "*_ C B"]:
        return vector_times(self.m.to(W.dtype), W).to(self.m.dtype)

    def log_normalizer(self, r: Float[Tensor, "*_ C M"]) -> Tensor:
        """Return g(q) − g(prior) of each class (eq. 9); r is the linear part of the sites."""
        return 0.5 * (r * self.m).sum(-1) + self.R_inverse.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @cached_property
    def covariance(self) -> Float[Tensor, "*_ C M M"]:
        """P⁻¹."""
        return square_of_lower(self.R_inverse)


@dataclass(frozen=True)
class Thinned:
    """q without a small fraction δ of its sites, by a series instead of another factorization.

    Its precision is (1 − δ)P + δI, so with ε = δ/(1 − δ) its covariance is (P⁻¹ − εP⁻² + ε²P⁻³ − …)/(1 − δ). No
    eigenvalue of P⁻¹ exceeds 1, so what is left out is smaller than the last term by a factor of ε.

    Args:
        q: the Gaussian with all sites.
        keep: 1 − δ of every class.
        terms: of the series.
    """

    q: Whitened
    keep: Float[Tensor, "C"]
    terms: int

    @classmethod
    def terms_for(cls, keep: Float[Tensor, "C"]) -> int | None:
        """Return how many terms give the precision of the factorization; None if they cost more than that, or a GPU."""
        if keep.is_cuda:
            return None
        removed = 1.0 - float(keep.min())
        return next((terms for terms, most in SERIES.items() if removed <= most), None)

    @cached_property
    def m(self) -> Float[Tensor, "C M"]:
        """The mean: (1 − δ) P'⁻¹r = m − εP⁻¹m + …, with one more term, because log Z multiplies its error by 1/δ."""
        return self._series(self.q.covariance, self.q.m[..., None], self.terms + 1)[..., 0]

    def project_with_covariance(self, W: Float[Tensor, "_ M B"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and variance of υᵀu for every row, and the covariance times W."""
        C, keep = self.q.covariance.to(W.dtype), self.keep[:, None, None].to(W.dtype)
        covW = self._series(C, torch.matmul(C, W), self.terms).div_(keep)
        return vector_times(self.m.to(W.dtype), W).to(self.m.dtype), (W * covW).sum(-2, dtype=self.m.dtype), covW

    def log_normalizer_ratio(self, r: Float[Tensor, "C M"]) -> Float[Tensor, "C"]:
        """Return g of this Gaussian less g(q) (eq. 9); r is the linear part of all sites."""
        C, keep = self.q.covariance, self.keep
        epsilon = (1.0 - keep) / keep
        trace, of_square = C.diagonal(dim1=-2, dim2=-1).sum(-1), C.square().sum((-2, -1))
        log_det = C.shape[-1] * keep.log() + epsilon * trace - 0.5 * epsilon.square() * of_square
        return 0.5 * ((r * (keep[:, None] * self.m - self.q.m)).sum(-1) - log_det)

    def _series(self, C: Float[Tensor, "C M M"], first: Float[Tensor, "C M n"], terms: int) -> Float[Tensor, "C M n"]:
        """Return (I − εC + ε²C² − …) times the first term, for C = P⁻¹."""
        factor, total = (1.0 - 1.0 / self.keep)[:, None, None].to(first.dtype), first
        for _ in range(terms - 1):  # first − εC (first − εC (…)), by Horner's rule
            total = torch.addcmul(first, factor, torch.matmul(C, total))
        return total


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

    def parts(
        self, X: Float[Tensor, "B D"], left_out: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Float[Tensor, "C B"], Float[Tensor, "C B"], Float[Tensor, "C B"]]:
        """Return the mean of f and two parts of its variance: what more rows would remove, and what would remain.

        At training rows, `left_out` can be mean and variance of f from the other rows, to use in place of those of q.
        """
        f = self.prior.conditional(X, in_double=True)
        a, h = self.whitened.project(f.W)
        if left_out is not None:
            a, h = left_out[0], (left_out[1] - f.s).clamp_min(0.0)
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
