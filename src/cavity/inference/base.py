"""What a method of inference is, and what it is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cavity.inducing import Gradient, Posterior, Prior, Rows
from cavity.sites import Site


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
    """The state of a method with a site for every row: own and other halves, each (C, N), and their sums in u-space."""

    own: Site
    other: Site
    T: Float[Tensor, "C M M"]
    t: Float[Tensor, "C M"]

    @classmethod
    def empty(cls, prior: Prior, n_rows: int) -> RowSites:
        """All sites equal to one."""
        C, M = prior.n_classes, prior.Z.shape[-2]
        zeros = [prior.Z.new_zeros(C, n_rows) for _ in range(4)]
        return cls(Site(*zeros[:2]), Site(*zeros[2:]), prior.Z.new_zeros(C, M, M), prior.Z.new_zeros(C, M))


class Objective(NamedTuple):
    """log Z_q, or its estimate from one batch, and its gradient by the kernel blocks.

    `by_q` is its gradient by the state, for a method whose state the optimiser moves.
    """

    log_z: Tensor
    gradient: Gradient
    by_q: Tensor | None = None


@runtime_checkable
class Method(Protocol):
    """A method improves its state at fixed hyper-parameters, and scores the hyper-parameters at a fixed state.

    `keeps_rows`: whether the state holds something of every row. `learns_q`: whether the state is a vector that the
    optimiser moves together with the hyper-parameters. `mixes`: whether mixing the last few sweeps finds the fixed
    point sooner.
    """

    keeps_rows: bool
    learns_q: bool
    mixes: bool

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> Any:
        """The state before any data; `own_weight` sums the weights of each class's rows."""

    def update(self, prior: Prior, rows: Rows, state: Any, batch: Batch, damping: float) -> Any:
        """One sweep over the sites of the batch."""

    def objective(self, prior: Prior, rows: Rows, state: Any, batch: Batch, exact: bool) -> Objective:
        """log Z_q and the gradient of eq. (10); `exact` adds what eq. (10) leaves out before convergence."""

    def refresh(self, prior: Prior, state: Any, batches: Iterable[Batch]) -> Any:
        """The same state with its sums made anew from what is kept of every row."""

    def posterior(self, prior: Prior, state: Any) -> Posterior:
        """q(u)."""

    def change(self, old: Any, new: Any) -> float:
        """How far two states lie apart, relative to their size."""


def relative_change(old: Iterable[Tensor], new: Iterable[Tensor]) -> float:
    """The largest change of any entry, relative to the largest entry of its tensor."""
    changes = [(b - a).abs().max() / b.abs().max().clamp_min(1.0) for a, b in zip(old, new, strict=True)]
    return float(torch.stack(changes).max())


def factor_weights(batch: Batch) -> Float[Tensor, "C B"]:
    """The weight of factor (i, j): that of its row, 0 where j is the row's own class."""
    return torch.where(batch.own, 0.0, batch.weight)


def factor_counts(own_weight: Float[Tensor, "C"]) -> Float[Tensor, "C"]:
    """How many factors touch each class: n_k = (N − N_k) + N_k (C − 1)."""
    return own_weight.sum() + own_weight * (len(own_weight) - 2)
