"""One step of training: sums over rows → update → objective → gradient → pull back.

Only this module adds up over workers what a method of inference computes from the rows of one process, and over blocks
what it computes from some of the rows of a large batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.gaussian import Natural
from cavity.gp.gradients import pull_back
from cavity.gp.prior import Conditional, Prior
from cavity.inference import Batch, Method, Objective, RowSites, Terms
from cavity.inference.base import ALL_TERMS
from cavity.runtime.distributed import SINGLE_PROCESS, Workers
from cavity.runtime.memory import block_count, keeps_blocks
from cavity.training.parameters import ParametricPrior, Q


@dataclass(frozen=True)
class InBlocks:
    """p(f | u) at the rows of a full batch, block by block.

    Blocks fit into the cache of a processor, and k(Z, X) of all rows need not fit into memory: every pass over the rows
    computes it again, unless it is small.
    """

    prior: Prior
    X: Float[Tensor, "N D"]
    rows: list[slice]

    def __iter__(self) -> Iterator[tuple[slice, Conditional]]:
        C, M, device = self.prior.n_classes, self.prior.Z.shape[-2], self.X.device.type
        return iter(self._kept) if keeps_blocks(C, M, len(self.X), device) else self._computed()

    def _computed(self) -> Iterator[tuple[slice, Conditional]]:
        return ((rows, self.prior.conditional(self.X[rows])) for rows in self.rows)

    @cached_property
    def _kept(self) -> list[tuple[slice, Conditional]]:
        return list(self._computed())


Rows = Conditional | InBlocks  # what a step needs to know of the rows of its batch


def blocks_of(prior: Prior, batch: Batch) -> list[slice]:
    """Divide the rows of a full batch into blocks of nearly equal size; other batches, and small ones, are one."""
    n, device = len(batch.X), batch.X.device.type
    count = block_count(prior.n_classes, prior.Z.shape[-2], n, device) if batch.is_full else 1
    return [slice(n * i // count, n * (i + 1) // count) for i in range(count)]


def rows_of(prior: Prior, batch: Batch, is_step: bool = False) -> Rows:
    """Return p(f | u) at the rows of a batch, in blocks if there are many; `is_step`: for a step of training."""
    blocks = blocks_of(prior, batch)
    if len(blocks) > 1:
        return InBlocks(prior, batch.X, blocks)
    return prior.conditional(batch.X, is_batch=is_step and not batch.is_full)


@dataclass(frozen=True)
class Inference:
    """A method of inference on the rows of all workers.

    Functions take and return a state together with `natural`, the product of its sites, which is None where it has to
    be computed from the state again. `f` is p(f | u) at the rows of the batch.
    """

    method: Method
    workers: Workers = SINGLE_PROCESS

    def update(
        self, prior: Prior, f: Rows, state: Any, batch: Batch, damping: float | Tensor, natural: Natural | None
    ) -> tuple[Any, Natural | None]:
        """Refine the sites of a batch once; return the new state and its product of sites."""
        natural = self._natural(prior, f, state, batch) if natural is None else natural
        sums: tuple[Tensor, ...] = ()
        new = state.blank() if isinstance(f, InBlocks) and self.method.keeps_rows else None
        for rows, of_block, part, block in _blocks(f, state, batch):
            update = self.method.update(of_block, part, natural, block, damping)
            sums = _added(sums, update.sums)
            if new is not None:
                new.fill(rows, update.state)
        state = update.state if new is None else new
        if not sums:
            return state, None
        return self.method.combine(prior, update._replace(sums=self.workers.sum(*sums)), natural, damping)

    def objectives(
        self, prior: Prior, f: Rows, state: Any, batch: Batch, natural: Natural | None, terms: Terms = ALL_TERMS
    ) -> Iterator[tuple[Conditional, Objective]]:
        """Yield p(f | u) of each block, and its part of log Z_q and the gradients; the sum over workers is all."""
        natural = self._natural(prior, f, state, batch) if natural is None else natural
        n_blocks = len(f.rows) if isinstance(f, InBlocks) else 1
        terms = terms._replace(share=1.0 / (n_blocks * self.workers.size))
        for _, of_block, part, block in _blocks(f, state, batch):
            yield of_block, self.method.objective(prior, of_block, part, natural, block, terms)

    def gradient(
        self, model: ParametricPrior, prior: Prior, found: Iterable[tuple[Conditional, Objective]]
    ) -> tuple[Tensor, Tensor]:
        """Return log Z_q and its gradient by θ, of all blocks and workers."""
        sums: tuple[Tensor, ...] = ()
        for f, of_block in found:
            assert of_block.gradient is not None
            parts = pull_back(prior, f, of_block.gradient) | ({} if of_block.by_q is None else {Q: of_block.by_q})
            sums = _added(sums, (model.join(parts), of_block.log_z))
        gradient, log_z = self.workers.sum(*sums)
        return log_z, gradient

    def log_z(self, prior: Prior, state: Any, batches: Iterable[Batch]) -> tuple[float, int, int]:
        """Return log Z_q of all rows, how many factors it leaves out, and how many there are.

        Each batch estimates log Z_q, and counts by its fraction of the rows.
        """
        total, left_out, n_factors = 0.0, 0, 0
        for batch in batches:
            for _, found in self.objectives(prior, rows_of(prior, batch), state, batch, None, Terms(gradient=False)):
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
            dS, dr = self._site_sums(rows_of(prior, batch), state, batch)
            S, r = S + dS, r + dr
        T, t = prior.unwhiten(*self.workers.sum(S, r))
        return state._replace(T=T, t=t)

    def _natural(self, prior: Prior, f: Rows, state: Any, batch: Batch) -> Natural | None:
        """Return the product of all sites: rebuilt from the sites of all rows, else from the sums in the state."""
        if self.method.keeps_rows and batch.is_full:
            return Natural(*self.workers.sum(*self._site_sums(f, state, batch)))
        natural: Natural | None = self.method.natural(prior, state)
        return natural

    def _site_sums(self, f: Rows, state: Any, batch: Batch) -> tuple[Tensor, ...]:
        """Return the product of the sites of the batch's rows."""
        sums: tuple[Tensor, ...] = ()
        for _, of_block, part, block in _blocks(f, state, batch):
            sums = _added(sums, self.method.site_sums(of_block, part, block))
        return sums


def _blocks(f: Rows, state: Any, batch: Batch) -> Iterator[tuple[slice, Conditional, Any, Batch]]:
    """Yield each block: which rows of the batch it has, p(f | u) at them, their state, and they as a batch."""
    if isinstance(f, Conditional):
        yield slice(None), f, state, batch
    else:
        for rows, of_block in f:
            yield rows, of_block, state.part(rows) if isinstance(state, RowSites) else state, batch.part(rows)


def _added(sums: tuple[Tensor, ...], more: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Add up the sums of blocks; there are none before the first."""
    return tuple(a + b for a, b in zip(sums, more, strict=True)) if sums else more
