"""What a method of inference is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cavity.gp.prior import Gradient, Posterior, Prior, Rows
from cavity.gp.sites import Site
from cavity.runtime.distributed import SINGLE_PROCESS, Workers


class Batch(NamedTuple):
    """Some rows of the training set.

    `positions` says which, `own` is the one-hot label with the class axis first, and `scale` is ρ = N/|B| of eq. (12).
    A row of weight w stands for w copies of it.
    """

    X: Float[Tensor, "B D"]
    own: Bool[Tensor, "C B"]
    weight: Float[Tensor, "B"]
    positions: Int[Tensor, "B"]
    scale: float
    is_full: bool


class RowSites(NamedTuple):
    """The state of a method with a site for every row, (2, C, N), and their sums in u-space.

    A batch changes few of the sites: they are held back, and written into their places when the next batch comes. So
    a step costs the same however many rows there are, and one that fails leaves nothing behind.
    """

    store: Site
    T: Float[Tensor, "C M M"]
    t: Float[Tensor, "C M"]
    held: tuple[Int[Tensor, "B"], Site] | None = None

    @classmethod
    def empty(cls, prior: Prior, n_rows: int) -> RowSites:
        """All sites equal to one."""
        C, M = prior.n_classes, prior.Z.shape[-2]
        store = Site(prior.Z.new_zeros(2, C, n_rows), prior.Z.new_zeros(2, C, n_rows))
        return cls(store, prior.Z.new_zeros(C, M, M), prior.Z.new_zeros(C, M))

    def sites(self, batch: Batch) -> Site:
        """The sites of the batch."""
        if self.held is not None and self.held[0] is batch.positions:
            return self.held[1]
        store = self.settled().store
        return store if batch.is_full else Site(*(x[..., batch.positions] for x in store))

    def with_sites(self, batch: Batch, new: Site) -> RowSites:
        """With new sites of the batch; those of the batch before are written down first."""
        if batch.is_full:
            return self._replace(store=new, held=None)
        if self.held is not None and self.held[0] is not batch.positions:
            self.settled()
        return self._replace(held=(batch.positions, new))

    def settled(self) -> RowSites:
        """With nothing held back: written in place, for the store may be large."""
        if self.held is None:
            return self
        positions, sites = self.held
        for x, new in zip(self.store, sites, strict=True):
            x.index_copy_(-1, positions, new)
        return self._replace(held=None)


@dataclass(frozen=True)
class Objective:
    """log Z_q, or its estimate from one batch, and its gradient by the kernel blocks, made when asked for.

    `by_q` is its gradient by the state, for a method whose state the optimizer moves.
    """

    log_z: Tensor
    slopes: Callable[[], Gradient]
    by_q: Tensor | None = None

    @cached_property
    def gradient(self) -> Gradient:
        """The gradient."""
        return self.slopes()


@runtime_checkable
class Method(Protocol):
    """A method improves its state at fixed hyper-parameters, and scores the hyper-parameters at a fixed state.

    `keeps_rows`: whether the state holds something of every row. `learns_q`: whether the state is a vector that the
    optimizer moves together with the hyper-parameters. `mixes`: whether mixing the last few sweeps finds the fixed
    point sooner. `workers`: the processes that hold the rows. Sums over rows that q is made of are summed over them by
    the method; an objective has the rank's own rows and its share of what does not depend on rows, for others to add.
    """

    workers: Workers

    keeps_rows: bool
    learns_q: bool
    mixes: bool

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> Any:
        """The state before any data; `own_weight` sums the weights of each class's rows."""

    def update(self, prior: Prior, rows: Rows, state: Any, batch: Batch, damping: float | Tensor) -> Any:
        """One sweep over the sites of the batch."""

    def objective(self, prior: Prior, rows: Rows, state: Any, batch: Batch, exact: bool) -> Objective:
        """log Z_q and the gradient of eq. (10); `exact` adds what eq. (10) leaves out before convergence."""

    def refresh(self, prior: Prior, state: Any, batches: Iterable[Batch]) -> Any:
        """The same state with its sums made anew from what is kept of every row."""

    def posterior(self, prior: Prior, state: Any) -> Posterior:
        """q(u)."""

    def change(self, old: Any, new: Any) -> float:
        """How far two states lie apart, relative to their size."""


def relative_change(old: Iterable[Tensor], new: Iterable[Tensor], workers: Workers = SINGLE_PROCESS) -> float:
    """The largest change of any entry, relative to the largest entry of its tensor, on all workers."""
    pairs = [(a, b) for a, b in zip(old, new, strict=True)]
    sizes = [largest_entry(x) for a, b in pairs for x in (b - a, b)]
    change, size = workers.most(torch.stack(sizes)).view(-1, 2).unbind(1)
    return float((change / size.clamp_min(1.0)).max())


def largest_entry(x: Tensor) -> Tensor:
    """The largest absolute value; 0 of nothing."""
    return x.abs().max() if x.numel() else x.new_zeros(())


def factor_weights(batch: Batch) -> Float[Tensor, "C B"]:
    """The weight of factor (i, j): that of its row, 0 where j is the row's own class."""
    return torch.where(batch.own, 0.0, batch.weight)


def factor_counts(own_weight: Float[Tensor, "C"]) -> Float[Tensor, "C"]:
    """How many factors touch each class: n_k = (N − N_k) + N_k (C − 1)."""
    return own_weight.sum() + own_weight * (len(own_weight) - 2)
