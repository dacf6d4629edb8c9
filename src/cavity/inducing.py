"""The sparse prior: inducing points Z, the covariance blocks of a batch, and Gaussians over the inducing values u.

Everything is kept in whitened coordinates, L⁻¹u with L = chol k(Z, Z): there the prior is N(0, I), the paper's υ_i is
a column w_i of W = L⁻¹ k(Z, X), and what EP knows of a row is a scalar. The class axis comes first and has length
1 where all classes share kernel and inducing points.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from torch import Tensor

from cavity.kernels import Kernel, Params
from cavity.numerics.limits import floor_positive, least_diagonal
from cavity.numerics.linalg import cholesky, columns_squared, inverse_lower, sum_to, symmetrise

KMEANS_ROWS = 5_000  # at least; more inducing points take more
ROWS_PER_CENTRE = 20
LLOYD_STEPS = 5


class Rows(NamedTuple):
    """The prior at the rows of one batch: W = L⁻¹k(Z,X) and the FITC conditional variance s (eq. 5)."""

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

    @cached_property
    def K(self) -> Tensor:
        """k(Z,Z) + noise · I, with no jitter; part of the autograd graph."""
        gram = self.kernel.gram(self.params, self.Z)
        noise = torch.exp(self.log_noise)[:, None].expand(-1, gram.shape[-1])
        return gram + torch.diag_embed(noise)

    @cached_property
    def _factor(self) -> tuple[Tensor, Tensor]:
        K = self.K.detach()
        diagonal = K.diagonal(dim1=-2, dim2=-1)
        noise = torch.exp(self.log_noise.detach())[:, None]
        missing = (least_diagonal(self.dtype) * diagonal.mean(-1, keepdim=True) - noise).clamp_min(0.0)
        return cholesky(K + torch.diag_embed(missing.expand_as(diagonal)))

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
        """The largest jitter that a failing factorisation needed."""
        return float(self._factor[1].max())

    def rows(self, X: Float[Tensor, "B D"], dtype: torch.dtype | None = None) -> Rows:
        """The blocks of a batch (eqs. 4 and 5); `dtype` where k(Z, X) is to have another than the prior's."""
        cross, kappa = self._blocks(X, self.dtype if dtype is None else dtype)
        W = torch.matmul(self.L_inverse, cross.detach())
        s = kappa.detach() - columns_squared(W)
        return Rows(cross, kappa, W, floor_positive(s, kappa.detach(), self.dtype).expand(self.n_classes, -1))

    def _blocks(self, X: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        params = {name: value.to(dtype) for name, value in self.params.items()}
        cross = self.kernel.cross(params, self.Z.to(dtype), X[None].to(dtype)).to(self.Z.dtype)
        kappa = self.kernel.diag(self.params, X[None].to(self.Z.dtype)) + torch.exp(self.log_noise)[:, None]
        return cross, kappa

    def whiten(self, T: Float[Tensor, "C M M"], t: Float[Tensor, "C M"]) -> tuple[Tensor, Tensor]:
        """Natural parameters of sites, from u-space: LᵀTL and Lᵀt."""
        L = self.L
        return symmetrise(L.mT @ T @ L), torch.matmul(t[:, None, :], L).squeeze(-2)

    def unwhiten(self, S: Float[Tensor, "C M M"], r: Float[Tensor, "C M"]) -> tuple[Tensor, Tensor]:
        """Natural parameters of sites, to u-space: L⁻ᵀSL⁻¹ and L⁻ᵀr."""
        L_inverse = self.L_inverse
        return symmetrise(L_inverse.mT @ S @ L_inverse), torch.matmul(r[:, None, :], L_inverse).squeeze(-2)

    def pull_back(self, rows: Rows, gradient: Gradient, leaf: Tensor) -> Tensor:
        """The gradient with respect to `leaf`, the tensor that all hyper-parameters are views of.

        Up to the kernel blocks it is closed-form; autograd runs through the kernel function alone.
        """
        L_inverse = self.L_inverse
        gram = L_inverse.mT @ gradient.gram @ L_inverse
        cross = torch.matmul(L_inverse.mT, gradient.cross)
        pairs = zip((self.K, rows.cross, rows.kappa), (gram, cross, gradient.kappa), strict=True)
        learned = [(block, sum_to(adjoint, block.shape)) for block, adjoint in pairs if block.requires_grad]
        blocks, adjoints = [block for block, _ in learned], [adjoint for _, adjoint in learned]
        return torch.autograd.grad(blocks, leaf, adjoints)[0] if learned else torch.zeros_like(leaf)


def sum_of_sites(
    W: Float[Tensor, "_ M B"], precision: Float[Tensor, "C B"], precision_mean: Float[Tensor, "C B"]
) -> tuple[Float[Tensor, "C M M"], Float[Tensor, "C M"]]:
    """Σ_i Δ_i w_i w_iᵀ and Σ_i ν_i w_i: the rank-one sites of eq. (8), summed and whitened."""
    S = torch.matmul(W * precision[:, None, :], W.mT.expand(len(precision), -1, -1))
    return S, torch.matmul(W, precision_mean[..., None]).squeeze(-1)


class Whitened(NamedTuple):
    """A Gaussian over L⁻¹u of every class: covariance P⁻¹, kept as R⁻¹ with R = chol P, and mean m."""

    R_inverse: Float[Tensor, "C M M"]
    m: Float[Tensor, "C M"]

    @classmethod
    def from_sites(cls, S: Float[Tensor, "C M M"], r: Float[Tensor, "C M"]) -> Whitened:
        """Prior times sites: P = I + S, m = P⁻¹r (supplement, "Reconstruction of the posterior")."""
        R, _ = cholesky(S + torch.eye(S.shape[-1], dtype=S.dtype, device=S.device))
        R_inverse = inverse_lower(R)
        return cls(R_inverse, torch.matmul(R_inverse.mT, torch.matmul(R_inverse, r[..., None])).squeeze(-1))

    def project(self, W: Float[Tensor, "_ M B"]) -> tuple[Tensor, Tensor, Tensor]:
        """Mean a and variance h of υᵀu for every row, and R⁻¹W."""
        V = torch.matmul(self.R_inverse, W)
        return torch.matmul(self.m[:, None, :], W).squeeze(-2), columns_squared(V), V

    def log_normaliser(self, r: Float[Tensor, "C M"]) -> Tensor:
        """g(q) − g(prior) of each class (eq. 9), r being the linear part of the sites."""
        return 0.5 * (r * self.m).sum(-1) + self.R_inverse.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def covariance(self) -> Float[Tensor, "C M M"]:
        """P⁻¹."""
        return torch.matmul(self.R_inverse.mT, self.R_inverse)

    def apply_covariance(self, V: Float[Tensor, "C M B"]) -> Float[Tensor, "C M B"]:
        """P⁻¹W, from V = R⁻¹W."""
        return torch.matmul(self.R_inverse.mT, V)


def prior_mismatch(q: Whitened) -> Float[Tensor, "C M M"]:
    """(η − η_prior)ᵀ ∂θ_prior in whitened coordinates: −½(I − P⁻¹ − mmᵀ), the first term of eq. (10)."""
    eye = torch.eye(q.m.shape[-1], dtype=q.m.dtype, device=q.m.device)
    return -0.5 * (eye - q.covariance() - q.m[:, :, None] * q.m[:, None, :])


def rows_gradient(
    q: Whitened,
    covW: Float[Tensor, "C M B"],
    W: Float[Tensor, "_ M B"],
    by_mean: Float[Tensor, "C B"],
    by_projection: Float[Tensor, "C B"],
    by_var: Float[Tensor, "C B"],
) -> Gradient:
    """What the rows give to the gradient (the sum of eq. 10, or its batch estimate of eq. 12), whitened.

    The three (C, B) tensors are ∂ log Z by the mean υᵀm, by w through P⁻¹w, and by the conditional variance s;
    `covW` is P⁻¹W.
    """
    G, half = _by_columns(q, covW, W, by_mean, by_projection, by_var)
    gram = torch.matmul(half - G, W.mT.expand(len(G), -1, -1))
    return Gradient(symmetrise(gram), G - 2.0 * half, by_var)


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
    G, half = _by_columns(q, covW, W, by_mean, by_projection, by_var)
    cross = G - 2.0 * half
    lower = torch.matmul(cross, W.mT.expand(len(G), -1, -1)).tril()
    return Gradient(-0.5 * (lower + lower.tril(-1).mT), cross, by_var)


def _by_columns(
    q: Whitened, covW: Tensor, W: Tensor, by_mean: Tensor, by_projection: Tensor, by_var: Tensor
) -> tuple[Float[Tensor, "C M B"], Float[Tensor, "C M B"]]:
    """The derivative by the columns of W along q's moments, and minus half of that along s."""
    G = covW * by_projection[:, None, :] + q.m[:, :, None] * by_mean[:, None, :]
    return G, W * by_var[:, None, :]


@dataclass(frozen=True)
class Posterior:
    """q(u), one Gaussian per class: what every method ends in and all that prediction needs.

    `epsilon` is the share of labels that the likelihood takes for random; 0 but for VI.
    """

    prior: Prior
    whitened: Whitened
    epsilon: float = 0.0

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of the inducing values, (C, M)."""
        return torch.matmul(self.prior.L, self.whitened.m[..., None]).squeeze(-1).cpu().numpy()

    @property
    def cov(self) -> NDArray[np.float64]:
        """Covariance of the inducing values, (C, M, M)."""
        half = torch.matmul(self.whitened.R_inverse, self.prior.L.mT)
        return torch.matmul(half.mT, half).cpu().numpy()

    def marginals(self, X: Float[Tensor, "B D"]) -> tuple[Float[Tensor, "C B"], Float[Tensor, "C B"]]:
        """Mean and variance of f, noise included, at new rows (supplement, "Predictive distribution").

        In double precision, whatever the training: a row's rounding errors depend on the rows beside it.
        """
        rows = self.prior.rows(X, torch.float64)
        a, h, _ = self.whitened.project(rows.W)
        return a, rows.s + h

    def to(self, device: torch.device) -> Posterior:
        """The same q(u) on another device, its autograd graph left behind."""
        p = self.prior
        params = {name: value.detach().to(device) for name, value in p.params.items()}
        prior = Prior(p.kernel, params, p.log_noise.detach().to(device), p.Z.detach().to(device), p.n_classes, p.dtype)
        return Posterior(prior, Whitened(*(x.to(device) for x in self.whitened)), self.epsilon)


def choose_inducing(
    X: NDArray[np.float64], y: NDArray[np.int64], n_classes: int, n_inducing: int, how: str, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Start values of the inducing points, (C, M, D), from rows of X; M is at most the number of rows to choose from.

    Args:
        how: "kmeans" (k-means++ of all rows, the same for every class), "kmeans-per-class" (half from the rows of the
            class, half from all) or "random" (rows drawn for each class apart, as in the paper).
    """
    if how == "random":
        n = min(n_inducing, len(X))
        return np.stack([X[rng.choice(len(X), n, replace=False)] for _ in range(n_classes)])
    n_sample = max(KMEANS_ROWS, ROWS_PER_CENTRE * n_inducing)
    if len(X) > n_sample:
        sample = rng.choice(len(X), n_sample, replace=False)
        X, y = X[sample], y[sample]
    distinct = np.unique(X, axis=0)
    n = min(n_inducing, len(distinct))
    if how == "kmeans":
        return np.broadcast_to(_centres(distinct, n, rng), (n_classes, n, X.shape[1])).copy()
    own_rows = [np.unique(X[y == k], axis=0) for k in range(n_classes)]
    return np.stack([_class_centres(distinct, own, n, rng) for own in own_rows])


def _class_centres(X: NDArray, own: NDArray, n: int, rng: np.random.Generator) -> NDArray:
    first = min(len(own), n // 2)
    parts = [_centres(own, first, rng)] if first else []
    return np.concatenate([*parts, _centres(X, n - first, rng)])


def _centres(distinct: NDArray, n: int, rng: np.random.Generator) -> NDArray:
    """n centres by k-means++ and a few Lloyd steps; the rows themselves when there are no more of them."""
    if n >= len(distinct):
        return distinct
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an emptied cluster keeps its seed, which is what we want
        centres, _ = kmeans2(distinct, _seeds(distinct, n, rng), iter=LLOYD_STEPS, minit="matrix")
    return centres


def _seeds(distinct: NDArray, n: int, rng: np.random.Generator) -> NDArray:
    """Rows drawn one by one with probability proportional to the squared distance from those drawn before.

    scipy's own seeding measures all distances anew for each row: minutes for a few hundred seeds in many dimensions.
    """
    X = distinct - distinct.mean(0)
    size = np.abs(X).max()
    X = X / size if size > 0 else X
    squares = (X**2).sum(1)
    chosen, nearest = [int(rng.integers(len(X)))], np.full(len(X), np.inf)
    while len(chosen) < n:
        last = chosen[-1]
        nearest = np.minimum(nearest, np.maximum(squares + squares[last] - 2.0 * (X @ X[last]), 0.0))
        nearest[last] = 0.0
        chosen.append(_draw(nearest, chosen, rng))
    return distinct[chosen]


def _draw(weight: NDArray, taken: list[int], rng: np.random.Generator) -> int:
    total = weight.sum()
    if total > 0:
        return int(rng.choice(len(weight), p=weight / total))
    return int(rng.choice(np.setdiff1d(np.arange(len(weight)), taken)))  # distances below rounding: any row left
