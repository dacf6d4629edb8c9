"""Variational inference with the robust likelihood (the paper's section "Related Work", after Hensman et al., 2015).

The bound Σ_i E_q[log p(y_i | f_i)] − KL[q(u) ‖ p(u)] is maximized over q(u) and the hyper-parameters.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.gaussian import Natural, Whitened, sum_of_sites
from cavity.gp.gradients import Gradient, RowDerivatives, prior_mismatch, rows_gradient, whitened_gradient
from cavity.gp.prior import Conditional, Prior
from cavity.inference.base import ALL_TERMS, Batch, Method, Objective, Terms, Update
from cavity.numerics.linalg import symmetrize, times_vector, vector_times
from cavity.numerics.quadrature import win_probability

EPSILON = 1e-3


class Expected(NamedTuple):
    """Σ E_q[log p(y | f)] of a batch, scaled to all rows, and its derivatives by the marginal means and variances."""

    log_lik: Tensor
    by_mean: Float[Tensor, "C B"]
    by_var: Float[Tensor, "C B"]


def expected_log_lik(mean: Float[Tensor, "C B"], var: Float[Tensor, "C B"], batch: Batch) -> Expected:
    """Return the first term of the bound (eq. 15): p log(1 − ε + ε/C) + (1 − p) log(ε/C) for every row.

    It is linear in p, the probability that f^y is the largest, which is an integral in one dimension.
    """
    C = len(mean)
    wrong, right = math.log(EPSILON / C), math.log1p(EPSILON / C - EPSILON)
    win = win_probability(mean, var, batch.own)
    weight = batch.scale * batch.weight
    by_p = weight * (right - wrong)
    return Expected((weight * wrong + by_p * win.p).sum(), by_p * win.by_mean, by_p * win.by_var)


def kl_from_prior(q: Whitened) -> Float[Tensor, "C"]:
    """Return KL[q(u) ‖ p(u)] of each class: in whitened coordinates the prior is N(0, I)."""
    log_det = q.R_inverse.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    trace = q.R_inverse.square().sum((-2, -1))
    return 0.5 * (trace + q.m.square().sum(-1) - q.m.shape[-1]) - log_det


class _Variational(Method):
    """What both ways to move q share: the bound."""

    epsilon = EPSILON

    @abstractmethod
    def _gradients(
        self, prior: Prior, f: Conditional, q: Whitened, covW: Tensor, by: RowDerivatives, share: float
    ) -> tuple[Gradient, Tensor | None]:
        """Return the gradient of the bound by the kernel blocks, and by q."""

    def objective(
        self, prior: Prior, f: Conditional, state: Any, natural: Natural | None, batch: Batch, terms: Terms = ALL_TERMS
    ) -> Objective:
        """Return the bound (eq. 15) and its gradients."""
        q = self.q(prior, state)
        a, h, covW = q.project_with_covariance(f.W)
        found = expected_log_lik(a, f.s + h, batch)
        bound = found.log_lik - terms.share * kl_from_prior(q).sum()
        if not terms.gradient:
            return Objective(bound)
        by = RowDerivatives(found.by_mean, 2.0 * found.by_var, found.by_var)
        return Objective(bound, *self._gradients(prior, f, q, covW, by, terms.share))


class VI(_Variational):
    """Natural-gradient steps for a whitened q; memory O(CM²).

    The state is the natural parameters of q over L⁻¹u less those of the prior: P − I and Pm.
    """

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> Natural:
        """Return q equal to the prior."""
        C, M = prior.n_classes, prior.Z.shape[-2]
        return Natural(prior.Z.new_zeros(C, M, M), prior.Z.new_zeros(C, M))

    def natural(self, prior: Prior, state: Natural) -> Natural:
        """Return the state."""
        return state

    def update(self, f: Conditional, state: Natural, natural: Natural, batch: Batch, damping: float | Tensor) -> Update:
        """Compute the target of a natural-gradient step: P̂ = I − 2 Σ (∂E/∂v) w wᵀ, and the gradient by the mean."""
        q = Whitened.from_sites(*state)
        a, h = q.project(f.W)
        found = expected_log_lik(a, f.s + h, batch)
        return Update(state, sum_of_sites(f.W, -2.0 * found.by_var, found.by_mean), q)

    def combine(
        self, prior: Prior, update: Update, natural: Natural, damping: float | Tensor
    ) -> tuple[Natural, Natural]:
        """Make a step of length ρ = `damping` towards the target.

        P̂ need not be positive definite: the factors are not log-concave. With G = P − P̂ the step
        P − ρG + ½ρ² G P⁻¹ G always is (Lin, Schmidt and Khan, 2020).
        """
        state, (target, pull), q = update
        G = state.S - target
        half = torch.matmul(q.R_inverse, G)
        S = symmetrize(state.S - damping * G + 0.5 * damping**2 * torch.matmul(half.mT, half))
        state = Natural(S, vector_times(q.m, S) + torch.lerp(q.m, pull, damping))
        return state, state

    def _gradients(
        self, prior: Prior, f: Conditional, q: Whitened, covW: Tensor, by: RowDerivatives, share: float
    ) -> tuple[Gradient, None]:
        """Hold q fixed in whitened coordinates: there the KL does not change with the hyper-parameters."""
        return whitened_gradient(q, covW, f.W, by), None


class PlainVI(_Variational):
    """The paper's version: q's mean and Cholesky factor in u-space are parameters like any other.

    The state is the vector of all of them: first the means, then the lower triangles with the logarithm of their
    diagonals.
    """

    learns_q = True

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> Tensor:
        """Return q equal to the prior."""
        mean = prior.Z.new_zeros(prior.n_classes, prior.Z.shape[-2])
        L = prior.L.expand(prior.n_classes, -1, -1)
        log_diagonal = L.diagonal(dim1=-2, dim2=-1).log()
        return _flat(mean, L.tril(-1) + torch.diag_embed(log_diagonal))

    def natural(self, prior: Prior, state: Tensor) -> None:
        """Return None: there are no sites."""

    def update(self, f: Conditional, state: Tensor, natural: None, batch: Batch, damping: float | Tensor) -> Update:
        """Return the state as it is: the optimizer moves q."""
        return Update(state)

    def q(self, prior: Prior, state: Tensor) -> Whitened:
        """Return L⁻¹m and (L⁻¹Q)ᵀ, where the covariance of u is QQᵀ."""
        C, M = prior.n_classes, prior.Z.shape[-2]
        mean, lower = state[: C * M].view(C, M), state.new_zeros(C, M, M)
        i, j = torch.tril_indices(M, M, device=state.device)
        lower[:, i, j] = state[C * M :].view(C, -1)
        Q = lower.tril(-1) + torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1).exp())
        return Whitened(torch.matmul(prior.L_inverse, Q).mT, times_vector(prior.L_inverse, mean))

    def _gradients(
        self, prior: Prior, f: Conditional, q: Whitened, covW: Tensor, by: RowDerivatives, share: float
    ) -> tuple[Gradient, Tensor]:
        """Hold q(u) fixed for the kernel blocks.

        By the mean the gradient is L⁻ᵀ(W ∂E/∂a − m), by the factor L⁻ᵀ(2 W diag(∂E/∂v) Wᵀ Q − Q + Q⁻ᵀ).
        """
        target, pull = sum_of_sites(f.W, by.projection, by.mean)
        Q, L_inverse = q.R_inverse.mT, prior.L_inverse
        by_mean = vector_times(pull - share * q.m, L_inverse)
        by_factor = torch.matmul(L_inverse.mT, torch.matmul(target, Q) - share * Q).tril()
        diagonal = torch.matmul(prior.L, Q).diagonal(dim1=-2, dim2=-1)  # in u-space: the exponential of its parameter
        log_diagonal = by_factor.diagonal(dim1=-2, dim2=-1) * diagonal + share
        by_q = _flat(by_mean, by_factor.tril(-1) + torch.diag_embed(log_diagonal))
        return rows_gradient(q, covW, f.W, by, prior_mismatch(q, share)), by_q


def _flat(mean: Float[Tensor, "C M"], lower: Float[Tensor, "C M M"]) -> Tensor:
    """Return means and lower triangles as one vector."""
    i, j = torch.tril_indices(*lower.shape[-2:], device=lower.device)
    return torch.cat([mean.reshape(-1), lower[:, i, j].reshape(-1)])
