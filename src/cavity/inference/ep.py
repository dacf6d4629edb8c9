"""Expectation propagation with a site for every factor (the paper's section "Method Specification and EP").

Power EP removes α times a site, and refines it by its factor to the power α. At α = 1 it is EP.

Training on all rows rebuilds q from the sites of every row. Training on batches keeps their sums T, t in u-space.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cavity.gp.gaussian import Natural, Whitened, project_sites, sum_of_sites
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
    opposed,
    tilted,
)
from cavity.inference.base import ALL_TERMS, Batch, Method, Objective, RowSites, Terms, Update, factor_weights
from cavity.numerics.limits import tiny
from cavity.numerics.linalg import symmetrize


class EP(Method):
    """Parallel EP on the factors of eq. (7); memory O(NC + CM²)."""

    keeps_rows = True

    def site_sums(self, f: Conditional, state: RowSites, batch: Batch) -> Natural:
        """Return the product of the sites of the batch's rows."""
        return sum_of_sites(f.W, *_totals(state.sites(batch), batch))

    def update(
        self, f: Conditional, state: RowSites, natural: Natural, batch: Batch, damping: float | Tensor
    ) -> Update:
        """Refine every site of the batch at once (supplement, "Parallel EP updates and damping")."""
        old = state.sites(batch)
        mean, var, s = both(batch.own, *project_sites(natural, f.W), f.s)
        cavities = cavity(mean, var, old.power(self.alpha))
        moments = tilted(cavities, s, self.alpha)
        new = new_site(moments, cavities).power(1.0 / self.alpha)
        new = damped(old, new, damping, where=live_weight(cavities, factor_weights(batch)) > 0)
        if batch.is_full:
            return Update(state.with_sites(batch, new))
        change = [n - o for n, o in zip(_totals(new, batch), _totals(old, batch), strict=True)]
        return Update(state.with_sites(batch, new), sum_of_sites(f.W, *change))

    def combine(
        self, prior: Prior, update: Update, natural: Natural, damping: float | Tensor
    ) -> tuple[RowSites, Natural]:
        """Add the change of the batch's sites to the sums."""
        state, (dS, dr) = update.state, update.sums
        dT, dt = prior.unwhiten(dS, dr)
        return state._replace(T=state.T + dT, t=state.t + dt), Natural(natural.S + dS, natural.r + dr)

    def objective(
        self, prior: Prior, f: Conditional, state: RowSites, natural: Natural, batch: Batch, terms: Terms = ALL_TERMS
    ) -> Objective:
        """Return log Z_q (eq. 9) and its gradient (eq. 10; eq. 12 for a batch) with fresh cavities."""
        sites, q = state.sites(batch).power(self.alpha), Whitened.from_sites(*natural)
        a, h, covW = q.project_with_covariance(f.W)
        mean, var, s = both(batch.own, a, h, f.s)
        cavities = cavity(mean, var, sites)
        moments = tilted(cavities, s, self.alpha)
        weight = batch.scale / self.alpha * live_weight(cavities, factor_weights(batch))
        of_rows = (weight * log_site_scale(mean, var, sites, cavities, moments)).sum()
        log_z = terms.share * q.log_normalizer(natural.r).sum() + of_rows
        if not terms.gradient:
            return Objective(log_z, left_out=count_left_out(cavities, factor_weights(batch)))
        gram, d = prior_mismatch(q, terms.share), cavities.d
        shift = (sites.precision * mean - sites.precision_mean) / d  # the cavity's mean is that of q plus shift·P⁻¹w
        if terms.exact:
            # Σ (η_tilted − η) ∂θ_prior: what eq. (10) leaves out, and 0 at the fixed point. A factor moves the mean of
            # q by to_mean·P⁻¹w and its covariance by to_cov·P⁻¹w wᵀP⁻¹.
            to_mean = shift + opposed(moments.by_mean) / d
            to_cov = sites.precision / d - moments.omega / d.square()
            first, second = (collect(weight * x, batch.own) for x in (to_mean, to_cov + to_mean.square()))
            first, second = first[..., None].to(covW.dtype), second[:, None, :].to(covW.dtype)
            of_mean = symmetrize(torch.matmul(covW, first) * q.m[:, None, :])
            gram += 0.5 * torch.matmul(covW * second, covW.mT) + of_mean
        by_mean, by_var = opposed(weight * moments.by_mean), weight * moments.by_var
        by_s = by_var if self.alpha == 1.0 else weight * moments.by_s
        by_projection = torch.addcmul(2.0 * by_var / d, by_mean, shift)
        by = RowDerivatives(*(collect(x, batch.own) for x in (by_mean, by_projection, by_s.expand_as(mean))))
        return Objective(log_z, rows_gradient(q, covW, f.W, by, gram))


def leave_one_out(prior: Prior, state: RowSites, q: Whitened, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return mean and variance of f at every row from the others, by removing all sites of the row from q.

    Of w copies of a row one is left out. No variance exceeds that of the prior.
    """
    f = prior.conditional(batch.X)
    a, h = q.project(f.W)
    tau, nu = (collect(x, batch.own) for x in state.sites(batch))
    d = torch.maximum(1.0 - tau * h, h / f.W.square().sum(-2).clamp_min(tiny(h)))
    return (a - nu * h) / d, h / d + f.s


def _totals(sites: Site, batch: Batch) -> list[Tensor]:
    """Return Δ and μ̃ of every row and class, times the weight of the row."""
    return [collect(x, batch.own) * batch.weight for x in sites]
