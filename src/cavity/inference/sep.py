"""Stochastic expectation propagation: one average site per class (the paper's section of that name).

Only the product of all sites is kept, as its natural parameters T, t in u-space: memory O(CM²) for any N.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.gaussian import Natural, Thinned, Whitened, project_sites, sum_of_sites
from cavity.gp.gradients import RowDerivatives, prior_mismatch, rows_gradient
from cavity.gp.prior import Conditional, Prior
from cavity.gp.sites import Cavity, both, collect, new_site, opposed, tilted
from cavity.inference.base import ALL_TERMS, Batch, Method, Objective, Terms, Update, factor_counts, factor_weights
from cavity.numerics.linalg import symmetrize


class SEPState(NamedTuple):
    """The product of all sites in u-space, and how many factors involve each class."""

    T: Float[Tensor, "C M M"]
    t: Float[Tensor, "C M"]
    counts: Float[Tensor, "C"]


class SEP(Method):
    """EP with all sites tied: the cavity of every factor is q without one n_k-th of their product."""

    mixes = False  # tied sites move slowly along a curve, which jumps miss

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> SEPState:
        """Return a state without sites: q is the prior."""
        C, M = prior.n_classes, prior.Z.shape[-2]
        return SEPState(prior.Z.new_zeros(C, M, M), prior.Z.new_zeros(C, M), factor_counts(own_weight))

    def update(
        self, f: Conditional, state: SEPState, natural: Natural, batch: Batch, damping: float | Tensor
    ) -> Update:
        """Compute new sites for all factors of the batch, each under the cavity of its classes, and weight them."""
        without = project_sites(natural, f.W, _kept(state, self.alpha))  # q without α average sites
        mean, var, s = both(batch.own, *without, f.s)
        cavities = Cavity(mean, var, d=mean.new_ones(()))
        moments = tilted(cavities, s, self.alpha)
        new = new_site(moments, cavities).power(1.0 / self.alpha)
        weight = damping * factor_weights(batch)
        damped = (weight * x for x in new)  # the rest of the damping is in `combine`
        sums = sum_of_sites(f.W, *(collect(x, batch.own) for x in damped))
        return Update(state, (*sums, (batch.own * batch.weight).sum(-1)))

    def combine(
        self, prior: Prior, update: Update, natural: Natural, damping: float | Tensor
    ) -> tuple[SEPState, Natural]:
        """Damp: replace the batch's B_k/n_k of the product by the batch's new sites."""
        state, (S, r, own_weight) = update.state, update.sums
        in_batch = torch.where(state.counts > 0, factor_counts(own_weight) / state.counts, 1.0).clamp_max(1.0)
        keep = 1.0 - damping * in_batch
        T, t = prior.unwhiten(S, r)
        state = state._replace(T=_mixed(state.T, T, keep), t=_mixed(state.t, t, keep))
        return state, Natural(_mixed(natural.S, S, keep), _mixed(natural.r, r, keep))

    def absorb(self, prior: Prior, f: Conditional, state: SEPState, batch: Batch) -> SEPState:
        """Multiply in the sites of rows never seen before: they are not in q yet, so q is their cavity."""
        natural = Natural(*prior.whiten(state.T, state.t))
        unseen = state._replace(counts=torch.full_like(state.counts, torch.inf))  # of which no site is removed from q
        S, r, own_weight = self.update(f, unseen, natural, batch, 1.0).sums
        T, t = prior.unwhiten(S, r)
        return SEPState(state.T + T, state.t + t, state.counts + factor_counts(own_weight))

    def objective(
        self, prior: Prior, f: Conditional, state: SEPState, natural: Natural, batch: Batch, terms: Terms = ALL_TERMS
    ) -> Objective:
        """Return log Z_q (eq. 9) and its gradient (eqs. 10, 12) with the average site removed from q."""
        q, without, g_q, g_ratio = _with_and_without(natural, _kept(state, self.alpha), terms.exact)
        a, h, covW = without.project_with_covariance(f.W)
        mean, var, s = both(batch.own, a, h, f.s)
        moments = tilted(Cavity(mean, var, d=mean.new_ones(())), s, self.alpha)
        weight = batch.scale / self.alpha * factor_weights(batch)
        counts = state.counts / self.alpha
        of_q = g_q.sum() + (counts * g_ratio).sum()
        log_z = terms.share * of_q + (weight * moments.log_z).sum()
        if not terms.gradient:
            return Objective(log_z)
        by_mean, by_var = opposed(weight * moments.by_mean), (weight * moments.by_var).expand(2, -1, -1)
        by_mean, by_var = collect(by_mean, batch.own), collect(by_var, batch.own)
        by_s = by_var if self.alpha == 1.0 else collect((weight * moments.by_s).expand(2, -1, -1), batch.own)
        gram = prior_mismatch(q, terms.share)
        if isinstance(without, Whitened) and terms.exact:
            # Σ (η_tilted − η) ∂θ_prior: what eq. (10) leaves out when T and t are held fixed in u-space
            second = collect((weight * (moments.by_mean.square() - moments.omega)).expand(2, -1, -1), batch.own)
            rows = torch.matmul(covW * second[:, None, :].to(covW.dtype), covW.mT)
            at_cavity, at_q = (g.covariance + g.m[:, :, None] * g.m[:, None, :] for g in (without, q))
            removed = (terms.share * counts)[:, None, None] * (at_cavity - at_q)
            of_mean = symmetrize(torch.matmul(covW, by_mean[..., None].to(covW.dtype)) * without.m[:, None, :])
            gram += 0.5 * (rows + removed) + of_mean
        return Objective(log_z, rows_gradient(without, covW, f.W, RowDerivatives(by_mean, 2.0 * by_var, by_s), gram))


def _with_and_without(
    natural: Natural, keep: Float[Tensor, "C"], is_exact: bool
) -> tuple[Whitened, Whitened | Thinned, Float[Tensor, "C"], Float[Tensor, "C"]]:
    """Return q, the cavity of all factors, log-normalizer of q, and that of the cavity less that of q."""
    if not is_exact and (count := Thinned.terms_for(keep)) is not None:
        q = Whitened.from_sites(*natural)
        without = Thinned(q, keep, count)
        return q, without, q.log_normalizer(natural.r), without.log_normalizer_ratio(natural.r)
    both_keep = torch.stack([torch.ones_like(keep), keep])
    pair = Whitened.from_sites(*natural, keep=both_keep)  # both at once: on a GPU as fast as one
    g_q, g_cavity = pair.log_normalizer(both_keep[..., None] * natural.r)
    return *map(Whitened, pair.R_inverse, pair.m), g_q, g_cavity - g_q


def _kept(state: SEPState, alpha: float) -> Float[Tensor, "C"]:
    """Return the fraction of the sites that stays in the cavity: 1 − α/n_k."""
    return 1.0 - alpha * state.counts.clamp_min(1.0).reciprocal()


def _mixed(old: Tensor, new: Tensor, keep: Float[Tensor, "C"]) -> Tensor:
    """Return keep·old + new, class by class."""
    return torch.addcmul(new, old, keep.view(-1, *[1] * (old.ndim - 1)))
