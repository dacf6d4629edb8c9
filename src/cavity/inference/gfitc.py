"""Generalized FITC (the paper's section "Related Work"): u is integrated out, EP runs on the exact pairwise factors.

The FITC prior of the latent values is N(0, WᵀW + diag s). A site sits on f_i itself, not on its projection υ_iᵀu, so it
sees the conditional variance s_i as well: sites with totals Δ, μ̃ reach u as precision Δ/e and linear part μ̃/e along
υ_i, with e = 1 + Δs. log Z is no sum over rows: there are no mini-batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.prior import Posterior, Prior, Rows, Whitened, prior_mismatch, rows_gradient, sum_of_sites
from cavity.gp.sites import Factors, factors, log_site_scale, refine, totals
from cavity.inference.base import Batch, Objective, RowSites, factor_weights, relative_change
from cavity.runtime.distributed import SINGLE_PROCESS, Workers


class _OnU(NamedTuple):
    """What the sites of every row do to u: natural parameters along υ, and e = 1 + Δs."""

    precision: Float[Tensor, "C N"]
    precision_mean: Float[Tensor, "C N"]
    e: Float[Tensor, "C N"]


class GFITC:
    """Parallel EP on Θ(f_i^y − f_i^j) under the FITC prior; O(NM²C) a sweep; memory O(CMN), the block of all rows."""

    keeps_rows = True
    learns_q = False
    mixes = True

    def __init__(self, workers: Workers = SINGLE_PROCESS) -> None:
        self.workers = workers

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> RowSites:
        """All sites equal to one: q is the prior."""
        return RowSites.empty(prior, n_rows)

    def update(self, prior: Prior, rows: Rows, state: RowSites, batch: Batch, damping: float | Tensor) -> RowSites:
        """Refine every site at once, damped."""
        on_u = _on_u(rows, state, batch)
        q, _ = self._posterior(rows, on_u, batch)
        return state.with_sites(batch, refine(_factors(q.project(rows.W), rows, state, on_u, batch), damping))

    def objective(self, prior: Prior, rows: Rows, state: RowSites, batch: Batch, exact: bool = False) -> Objective:
        """log Z and, for converged sites, its gradient: log Z is stationary in them, so they count as constants.

        With β = Δ/e and γ = μ̃/e: ∂/∂a = γ − βa, ∂/∂s = ½(γ − βa)² − ½β(1 − βh).
        """
        on_u = _on_u(rows, state, batch)
        q, r = self._posterior(rows, on_u, batch)
        a, h, covW = q.gather(rows.W)
        f = _factors((a, h), rows, state, on_u, batch)
        by_mean = on_u.precision_mean - on_u.precision * a
        by_var = 0.5 * (by_mean.square() - on_u.precision * (1.0 - on_u.precision * h))
        by_mean, by_projection, by_var = (batch.weight * x for x in (by_mean, -on_u.precision, by_var))
        of_rows = 0.5 * (rows.s * on_u.precision_mean.square() * on_u.e - on_u.e.log())
        share = 1.0 / self.workers.size
        of_rows = (batch.weight * of_rows).sum() + (f.weight * log_site_scale(f)).sum()
        log_z = share * q.log_normalizer(r).sum() + of_rows
        slopes = by_mean, by_projection, by_var
        return Objective(log_z, lambda: rows_gradient(q, covW, rows.W, *slopes, prior_mismatch(q, share)))

    def refresh(self, prior: Prior, state: RowSites, batches: Iterable[Batch]) -> RowSites:
        """T and t made anew from the sites of every row, under the current kernel."""
        (batch,) = batches
        rows = prior.rows(batch.X)
        T, t = prior.unwhiten(*self._sums(rows, _on_u(rows, state, batch), batch))
        return state._replace(T=T, t=t)

    def posterior(self, prior: Prior, state: RowSites) -> Posterior:
        """q(u) from the sums of the sites."""
        return Posterior(prior, Whitened.from_sites(*prior.whiten(state.T, state.t)))

    def change(self, old: RowSites, new: RowSites) -> float:
        """The largest change of a site parameter."""
        return relative_change(old.store, new.store, self.workers)

    def _posterior(self, rows: Rows, on_u: _OnU, batch: Batch) -> tuple[Whitened, Tensor]:
        """q, and the linear part of its sites."""
        S, r = self._sums(rows, on_u, batch)
        return Whitened.from_sites(S, r), r

    def _sums(self, rows: Rows, on_u: _OnU, batch: Batch) -> tuple[Tensor, ...]:
        return self.workers.sum(
            *sum_of_sites(rows.W, on_u.precision * batch.weight, on_u.precision_mean * batch.weight)
        )


def _on_u(rows: Rows, state: RowSites, batch: Batch) -> _OnU:
    precision, precision_mean = totals(state.sites(batch), batch.own)
    e = 1.0 + precision * rows.s
    return _OnU(precision / e, precision_mean / e, e)


def _factors(moments: tuple[Tensor, Tensor], rows: Rows, state: RowSites, on_u: _OnU, batch: Batch) -> Factors:
    """The factors under the marginals of f: mean a/e + sγ, variance s/e + h/e². The sites see all of the variance."""
    a, h = moments
    mean = a / on_u.e + rows.s * on_u.precision_mean
    var = rows.s / on_u.e + h / on_u.e.square()
    return factors(mean, var, torch.zeros_like(var), state.sites(batch), batch.own, factor_weights(batch))
