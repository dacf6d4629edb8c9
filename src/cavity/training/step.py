"""One step of training: sums over rows → update → objective → gradient → pull back.

Only this module adds up over workers what a method of inference computes from the rows of one process.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cavity.gp.gaussian import Natural
from cavity.gp.gradients import pull_back
from cavity.gp.prior import Conditional, Prior
from cavity.inference import Batch, Method, Objective, Terms
from cavity.inference.base import ALL_TERMS
from cavity.runtime.distributed import SINGLE_PROCESS, Workers
from cavity.training.parameters import ParametricPrior, Q


@dataclass(frozen=True)
class Inference:
    """A method of inference on the rows of all workers.

    Functions take and return a state together with `natural`, the product of its sites, which is None where it has to
    be computed from the state again.
    """

    method: Method
    workers: Workers = SINGLE_PROCESS

    def update(
        self, prior: Prior, f: Conditional, state: Any, batch: Batch, damping: float | Tensor, natural: Natural | None
    ) -> tuple[Any, Natural | None]:
        """Refine the sites of a batch once; return the new state and its product of sites."""
        natural = self._natural(prior, f, state, batch) if natural is None else natural
        update = self.method.update(f, state, natural, batch, damping)
        if not update.sums:
            return update.state, None
        return self.method.combine(prior, update._replace(sums=self.workers.sum(*update.sums)), natural, damping)

    def objective(
        self, prior: Prior, f: Conditional, state: Any, batch: Batch, natural: Natural | None, terms: Terms = ALL_TERMS
    ) -> Objective:
        """Return this worker's part of log Z_q and its gradients: the sum over workers is the whole."""
        natural = self._natural(prior, f, state, batch) if natural is None else natural
        return self.method.objective(prior, f, state, natural, batch, terms._replace(share=1.0 / self.workers.size))

    def gradient(self, model: ParametricPrior, prior: Prior, f: Conditional, found: Objective) -> tuple[Tensor, Tensor]:
        """Return log Z_q and its gradient by θ, of all workers."""
        assert found.gradient is not None
        parts = pull_back(prior, f, found.gradient) | ({} if found.by_q is None else {Q: found.by_q})
        gradient, log_z = self.workers.sum(model.join(parts), found.log_z)
        return log_z, gradient

    def log_z(self, prior: Prior, state: Any, batches: Iterable[Batch]) -> tuple[float, int, int]:
        """Return log Z_q of all rows, how many factors it leaves out, and how many there are.

        Each batch estimates log Z_q, and counts by its fraction of the rows.
        """
        total, left_out, n_factors = 0.0, 0, 0
        for batch in batches:
            f = prior.conditional(batch.X)
            found = self.objective(prior, f, state, batch, None, Terms(gradient=False))
            total += float(found.log_z) / batch.scale
            left_out += 0 if found.left_out is None else int(found.left_out)
            n_factors += int((~batch.own).sum())
        log_z, *counts = self.workers.sum(*map(prior.Z.new_tensor, (total, left_out, n_factors)))
        return float(log_z), int(counts[0]), int(counts[1])

    def refresh(self, prior: Prior, state: Any, batches: Iterable[Batch]) -> Any:
        """Recompute the sums T and t in the state from the sites of every row, under the current kernel."""
        if not self.method.keeps_rows:
            return state
        state = state.settled()
        S, r = torch.zeros_like(state.T), torch.zeros_like(state.t)
        for batch in batches:
            dS, dr = self.method.site_sums(prior.conditional(batch.X), state, batch)
            S, r = S + dS, r + dr
        T, t = prior.unwhiten(*self.workers.sum(S, r))
        return state._replace(T=T, t=t)

    def _natural(self, prior: Prior, f: Conditional, state: Any, batch: Batch) -> Natural | None:
        """Return the product of all sites: rebuilt from the sites of all rows, else from the sums in the state."""
        if self.method.keeps_rows and batch.is_full:
            return Natural(*self.workers.sum(*self.method.site_sums(f, state, batch)))
        natural: Natural | None = self.method.natural(prior, state)
        return natural
