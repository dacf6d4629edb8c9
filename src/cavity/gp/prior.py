"""The sparse prior: inducing points Z, the covariance blocks of a batch, and Gaussians over the inducing values u.

Everything is kept in whitened coordinates, L⁻¹u with L = chol k(Z, Z): there the prior is N(0, I), the paper's υ_i is
a column w_i of W = L⁻¹ k(Z, X), and what EP knows of a row is a scalar. The class axis comes first and has length
1 where all classes share kernel and inducing points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from cavity.kernels import Kernel, Params
from cavity.kernels.base import Anchored
from cavity.numerics.limits import floor_positive, least_diagonal
from cavity.numerics.linalg import (
    add_to_diagonal_,
    cholesky,
    columns_squared,
    inverse_lower,
    sum_to,
    symmetrize,
    times_vector,
    vector_times,
)

KERNEL = "kernel."  # before the names of the kernel's parameters


class Rows(NamedTuple):
    """The prior at the rows of one batch: W = L⁻¹k(Z,X) and the FITC conditional variance s (eq. 5)."""

    X: Float[Tensor, "B D"]
    cross: Float[Tensor, "_ M B"]
    kappa: Float[Tensor, "_ B"]
    W: Float[Tensor, "_ M B"]
    s: Float[Tensor, "C B"]


class Gradient(NamedTuple):
    """∂ log Z_q with respect to the three kernel blocks, whitened where that saves a solve.

    `cross` is Lᵀ ∂/∂k(Z,X), `gram` is Lᵀ (∂/∂K) L, `kappa` is ∂/∂κ.
    """

    gram: Float[Tensor, "C M M"]
    cross: Float[Tensor, "C M B"]
    kappa: Float[Tensor, "C B"]


@dataclass(frozen=True)
class Prior:
    """p(u) and p(f | u) at one setting of the hyper-parameters.

    Args:
        kernel: the covariance function.
        params: its parameters in log space.
        log_noise: log of the latent noise variance of each class; it stands on the diagonal of K and on κ, never on
            k(Z, X).
        Z: inducing points.
        n_classes: C, which the shapes do not tell when everything is shared.
        dtype: precision of k(Z, X); K and all factors are float64.
    """

    kernel: Kernel
    params: Params
    log_noise: Float[Tensor, "_"]
    Z: Float[Tensor, "_ M D"]
    n_classes: int
    dtype: torch.dtype = torch.float64
    _whitened: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list, init=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """What was given; what follows from it is made anew."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init} | {"_whitened": []}

    @cached_property
    def anchored(self) -> Anchored:
        """The kernel at these parameters and inducing points."""
        return self.kernel.anchor(self.params, self.Z, self.dtype)

    @cached_property
    def noise(self) -> Float[Tensor, "_"]:
        """The latent noise variance of each class."""
        return torch.exp(self.log_noise)

    @cached_property
    def K(self) -> Float[Tensor, "_ M M"]:
        """k(Z,Z) + noise · I, with no jitter."""
        gram = self.anchored.gram
        return add_to_diagonal_(gram.expand(max(len(gram), len(self.noise)), -1, -1).clone(), self.noise[:, None])

    @cached_property
    def _factor(self) -> tuple[Tensor, Tensor]:
        mean = self.K.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
        missing = (least_diagonal(self.dtype) * mean - self.noise[:, None]).clamp_min(0.0)
        return cholesky(add_to_diagonal_(self.K.clone(), missing))

    @property
    def L(self) -> Tensor:
        """The Cholesky factor of K."""
        return self._factor[0]

    @cached_property
    def L_inverse(self) -> Tensor:
        """L⁻¹."""
        return inverse_lower(self.L)

    @property
    def jitter(self) -> float:
        """The largest jitter that a failing factorization needed."""
        return float(self._factor[1].max())

    @cached_property
    def _exact(self) -> Anchored:
        is_exact = self.dtype == self.Z.dtype
        return self.anchored if is_exact else self.kernel.anchor(self.params, self.Z, self.Z.dtype)

    def rows(self, X: Float[Tensor, "B D"], exact: bool = False) -> Rows:
        """The blocks of a batch (eqs. 4 and 5); `exact`: k(Z, X) in double precision whatever the training."""
        anchored = self._exact if exact else self.anchored
        cross = anchored.cross(X)
        W = torch.matmul(self.L_inverse, cross)
        kappa = anchored.diag(X) + self.noise[:, None]
        s = floor_positive(kappa - columns_squared(W), kappa, self.dtype)
        return Rows(X, cross, kappa, W, s.expand(self.n_classes, -1))

    def whiten(self, T: Float[Tensor, "C M M"], t: Float[Tensor, "C M"]) -> tuple[Tensor, Tensor]:
        """Natural parameters of sites, from u-space: LᵀTL, symmetric up to rounding, and Lᵀt."""
        if self._whitened and self._whitened[0][0] is T:
            return self._whitened[0][1:]
        L = self.L
        return L.mT @ T @ L, vector_times(t, L)

    def unwhiten(self, S: Float[Tensor, "C M M"], r: Float[Tensor, "C M"]) -> tuple[Tensor, Tensor]:
        """Natural parameters of sites, to u-space: L⁻ᵀSL⁻¹ and L⁻ᵀr."""
        L_inverse = self.L_inverse
        return symmetrize(L_inverse.mT @ S @ L_inverse), vector_times(r, L_inverse)

    def knows(self, T: Tensor, S: Float[Tensor, "C M M"], r: Float[Tensor, "C M"]) -> None:
        """Whitening T gives S and r: found on the way, two products saved."""
        self._whitened[:] = [(T, S, r)]

    def pull_back(self, rows: Rows, gradient: Gradient) -> dict[str, Tensor]:
        """The gradient by the hyper-parameters, from that by the kernel blocks of these rows."""
        gram, cross, kappa = gradient
        if len(self.L) == 1:  # all classes share it, so their sum takes one product
            gram, cross, kappa = (by.sum(0, keepdim=True) for by in gradient)
        by_gram = self.L_inverse.mT @ gram @ self.L_inverse
        by_cross = torch.matmul(self.L_inverse.mT, cross)
        by_noise = by_gram.diagonal(dim1=-2, dim2=-1).sum(-1) + kappa.sum(-1)
        by_noise = self.noise * sum_to(by_noise, self.noise.shape)
        by_params, by_Z = self.anchored.pull_back(rows.X, by_gram, by_cross, kappa)
        return {"Z": by_Z, "log_noise": by_noise} | {KERNEL + name: by for name, by in by_params.items()}


def sum_of_sites(
    W: Float[Tensor, "_ M B"], precision: Float[Tensor, "C B"], precision_mean: Float[Tensor, "C B"]
) -> tuple[Float[Tensor, "C M M"], Float[Tensor, "C M"]]:
    """Σ_i Δ_i w_i w_iᵀ and Σ_i ν_i w_i: the rank-one sites of eq. (8), summed and whitened, by one product."""
    (C, B), M = precision.shape, W.shape[-2]
    scaled = W.new_empty(C, M + 1, B)
    torch.mul(W, precision[:, None, :], out=scaled[:, :M])
    scaled[:, M] = precision_mean
    both = torch.matmul(scaled, W.mT.expand(C, -1, -1))
    return both[:, :M], both[:, M]


@dataclass(frozen=True)
class Whitened:
    """A Gaussian over L⁻¹u of every class: covariance P⁻¹, kept as R⁻¹ with R = chol P, and mean m."""

    R_inverse: Float[Tensor, "*_ C M M"]
    m: Float[Tensor, "*_ C M"]

    @classmethod
    def from_sites(
        cls, S: Float[Tensor, "C M M"], r: Float[Tensor, "C M"], share: Float[Tensor, "*_ C"] | None = None
    ) -> Whitened:
        """Prior times sites, or a share: P = I + S, m = P⁻¹r (supplement, "Reconstruction of the posterior")."""
        P, r = (S.clone(), r) if share is None else (share[..., None, None] * S, share[..., None] * r)
        R = cholesky(add_to_diagonal_(P, 1.0))[0]
        del P  # with many classes the largest there is
        R_inverse = inverse_lower(R)
        return cls(R_inverse, vector_times(times_vector(R_inverse, r), R_inverse))

    def unbind(self) -> Iterator[Whitened]:
        """One for each entry of the first axis."""
        return map(Whitened, self.R_inverse, self.m)

    def project(self, W: Float[Tensor, "_ M B"]) -> tuple[Tensor, Tensor]:
        """Mean a and variance h of υᵀu for every row."""
        return vector_times(self.m, W), torch.matmul(self.R_inverse, W).square_().sum(-2)

    def gather(self, W: Float[Tensor, "_ M B"]) -> tuple[Tensor, Tensor, Tensor]:
        """The same a and h, and P⁻¹W: one product with the rows where both are needed."""
        covW = torch.matmul(self.covariance, W)
        return vector_times(self.m, W), (W * covW).sum(-2), covW

    def log_normalizer(self, r: Float[Tensor, "*_ C M"]) -> Tensor:
        """g(q) − g(prior) of each class (eq. 9), r being the linear part of the sites."""
        return 0.5 * (r * self.m).sum(-1) + self.R_inverse.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @cached_property
    def covariance(self) -> Float[Tensor, "*_ C M M"]:
        """P⁻¹."""
        return torch.matmul(self.R_inverse.mT, self.R_inverse)

    def to(self, device: torch.device) -> Whitened:
        """The same on another device."""
        return Whitened(self.R_inverse.to(device), self.m.to(device))


def prior_mismatch(q: Whitened, share: float = 1.0) -> Float[Tensor, "C M M"]:
    """(η − η_prior)ᵀ ∂θ_prior in whitened coordinates: ½(P⁻¹ + mmᵀ − I), the first term of eq. (10); a share of it."""
    second_moment = torch.baddbmm(q.covariance, q.m[:, :, None], q.m[:, None, :])
    return add_to_diagonal_(second_moment.mul_(0.5 * share), -0.5 * share)


def rows_gradient(
    q: Whitened,
    covW: Float[Tensor, "C M B"],
    W: Float[Tensor, "_ M B"],
    by_mean: Float[Tensor, "C B"],
    by_projection: Float[Tensor, "C B"],
    by_var: Float[Tensor, "C B"],
    gram: Float[Tensor, "C M M"],
) -> Gradient:
    """`gram`, and what the rows add to it (the sum of eq. 10, or its batch estimate of eq. 12), whitened.

    The three (C, B) tensors are ∂ log Z by the mean υᵀm, by w through P⁻¹w, and by the conditional variance s;
    `covW` is P⁻¹W; it and `gram` are overwritten.
    """
    by_W = _along_q(q, covW, by_mean, by_projection).addcmul_(W, by_var[:, None, :], value=-1.0)
    gram.baddbmm_(by_W, W.mT.expand(len(covW), -1, -1), alpha=-1.0)
    return Gradient(torch.lerp(gram, gram.mT, 0.5), by_W.addcmul_(W, by_var[:, None, :], value=-1.0), by_var)


def whitened_gradient(
    q: Whitened,
    covW: Float[Tensor, "C M B"],
    W: Float[Tensor, "_ M B"],
    by_mean: Float[Tensor, "C B"],
    by_projection: Float[Tensor, "C B"],
    by_var: Float[Tensor, "C B"],
) -> Gradient:
    """The same where q stays put in whitened coordinates: K matters through W = L⁻¹k(Z,X) alone.

    dW = −Φ(L⁻¹ dK L⁻ᵀ) W, Φ taking the lower triangle and half of the diagonal.
    """
    by_W = _along_q(q, covW, by_mean, by_projection).addcmul_(W, by_var[:, None, :], value=-2.0)
    lower = torch.matmul(by_W, W.mT.expand(len(covW), -1, -1)).tril()
    return Gradient(-0.5 * (lower + lower.tril(-1).mT), by_W, by_var)


def _along_q(
    q: Whitened, covW: Float[Tensor, "C M B"], by_mean: Float[Tensor, "C B"], by_projection: Float[Tensor, "C B"]
) -> Float[Tensor, "C M B"]:
    """The derivative by the columns of W through q's moments, in the memory of covW."""
    return covW.mul_(by_projection[:, None, :]).addcmul_(q.m[:, :, None], by_mean[:, None, :])


@dataclass(frozen=True)
class Posterior:
    """q(u), one Gaussian per class: what every method ends in and all that prediction needs.

    `epsilon` is the share of labels that the likelihood takes for random; 0 but for VI. `sharpness` multiplies the
    means of f that probabilities are made of; 1 but for calibrated models.
    """

    prior: Prior
    whitened: Whitened
    epsilon: float = 0.0
    sharpness: float = 1.0

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
        """Mean and variance of f, noise included, at new rows (supplement, "Predictive distribution").

        In double precision, whatever the training: a row's rounding errors depend on the rows beside it.
        """
        rows = self.prior.rows(X, exact=True)
        a, h = self.whitened.project(rows.W)
        return a, rows.s + h

    def to(self, device: torch.device) -> Posterior:
        """The same q(u) on another device, its autograd graph left behind."""
        p = self.prior
        params = {name: value.detach().to(device) for name, value in p.params.items()}
        prior = Prior(p.kernel, params, p.log_noise.detach().to(device), p.Z.detach().to(device), p.n_classes, p.dtype)
        return Posterior(prior, self.whitened.to(device), self.epsilon, self.sharpness)
