"""Expectation propagation with a site for every factor (the paper's section "Method Specification and EP").

What is kept of row i and class j is four numbers: the two natural parameters of the site on the row's own class and of
that on class j. The vectors υ_i are made anew from the current kernel. Training on all rows rebuilds q from these
numbers; training on batches keeps their sums T, t in u-space and replaces the batch's share of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.prior import Gradient, Posterior, Prior, Rows, Whitened, prior_mismatch, rows_gradient, sum_of_sites
from cavity.gp.sites import Factors, Site, collect, factors, log_site_scale, opposed, refine, totals
from cavity.inference.base import Batch, Objective, RowSites, factor_weights, relative_change
from cavity.numerics.linalg import symmetrize
from cavity.runtime.distributed import SINGLE_PROCESS, Workers


class EP:
    """Parallel EP on the factors of eq. (7); memory O(NC + CM²)."""

    keeps_rows = True
    learns_q = False
    mixes = True

    def __init__(self, workers: Workers = SINGLE_PROCESS) -> None:
        self.workers = workers

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> RowSites:
        """All sites equal to one: q is the prior."""
        return RowSites.empty(prior, n_rows)

    def update(self, prior: Prior, rows: Rows, state: RowSites, batch: Batch, damping: float | Tensor) -> RowSites:
        """Refine every site of the batch at once, damped (supplement, "Parallel EP updates and damping")."""
        sites = state.sites(batch)
        q, S, r = self._posterior(prior, rows, state, sites, batch)
        new = refine(factors(*q.project(rows.W), rows.s, sites, batch.own, factor_weights(batch)), damping)
        if batch.is_full:
            return state.with_sites(batch, new)
        change = [n - o for n, o in zip(_totals(new, batch), _totals(sites, batch), strict=True)]
        dS, dr = self.workers.sum(*sum_of_sites(rows.W, *change))
        T, t = (x + dx for x, dx in zip((state.T, state.t), prior.unwhiten(dS, dr), strict=True))
        prior.knows(T, S + dS, r + dr)
        return state._replace(T=T, t=t).with_sites(batch, new)

    def objective(self, prior: Prior, rows: Rows, state: RowSites, batch: Batch, exact: bool = False) -> Objective:
        """log Z_q (eq. 9) and its gradient (eq. 10; eq. 12 for a batch) with fresh cavities."""
        sites = state.sites(batch)
        q, _, r = self._posterior(prior, rows, state, sites, batch)
        mean, var, covW = q.gather(rows.W)
        f = factors(mean, var, rows.s, sites, batch.own, factor_weights(batch))
        weight = batch.scale * f.weight
        share = 1.0 / self.workers.size
        log_z = share * q.log_normalizer(r).sum() + (weight * log_site_scale(f)).sum()
        return Objective(log_z, partial(_gradient, q, covW, rows, f, weight, batch, exact, share))

    def refresh(self, prior: Prior, state: RowSites, batches: Iterable[Batch]) -> RowSites:
        """T and t made anew from the sites of every row, under the current kernel."""
        state = state.settled()
        S, r = torch.zeros_like(state.T), torch.zeros_like(state.t)
        for batch in batches:
            dS, dr = sum_of_sites(prior.rows(batch.X).W, *_totals(state.sites(batch), batch))
            S, r = S + dS, r + dr
        T, t = prior.unwhiten(*self.workers.sum(S, r))
        return state._replace(T=T, t=t)

    def posterior(self, prior: Prior, state: RowSites) -> Posterior:
        """q(u) from the sums of the sites."""
        return Posterior(prior, Whitened.from_sites(*prior.whiten(state.T, state.t)))

    def change(self, old: RowSites, new: RowSites) -> float:
        """The largest change of a site parameter; where batches overwrite their sites, of the sums."""
        return relative_change([*old.store, old.T, old.t], [*new.store, new.T, new.t], self.workers)

    def _posterior(
        self, prior: Prior, rows: Rows, state: RowSites, sites: Site, batch: Batch
    ) -> tuple[Whitened, Tensor, Tensor]:
        """q, and the natural parameters of its sites."""
        if batch.is_full:
            S, r = self.workers.sum(*sum_of_sites(rows.W, *_totals(sites, batch)))
        else:
            S, r = prior.whiten(state.T, state.t)
        return Whitened.from_sites(S, r), S, r


def _totals(sites: Site, batch: Batch) -> list[Tensor]:
    """Δ and μ̃ of every row and class, each row counted by its weight."""
    return [x * batch.weight for x in totals(sites, batch.own)]


def _shift(f: Factors) -> Float[Tensor, "2 C B"]:
    """c: the cavity's mean is that of q plus c P⁻¹w."""
    return (f.sites.precision * f.mean - f.sites.precision_mean) / f.cavity.d


def _gradient(
    q: Whitened, covW: Tensor, rows: Rows, f: Factors, weight: Tensor, batch: Batch, exact: bool, share: float
) -> Gradient:
    gram = prior_mismatch(q, share)
    if exact:
        gram += _moment_mismatch(q, covW, f, weight, batch)
    by_mean, by_var = opposed(weight * f.tilted.by_mean), weight * f.tilted.by_var
    projection = torch.addcmul(2.0 * by_var / f.cavity.d, by_mean, _shift(f))
    by_mean, projection = collect(by_mean, batch.own), collect(projection, batch.own)
    return rows_gradient(q, covW, rows.W, by_mean, projection, collect(by_var.expand_as(f.mean), batch.own), gram)


def _moment_mismatch(q: Whitened, covW: Tensor, f: Factors, weight: Tensor, batch: Batch) -> Tensor:
    """Σ (η_tilted − η) ∂θ_prior: what eq. (10) leaves out, and 0 at the fixed point.

    A factor moves the mean by e P⁻¹w and the covariance by f P⁻¹w wᵀP⁻¹.
    """
    d = f.cavity.d
    mean = _shift(f) + opposed(f.tilted.by_mean) / d
    cov = f.sites.precision / d - f.tilted.omega / d.square()
    second = collect(weight * (cov + mean.square()), batch.own)
    first = torch.matmul(covW, collect(weight * mean, batch.own)[..., None])
    return 0.5 * torch.matmul(covW * second[:, None, :], covW.mT) + symmetrize(first * q.m[:, None, :])
