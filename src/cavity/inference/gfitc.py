"""Generalized FITC (the paper's section "Related Work"): u is integrated out, EP runs on the exact pairwise factors.

The FITC prior of the latent values is N(0, WᵀW + diag s). A site is on f_i itself, not on its projection υ_iᵀu, so it
sees the conditional variance s_i as well: sites with totals Δ, μ̃ act on u as precision Δ/e and linear part μ̃/e along
υ_i, with e = 1 + Δs. log Z is no sum over rows: there are no mini-batches.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from cavity.gp.gaussian import Natural, Whitened, sum_of_sites
from cavity.gp.gradients import RowDerivatives, prior_mismatch, rows_gradient
from cavity.gp.prior import Conditional, Prior
from cavity.gp.sites import Site, both, cavity, damped, live_weight, log_site_scale, new_site, tilted, totals
from cavity.inference.base import ALL_TERMS, Batch, Method, Objective, RowSites, Terms, Update, factor_weights


class _OnU(NamedTuple):
    """The sites of every row as they act on u: natural parameters along υ, and e = 1 + Δs."""

    precision: Float[Tensor, "C N"]
    precision_mean: Float[Tensor, "C N"]
    e: Float[Tensor, "C N"]


class GFITC(Method):
    """Parallel EP on Θ(f_i^y − f_i^j) under the FITC prior; O(NM²C) a sweep; memory O(CMN) for W of all rows."""

    keeps_rows = True

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> RowSites:
        """Return sites that are all equal to one: q is the prior."""
        return RowSites.empty(prior, n_rows)

    def site_sums(self, f: Conditional, state: RowSites, batch: Batch) -> Natural:
        """Return the product of the sites of the batch's rows."""
        on_u = _on_u(f, state.sites(batch), batch)
        return sum_of_sites(f.W, on_u.precision * batch.weight, on_u.precision_mean * batch.weight)

    def update(
        self, f: Conditional, state: RowSites, natural: Natural, batch: Batch, damping: float | Tensor
    ) -> Update:
        """Refine every site at once. The sites see all of the variance of f."""
        old, q = state.sites(batch), Whitened.from_sites(*natural)
        mean, var = both(batch.own, *_marginals(*q.project(f.W), f, _on_u(f, old, batch)))
        cavities = cavity(mean, var, old)
        moments = tilted(cavities, 0.0)
        new = new_site(moments, cavities)
        new = damped(old, new, damping, where=live_weight(cavities, factor_weights(batch)) > 0)
        return Update(state.with_sites(batch, new))

    def objective(
        self, prior: Prior, f: Conditional, state: RowSites, natural: Natural, batch: Batch, terms: Terms = ALL_TERMS
    ) -> Objective:
        """Return log Z and, for converged sites, its gradient: log Z is stationary in them, so they are constants.

        With β = Δ/e and γ = μ̃/e: ∂/∂a = γ − βa, ∂/∂s = ½(γ − βa)² − ½β(1 − βh).
        """
        sites, q = state.sites(batch), Whitened.from_sites(*natural)
        a, h, covW = q.project_with_covariance(f.W)
        beta, gamma, e = on_u = _on_u(f, sites, batch)
        mean, var = both(batch.own, *_marginals(a, h, f, on_u))
        cavities = cavity(mean, var, sites)
        weight = live_weight(cavities, factor_weights(batch))
        of_factors = weight * log_site_scale(mean, var, sites, cavities, tilted(cavities, 0.0))
        of_rows = (batch.weight * (0.5 * (f.s * gamma.square() * e - e.log()))).sum() + of_factors.sum()
        log_z = terms.share * q.log_normalizer(natural.r).sum() + of_rows
        if not terms.gradient:
            return Objective(log_z)
        by_mean = gamma - beta * a
        by_var = 0.5 * (by_mean.square() - beta * (1.0 - beta * h))
        by = RowDerivatives(*(batch.weight * x for x in (by_mean, -beta, by_var)))
        return Objective(log_z, rows_gradient(q, covW, f.W, by, prior_mismatch(q, terms.share)))


def _on_u(f: Conditional, sites: Site, batch: Batch) -> _OnU:
    precision, precision_mean = totals(sites, batch.own)
    e = 1.0 + precision * f.s
    return _OnU(precision / e, precision_mean / e, e)


def _marginals(a: Tensor, h: Tensor, f: Conditional, on_u: _OnU) -> tuple[Tensor, Tensor]:
    """Return mean a/e + sγ and variance s/e + h/e² of f, from the moments of υᵀu."""
    return a / on_u.e + f.s * on_u.precision_mean, f.s / on_u.e + h / on_u.e.square()
