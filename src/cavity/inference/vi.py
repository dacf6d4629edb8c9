"""Variational inference with the robust likelihood (the paper's section "Related Work", after Hensman et al., 2015).

The bound Σ_i E_q[log p(y_i | f_i)] − KL[q(u) ‖ p(u)] is maximized over q(u) and the hyper-parameters. The likelihood
gives a wrong label the probability ε/C; its expected logarithm is linear in P(f^y is the largest), an integral in one
dimension. Two ways to move q: `VI` by natural gradients in whitened coordinates, `PlainVI` by the gradient of mean and
Cholesky factor in u-space, together with the hyper-parameters, as the paper does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.prior import (
    Posterior,
    Prior,
    Rows,
    Whitened,
    prior_mismatch,
    rows_gradient,
    sum_of_sites,
    whitened_gradient,
)
from cavity.inference.base import Batch, Objective, relative_change
from cavity.numerics.linalg import symmetrize, times_vector, vector_times
from cavity.numerics.quadrature import win_probability
from cavity.runtime.distributed import SINGLE_PROCESS, Workers

EPSILON = 1e-3


class Expected(NamedTuple):
    """Σ E_q[log p(y | f)] of a batch, scaled to all rows, and its derivatives by the marginal means and variances."""

    log_lik: Tensor
    by_mean: Float[Tensor, "C B"]
    by_var: Float[Tensor, "C B"]


def expected_log_lik(mean: Float[Tensor, "C B"], var: Float[Tensor, "C B"], batch: Batch) -> Expected:
    """The first term of the bound (eq. 15): p log(1 − ε + ε/C) + (1 − p) log(ε/C) for every row."""
    C = len(mean)
    wrong, right = math.log(EPSILON / C), math.log1p(EPSILON / C - EPSILON)
    win = win_probability(mean, var, batch.own)
    weight = batch.scale * batch.weight
    slope = weight * (right - wrong)
    return Expected((weight * wrong + slope * win.p).sum(), slope * win.by_mean, slope * win.by_var)


def kl_from_prior(q: Whitened) -> Float[Tensor, "C"]:
    """KL[q(u) ‖ p(u)] of each class: in whitened coordinates the prior is N(0, I)."""
    log_det = q.R_inverse.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    trace = q.R_inverse.square().sum((-2, -1))
    return 0.5 * (trace + q.m.square().sum(-1) - q.m.shape[-1]) - log_det


class VIState(NamedTuple):
    """Natural parameters of q over L⁻¹u, less those of the prior: P − I and Pm."""

    S: Float[Tensor, "C M M"]
    r: Float[Tensor, "C M"]


class VI:
    """Natural-gradient steps for a whitened q; memory O(CM²)."""

    keeps_rows = False
    learns_q = False
    mixes = True

    def __init__(self, workers: Workers = SINGLE_PROCESS) -> None:
        self.workers = workers

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> VIState:
        """q is the prior."""
        C, M = prior.n_classes, prior.Z.shape[-2]
        return VIState(prior.Z.new_zeros(C, M, M), prior.Z.new_zeros(C, M))

    def update(self, prior: Prior, rows: Rows, state: VIState, batch: Batch, damping: float | Tensor) -> VIState:
        """A natural-gradient step of length `damping`.

        Its target has precision P̂ = I − 2 Σ (∂E/∂v) w wᵀ, which need not be positive definite: the factors are not
        log-concave. With G = P − P̂ the step P − ρG + ½ρ² G P⁻¹ G always is (Lin, Schmidt and Khan, 2020).
        """
        q = Whitened.from_sites(*state)
        a, h = q.project(rows.W)
        found = expected_log_lik(a, rows.s + h, batch)
        target, pull = self.workers.sum(*sum_of_sites(rows.W, -2.0 * found.by_var, found.by_mean))
        G = state.S - target
        half = torch.matmul(q.R_inverse, G)
        S = symmetrize(state.S - damping * G + 0.5 * damping**2 * torch.matmul(half.mT, half))
        return VIState(S, vector_times(q.m, S) + torch.lerp(q.m, pull, damping))

    def objective(self, prior: Prior, rows: Rows, state: VIState, batch: Batch, exact: bool = False) -> Objective:
        """The bound (eq. 15), and its gradient with q fixed in whitened coordinates: the KL does not move."""
        q = Whitened.from_sites(*state)
        a, h, covW = q.gather(rows.W)
        found = expected_log_lik(a, rows.s + h, batch)
        slopes = found.by_mean, 2.0 * found.by_var, found.by_var
        bound = found.log_lik - kl_from_prior(q).sum() / self.workers.size
        return Objective(bound, lambda: whitened_gradient(q, covW, rows.W, *slopes))

    def refresh(self, prior: Prior, state: VIState, batches: Iterable[Batch]) -> VIState:
        """Nothing to do: no row is remembered."""
        return state

    def posterior(self, prior: Prior, state: VIState) -> Posterior:
        """q(u)."""
        return Posterior(prior, Whitened.from_sites(*state), EPSILON)

    def change(self, old: VIState, new: VIState) -> float:
        """The largest change of a natural parameter."""
        return relative_change(old, new)


class PlainVI:
    """The paper's version: q's mean and Cholesky factor in u-space are parameters like any other.

    The state is the vector of all of them, the means first, then the lower triangles with the logarithm of their
    diagonals.
    """

    keeps_rows = False
    learns_q = True
    mixes = True

    def __init__(self, workers: Workers = SINGLE_PROCESS) -> None:
        self.workers = workers

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> Tensor:
        """q is the prior."""
        mean = prior.Z.new_zeros(prior.n_classes, prior.Z.shape[-2])
        L = prior.L.expand(prior.n_classes, -1, -1)
        log_diagonal = L.diagonal(dim1=-2, dim2=-1).log()
        return _flat(mean, L.tril(-1) + torch.diag_embed(log_diagonal))

    def update(self, prior: Prior, rows: Rows, state: Tensor, batch: Batch, damping: float | Tensor) -> Tensor:
        """Nothing to do: the optimizer moves q."""
        return state

    def objective(self, prior: Prior, rows: Rows, state: Tensor, batch: Batch, exact: bool = False) -> Objective:
        """The bound (eq. 15), its gradient with q(u) fixed, and its gradient by q."""
        q = _whitened(prior, state)
        a, h, covW = q.gather(rows.W)
        found = expected_log_lik(a, rows.s + h, batch)
        slopes = found.by_mean, 2.0 * found.by_var, found.by_var
        share = 1.0 / self.workers.size
        bound, by_q = found.log_lik - share * kl_from_prior(q).sum(), _by_q(prior, rows, q, found, share)
        return Objective(bound, lambda: rows_gradient(q, covW, rows.W, *slopes, prior_mismatch(q, share)), by_q)

    def refresh(self, prior: Prior, state: Tensor, batches: Iterable[Batch]) -> Tensor:
        """Nothing to do: no row is remembered."""
        return state

    def posterior(self, prior: Prior, state: Tensor) -> Posterior:
        """q(u)."""
        return Posterior(prior, _whitened(prior, state), EPSILON)

    def change(self, old: Tensor, new: Tensor) -> float:
        """The largest change of a parameter of q."""
        return relative_change([old], [new])


def _whitened(prior: Prior, state: Tensor) -> Whitened:
    """L⁻¹m and (L⁻¹Q)ᵀ, where the covariance of u is QQᵀ."""
    C, M = prior.n_classes, prior.Z.shape[-2]
    mean, lower = state[: C * M].view(C, M), state.new_zeros(C, M, M)
    i, j = torch.tril_indices(M, M, device=state.device)
    lower[:, i, j] = state[C * M :].view(C, -1)
    Q = lower.tril(-1) + torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1).exp())
    L_inverse = prior.L_inverse
    return Whitened(torch.matmul(L_inverse, Q).mT, times_vector(L_inverse, mean))


def _by_q(prior: Prior, rows: Rows, q: Whitened, found: Expected, share: float) -> Tensor:
    """The gradient by the state: of the mean L⁻ᵀ(W ∂E/∂a − m), of the factor L⁻ᵀ(2 W diag(∂E/∂v) Wᵀ Q − Q + Q⁻ᵀ).

    What comes from the KL is taken by a share.
    """
    target, pull = sum_of_sites(rows.W, 2.0 * found.by_var, found.by_mean)
    Q, L_inverse = q.R_inverse.mT, prior.L_inverse
    by_factor = torch.matmul(target, Q) - share * Q
    by_mean = vector_times(pull - share * q.m, L_inverse)
    by_factor = torch.matmul(L_inverse.mT, by_factor).tril()
    diagonal = torch.matmul(prior.L, Q).diagonal(dim1=-2, dim2=-1)  # of the factor in u-space: exp of its parameter
    log_diagonal = by_factor.diagonal(dim1=-2, dim2=-1) * diagonal + share
    return _flat(by_mean, by_factor.tril(-1) + torch.diag_embed(log_diagonal))


def _flat(mean: Float[Tensor, "C M"], lower: Float[Tensor, "C M M"]) -> Tensor:
    i, j = torch.tril_indices(*lower.shape[-2:], device=lower.device)
    return torch.cat([mean.reshape(-1), lower[:, i, j].reshape(-1)])
