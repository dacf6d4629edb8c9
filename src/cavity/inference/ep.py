"""Expectation propagation with a site for every factor (the paper's section "Method Specification and EP").

What is kept of row i and class j is four numbers: the two natural parameters of the site on the row's own class and of
that on class j. The vectors υ_i are made anew from the current kernel. Training on all rows rebuilds q from these
numbers; training on batches keeps their sums T, t in u-space and replaces the batch's share of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.inducing import Gradient, Posterior, Prior, Rows, Whitened, prior_mismatch, rows_gradient, sum_of_sites
from cavity.inference.base import Batch, Objective, RowSites, factor_weights, relative_change
from cavity.numerics.linalg import symmetrise
from cavity.sites import Cavity, Factors, Site, collect, factors, log_site_scale, refine, totals


class EP:
    """Parallel EP on the factors of eq. (7); memory O(NC + CM²)."""

    keeps_rows = True
    learns_q = False
    mixes = True

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> RowSites:
        """All sites equal to one: q is the prior."""
        return RowSites.empty(prior, n_rows)

    def update(self, prior: Prior, rows: Rows, state: RowSites, batch: Batch, damping: float) -> RowSites:
        """Refine every site of the batch at once, damped (supplement, "Parallel EP updates and damping")."""
        sites = _of_batch(state, batch)
        q, _ = _posterior(prior, rows, state, sites, batch)
        new = refine(factors(*q.project(rows.W)[:2], rows.s, sites, batch.own, factor_weights(batch)), damping)
        if batch.is_full:
            return state._replace(own=new[0], other=new[1])
        change = [n - o for n, o in zip(_totals(new, batch), _totals(sites, batch), strict=True)]
        T, t = prior.unwhiten(*sum_of_sites(rows.W, *change))
        own, other = _with_batch(state.own, new[0], batch), _with_batch(state.other, new[1], batch)
        return RowSites(own, other, state.T + T, state.t + t)

    def objective(self, prior: Prior, rows: Rows, state: RowSites, batch: Batch, exact: bool = False) -> Objective:
        """log Z_q (eq. 9) and its gradient (eq. 10; eq. 12 for a batch) with fresh cavities."""
        sites = _of_batch(state, batch)
        q, r = _posterior(prior, rows, state, sites, batch)
        mean, var, covW = q.gather(rows.W)
        f = factors(mean, var, rows.s, sites, batch.own, factor_weights(batch))
        weight = batch.scale * f.weight
        gram = prior_mismatch(q)
        if exact:
            gram = gram + _moment_mismatch(q, covW, f, weight, batch)
        gradient = _gradient(q, covW, rows, f, weight, batch)
        log_z = q.log_normaliser(r).sum() + (weight * log_site_scale(f)).sum()
        return Objective(log_z, gradient._replace(gram=gradient.gram + gram))

    def refresh(self, prior: Prior, state: RowSites, batches: Iterable[Batch]) -> RowSites:
        """T and t made anew from the sites of every row, under the current kernel."""
        S, r = torch.zeros_like(state.T), torch.zeros_like(state.t)
        for batch in batches:
            dS, dr = sum_of_sites(prior.rows(batch.X).W, *_totals(_of_batch(state, batch), batch))
            S, r = S + dS, r + dr
        T, t = prior.unwhiten(S, r)
        return state._replace(T=T, t=t)

    def posterior(self, prior: Prior, state: RowSites) -> Posterior:
        """q(u) from the sums of the sites."""
        return Posterior(prior, Whitened.from_sites(*prior.whiten(state.T, state.t)))

    def change(self, old: RowSites, new: RowSites) -> float:
        """The largest change of a site parameter."""
        return relative_change([*old.own, *old.other], [*new.own, *new.other])


def _of_batch(state: RowSites, batch: Batch) -> tuple[Site, Site]:
    if batch.is_full:
        return state.own, state.other
    return Site(*(x[:, batch.positions] for x in state.own)), Site(*(x[:, batch.positions] for x in state.other))


def _with_batch(site: Site, new: Site, batch: Batch) -> Site:
    return Site(*(x.index_copy(1, batch.positions, n) for x, n in zip(site, new, strict=True)))


def _totals(sites: tuple[Site, Site], batch: Batch) -> list[Tensor]:
    """Δ and μ̃ of every row and class, each row counted by its weight."""
    return [x * batch.weight for x in totals(sites, batch.own)]


def _posterior(
    prior: Prior, rows: Rows, state: RowSites, sites: tuple[Site, Site], batch: Batch
) -> tuple[Whitened, Tensor]:
    """q, and the linear part of its sites."""
    sums = sum_of_sites(rows.W, *_totals(sites, batch)) if batch.is_full else prior.whiten(state.T, state.t)
    return Whitened.from_sites(*sums), sums[1]


def _shift(mean: Tensor, site: Site, cavity: Cavity) -> Tensor:
    """c: the cavity's mean is that of q plus c P⁻¹w."""
    return (site.precision * mean - site.precision_mean) / cavity.d


def _gradient(q: Whitened, covW: Tensor, rows: Rows, f: Factors, weight: Tensor, batch: Batch) -> Gradient:
    by_mean, by_var = weight * f.tilted.by_mean, weight * f.tilted.by_var
    own_shift, other_shift = _shift(f.own_mean, f.own, f.own_cavity), _shift(f.mean, f.other, f.other_cavity)
    own_projection = by_mean * own_shift + 2.0 * by_var / f.own_cavity.d
    other_projection = 2.0 * by_var / f.other_cavity.d - by_mean * other_shift
    return rows_gradient(
        q,
        covW,
        rows.W,
        collect(by_mean, -by_mean, batch.own),
        collect(own_projection, other_projection, batch.own),
        collect(by_var, by_var, batch.own),
    )


def _moment_mismatch(q: Whitened, covW: Tensor, f: Factors, weight: Tensor, batch: Batch) -> Tensor:
    """Σ (η_tilted − η) ∂θ_prior: what eq. (10) leaves out, and 0 at the fixed point.

    A factor moves the mean by e P⁻¹w and the covariance by f P⁻¹w wᵀP⁻¹.
    """
    e_own = _shift(f.own_mean, f.own, f.own_cavity) + f.tilted.by_mean / f.own_cavity.d
    e_other = _shift(f.mean, f.other, f.other_cavity) - f.tilted.by_mean / f.other_cavity.d
    f_own = f.own.precision / f.own_cavity.d - f.tilted.omega / f.own_cavity.d.square()
    f_other = f.other.precision / f.other_cavity.d - f.tilted.omega / f.other_cavity.d.square()
    second = collect(weight * (f_own + e_own.square()), weight * (f_other + e_other.square()), batch.own)
    first = torch.matmul(covW, collect(weight * e_own, weight * e_other, batch.own)[..., None])
    return 0.5 * torch.matmul(covW * second[:, None, :], covW.mT) + symmetrise(first * q.m[:, None, :])
