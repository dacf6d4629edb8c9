"""Stochastic expectation propagation: one average site per class (the paper's section of that name).

Only the product of all sites is kept, as its natural parameters T, t in u-space: memory O(CM²) whatever N is. The
cavity of every factor is q without an n_k-th of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.inducing import Posterior, Prior, Rows, Whitened, prior_mismatch, rows_gradient, sum_of_sites
from cavity.inference.base import Batch, Objective, factor_counts, factor_weights, relative_change
from cavity.numerics.linalg import symmetrise
from cavity.sites import Cavity, Tilted, collect, new_site, of_own_class, tilted


class SEPState(NamedTuple):
    """The product of all sites in u-space, and how many factors touch each class."""

    T: Float[Tensor, "C M M"]
    t: Float[Tensor, "C M"]
    counts: Float[Tensor, "C"]


class SEP:
    """EP with all sites tied."""

    keeps_rows = False
    learns_q = False
    mixes = False  # tied sites creep along a curve: jumps miss it

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> SEPState:
        """No site yet: q is the prior."""
        C, M = prior.n_classes, prior.Z.shape[-2]
        return SEPState(prior.Z.new_zeros(C, M, M), prior.Z.new_zeros(C, M), factor_counts(own_weight))

    def update(self, prior: Prior, rows: Rows, state: SEPState, batch: Batch, damping: float) -> SEPState:
        """Replace the batch's share of the product by the batch's new sites, damped."""
        old, old_r = prior.whiten(state.T, state.t)
        S, r = self._batch_sites(old, old_r, rows, state, batch, removed=1.0)
        T, t = prior.unwhiten(S, r)
        keep = 1.0 - damping * _share(state, batch)
        new = state._replace(T=_mixed(state.T, T, keep, damping), t=_mixed(state.t, t, keep, damping))
        prior.knows(new.T, _mixed(old, S, keep, damping), _mixed(old_r, r, keep, damping))
        return new

    def absorb(self, prior: Prior, rows: Rows, state: SEPState, batch: Batch) -> SEPState:
        """Multiply in the sites of rows never seen before: nothing of them is in q yet, so q is their cavity."""
        S, r = prior.whiten(state.T, state.t)
        T, t = prior.unwhiten(*self._batch_sites(S, r, rows, state, batch, removed=0.0))
        added = factor_counts((batch.own * batch.weight).sum(-1))
        return SEPState(state.T + T, state.t + t, state.counts + added)

    def objective(self, prior: Prior, rows: Rows, state: SEPState, batch: Batch, exact: bool = False) -> Objective:
        """log Z_q (eq. 9) and its gradient (eqs. 10, 12) with the average site removed from q."""
        S, r = prior.whiten(state.T, state.t)
        q, without, keep = _q_and_cavity(S, r, state)
        mean, var, covW = without.gather(rows.W)
        t = _tilted(mean, var, rows, batch)
        weight = batch.scale * factor_weights(batch)
        by_mean, by_var = weight * t.by_mean, collect(weight * t.by_var, weight * t.by_var, batch.own)
        by_mean = collect(by_mean, -by_mean, batch.own)
        gram = prior_mismatch(q)
        if exact:
            gram = gram + _moment_mismatch(q, without, covW, t, weight, batch, state.counts)
        gradient = rows_gradient(without, covW, rows.W, by_mean, 2.0 * by_var, by_var)
        g_q, g_cavity = q.log_normaliser(r), without.log_normaliser(keep[:, None] * r)
        log_z = g_q.sum() + (state.counts * (g_cavity - g_q)).sum() + (weight * t.log_z).sum()
        return Objective(log_z, gradient._replace(gram=gradient.gram + gram))

    def refresh(self, prior: Prior, state: SEPState, batches: Iterable[Batch]) -> SEPState:
        """Nothing to do: no row is remembered."""
        return state

    def posterior(self, prior: Prior, state: SEPState) -> Posterior:
        """q(u) from the product of the sites."""
        return Posterior(prior, Whitened.from_sites(*prior.whiten(state.T, state.t)))

    def change(self, old: SEPState, new: SEPState) -> float:
        """The largest change of a natural parameter."""
        return relative_change(old[:2], new[:2])

    @staticmethod
    def _batch_sites(
        S: Tensor, r: Tensor, rows: Rows, state: SEPState, batch: Batch, removed: float
    ) -> tuple[Tensor, Tensor]:
        """The sum of the new sites of the batch, whitened, where S and r are the whitened sums of all."""
        without = _cavity(S, r, state, removed)
        mean, var, _ = without.project(rows.W)
        t, weight = _tilted(mean, var, rows, batch), factor_weights(batch)
        own_cavity = Cavity(of_own_class(mean, batch.own), of_own_class(var, batch.own), torch.ones_like(mean))
        own = new_site(t.omega, t.by_mean, own_cavity)
        other = new_site(t.omega, -t.by_mean, Cavity(mean, var, own_cavity.d))
        totals = [collect(weight * a, weight * b, batch.own) for a, b in zip(own, other, strict=True)]
        return sum_of_sites(rows.W, *totals)


def _mixed(old: Tensor, new: Tensor, keep: Float[Tensor, "C"], damping: float) -> Tensor:
    """keep·old + damping·new, class by class."""
    return torch.add(old * keep.view(-1, *[1] * (old.ndim - 1)), new, alpha=damping)


def _share(state: SEPState, batch: Batch) -> Tensor:
    """B_k / n_k: how much of the factors of each class the batch holds."""
    in_batch = factor_counts((batch.own * batch.weight).sum(-1))
    return torch.where(state.counts > 0, in_batch / state.counts, 1.0).clamp_max(1.0)


def _cavity(S: Tensor, r: Tensor, state: SEPState, removed: float) -> Whitened:
    """q without `removed` average sites."""
    keep = _kept(state, removed)
    return Whitened.from_sites(keep[:, None, None] * S, keep[:, None] * r)


def _q_and_cavity(S: Tensor, r: Tensor, state: SEPState) -> tuple[Whitened, Whitened, Tensor]:
    """q, and q without one average site; both factors at once, which a GPU does in the time of one."""
    keep = _kept(state, 1.0)
    both = Whitened.from_sites(torch.cat([S, keep[:, None, None] * S]), torch.cat([r, keep[:, None] * r]))
    q, without = zip(*(part.chunk(2) for part in both), strict=True)
    return Whitened(*q), Whitened(*without), keep


def _kept(state: SEPState, removed: float) -> Float[Tensor, "C"]:
    """The share of the sites that stays in the cavity: 1 − 1/n_k."""
    return (1.0 - removed / state.counts.clamp_min(1.0)).clamp_min(0.0)


def _tilted(mean: Tensor, var: Tensor, rows: Rows, batch: Batch) -> Tilted:
    one = torch.ones_like(mean)
    own = Cavity(of_own_class(mean, batch.own), of_own_class(var, batch.own), one)
    return tilted(own, Cavity(mean, var, one), of_own_class(rows.s, batch.own), rows.s)


def _moment_mismatch(
    q: Whitened, without: Whitened, covW: Tensor, t: Tilted, weight: Tensor, batch: Batch, counts: Tensor
) -> Tensor:
    """Σ (η_tilted − η) ∂θ_prior: what eq. (10) leaves out when T and t are held fixed in u-space."""
    moments = [g.covariance() + g.m[:, :, None] * g.m[:, None, :] for g in (without, q)]
    second = weight * (t.by_mean.square() - t.omega)
    second = collect(second, second, batch.own)
    first = weight * t.by_mean
    first = torch.matmul(covW, collect(first, -first, batch.own)[..., None])
    rows = torch.matmul(covW * second[:, None, :], covW.mT)
    cavities = counts[:, None, None] * (moments[0] - moments[1])
    return 0.5 * (rows + cavities) + symmetrise(first * without.m[:, None, :])
