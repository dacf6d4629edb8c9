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

from cavity.gp.prior import Gradient, Posterior, Prior, Rows, Whitened, prior_mismatch, rows_gradient, sum_of_sites
from cavity.gp.sites import Cavity, Tilted, both, collect, new_site, opposed, under
from cavity.inference.base import Batch, Objective, factor_counts, factor_weights, relative_change
from cavity.numerics.linalg import symmetrize
from cavity.runtime.distributed import SINGLE_PROCESS, Workers


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

    def __init__(self, workers: Workers = SINGLE_PROCESS) -> None:
        self.workers = workers

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> SEPState:
        """No site yet: q is the prior."""
        C, M = prior.n_classes, prior.Z.shape[-2]
        return SEPState(prior.Z.new_zeros(C, M, M), prior.Z.new_zeros(C, M), factor_counts(own_weight))

    def update(self, prior: Prior, rows: Rows, state: SEPState, batch: Batch, damping: float | Tensor) -> SEPState:
        """Replace the batch's share of the product by the batch's new sites, damped."""
        old, old_r = prior.whiten(state.T, state.t)
        sites = self._batch_sites(old, old_r, rows, _kept(state), batch, damping * factor_weights(batch))
        S, r, own_weight = self.workers.sum(*sites, (batch.own * batch.weight).sum(-1))
        T, t = prior.unwhiten(S, r)
        keep = 1.0 - damping * _share(state, own_weight)
        new = state._replace(T=_mixed(state.T, T, keep), t=_mixed(state.t, t, keep))
        prior.knows(new.T, _mixed(old, S, keep), _mixed(old_r, r, keep))
        return new

    def absorb(self, prior: Prior, rows: Rows, state: SEPState, batch: Batch) -> SEPState:
        """Multiply in the sites of rows never seen before: nothing of them is in q yet, so q is their cavity."""
        S, r = prior.whiten(state.T, state.t)
        T, t = prior.unwhiten(*self._batch_sites(S, r, rows, None, batch, factor_weights(batch)))
        added = factor_counts((batch.own * batch.weight).sum(-1))
        return SEPState(state.T + T, state.t + t, state.counts + added)

    def objective(self, prior: Prior, rows: Rows, state: SEPState, batch: Batch, exact: bool = False) -> Objective:
        """log Z_q (eq. 9) and its gradient (eqs. 10, 12) with the average site removed from q."""
        S, r = prior.whiten(state.T, state.t)
        share = torch.stack([torch.ones_like(state.counts), _kept(state)])
        pair = Whitened.from_sites(S, r, share)  # q, and q without one average site: at once, as fast on a GPU as one
        q, without = pair.unbind()
        mean, var, covW = without.gather(rows.W)
        t = under(*_cavities(mean, var, rows, batch))
        weight = batch.scale * factor_weights(batch)
        g_q, g_cavity = pair.log_normalizer(share[..., None] * r)
        of_q = g_q.sum() + (state.counts * (g_cavity - g_q)).sum()
        part = 1.0 / self.workers.size
        log_z = part * of_q + (weight * t.log_z).sum()

        def slopes() -> Gradient:
            by_mean, by_var = opposed(weight * t.by_mean), (weight * t.by_var).expand(2, -1, -1)
            by_mean, by_var = collect(by_mean, batch.own), collect(by_var, batch.own)
            gram = prior_mismatch(q, part)
            if exact:
                gram += _moment_mismatch(q, without, covW, t, weight, batch, part * state.counts)
            return rows_gradient(without, covW, rows.W, by_mean, 2.0 * by_var, by_var, gram)

        return Objective(log_z, slopes)

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
        S: Tensor, r: Tensor, rows: Rows, keep: Tensor | None, batch: Batch, weight: Float[Tensor, "C B"]
    ) -> tuple[Tensor, Tensor]:
        """The weighted sum of the new sites of the batch, whitened; S and r sum all sites, the cavity keeps a share."""
        cavity, s = _cavities(*Whitened.from_sites(S, r, keep).project(rows.W), rows, batch)
        t = under(cavity, s)
        new = new_site(t.omega, opposed(t.by_mean), cavity)
        return sum_of_sites(rows.W, *(collect(weight * x, batch.own) for x in new))


def _mixed(old: Tensor, new: Tensor, keep: Float[Tensor, "C"]) -> Tensor:
    """keep·old + new, class by class."""
    return torch.addcmul(new, old, keep.view(-1, *[1] * (old.ndim - 1)))


def _share(state: SEPState, own_weight: Float[Tensor, "C"]) -> Tensor:
    """B_k / n_k: how much of the factors of each class a batch holds whose classes weigh so much."""
    in_batch = factor_counts(own_weight)
    return torch.where(state.counts > 0, in_batch / state.counts, 1.0).clamp_max(1.0)


def _kept(state: SEPState) -> Float[Tensor, "C"]:
    """The share of the sites that stays in the cavity: 1 − 1/n_k."""
    return 1.0 - state.counts.clamp_min(1.0).reciprocal()


def _cavities(mean: Tensor, var: Tensor, rows: Rows, batch: Batch) -> tuple[Cavity, Tensor]:
    """The cavities of both sites of a factor, which are those of its classes, and the variance the sites do not see."""
    mean, var, s = both(batch.own, mean, var, rows.s)
    return Cavity(mean, var, torch.ones_like(mean[:1, :1])), s


def _moment_mismatch(
    q: Whitened, without: Whitened, covW: Tensor, t: Tilted, weight: Tensor, batch: Batch, counts: Tensor
) -> Tensor:
    """Σ (η_tilted − η) ∂θ_prior: what eq. (10) leaves out when T and t are held fixed in u-space."""
    moments = [g.covariance + g.m[:, :, None] * g.m[:, None, :] for g in (without, q)]
    second = collect((weight * (t.by_mean.square() - t.omega)).expand(2, -1, -1), batch.own)
    first = torch.matmul(covW, collect(opposed(weight * t.by_mean), batch.own)[..., None])
    rows = torch.matmul(covW * second[:, None, :], covW.mT)
    cavities = counts[:, None, None] * (moments[0] - moments[1])
    return 0.5 * (rows + cavities) + symmetrize(first * without.m[:, None, :])
