"""Generalized FITC (the paper's section "Related Work"): u is integrated out, EP runs on the exact pairwise factors.

The FITC prior of f is N(0, WᵀW + diag s), and a site is on f_i itself. log Z is no sum over rows: no mini-batches.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from cavity.gp.gaussian import Natural, Whitened, sum_of_sites
from cavity.gp.gradients import RowDerivatives, prior_mismatch, rows_gradient
from cavity.gp.prior import Conditional, Prior
from cavity.gp.sites import (
    Site,
    both,
    cavity,
    collect,
    count_left_out,
    damped,
    live_weight,
    log_site_scale,
    new_site,
    tilted,
)
from cavity.inference.base import ALL_TERMS, Batch, Method, Objective, RowSites, Terms, Update, factor_weights


class GFITC(Method):
    """Parallel EP on Θ(f_i^y − f_i^j) under the FITC prior; O(NM²C) a sweep; memory O(NC + CM²)."""

    keeps_rows = True

    def site_sums(self, f: Conditional, state: RowSites, batch: Batch) -> Natural:
        """Return the product of the sites of the batch's rows."""
        beta, gamma, _ = _on_u(f, state.sites(batch), batch)
        return sum_of_sites(f.W, beta * batch.weight, gamma * batch.weight)

    def update(
        self, f: Conditional, state: RowSites, natural: Natural, batch: Batch, damping: float | Tensor
    ) -> Update:
        """Refine every site at once. The sites see all of the variance of f."""
        old, q = state.sites(batch), Whitened.from_sites(*natural)
        _, gamma, e = _on_u(f, old, batch)
        mean, var = both(batch.own, *_marginals(*q.project(f.W), f.s, gamma, e))
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
        beta, gamma, e = _on_u(f, sites, batch)
        mean, var = both(batch.own, *_marginals(a, h, f.s, gamma, e))
        cavities = cavity(mean, var, sites)
        weight = live_weight(cavities, factor_weights(batch))
        of_factors = weight * log_site_scale(mean, var, sites, cavities, tilted(cavities, 0.0))
        of_rows = (batch.weight * (0.5 * (f.s * gamma.square() * e - e.log()))).sum() + of_factors.sum()
        log_z = terms.share * q.log_normalizer(natural.r).sum() + of_rows
        if not terms.gradient:
            return Objective(log_z, left_out=count_left_out(cavities, factor_weights(batch)))
        by_mean = gamma - beta * a
        by_var = 0.5 * (by_mean.square() - beta * (1.0 - beta * h))
        by = RowDerivatives(*(batch.weight * x for x in (by_mean, -beta, by_var)))
        return Objective(log_z, rows_gradient(q, covW, f.W, by, prior_mismatch(q, terms.share)))


def _on_u(f: Conditional, sites: Site, batch: Batch) -> tuple[Float[Tensor, "C N"], ...]:
    """Return e = 1 + Δs and how the sites of every row act on u along υ: precision β = Δ/e and linear part γ = μ̃/e."""
    precision, precision_mean = (collect(x, batch.own) for x in sites)
    e = 1.0 + precision * f.s
    return precision / e, precision_mean / e, e


def _marginals(a: Tensor, h: Tensor, s: Tensor, gamma: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean a/e + sγ and variance s/e + h/e² of f, from the moments of υᵀu."""
    return a / e + s * gamma, s / e + h / e.square()
