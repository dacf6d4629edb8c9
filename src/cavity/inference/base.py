"""The interface of a method of inference, and the values that it takes and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cavity.gp.gaussian import Natural, Posterior, Whitened
from cavity.gp.gradients import Gradient
from cavity.gp.prior import Conditional, Prior
from cavity.gp.sites import Site


class Batch(NamedTuple):
    """Some rows of the training set.

    `positions` are their indices, `own` is the one-hot label with the class axis first, and `scale` is ρ = N/|B| of
    eq. (12). A row of weight w counts as w copies of it.
    """

    X: Float[Tensor, "B D"]
    own: Bool[Tensor, "C B"]
    weight: Float[Tensor, "B"]
    positions: Int[Tensor, "B"]
    scale: float
    is_full: bool

    def part(self, rows: slice) -> Batch:
        """Return some of the rows of a full batch, as a full batch of their own."""
        part = self._replace(X=self.X[rows], own=self.own[:, rows], weight=self.weight[rows])
        return part._replace(positions=self.positions[rows])


class RowSites(NamedTuple):
    """The state of a method with a site for every row, (2, C, N), and their sums in u-space.

    A batch changes few of the sites. They are held back and written to the store when the next batch comes, so a step
    costs the same for any number of rows, and a failed step leaves no trace.
    """

    store: Site
    T: Float[Tensor, "C M M"]
    t: Float[Tensor, "C M"]
    held: tuple[Int[Tensor, "B"], Site] | None = None

    @classmethod
    def empty(cls, prior: Prior, n_rows: int) -> RowSites:
        """Return sites that are all equal to one."""
        C, M = prior.n_classes, prior.Z.shape[-2]
        store = Site(prior.Z.new_zeros(2, C, n_rows), prior.Z.new_zeros(2, C, n_rows))
        return cls(store, prior.Z.new_zeros(C, M, M), prior.Z.new_zeros(C, M))

    def part(self, rows: slice) -> RowSites:
        """Return the sites of some of the rows."""
        return self._replace(store=Site(*(x[..., rows] for x in self.settled().store)), held=None)

    def blank(self) -> RowSites:
        """Return a state whose sites are still to be filled in, part by part."""
        return self._replace(store=Site(*(torch.empty_like(x) for x in self.store)), held=None)

    def fill(self, rows: slice, part: RowSites) -> None:
        """Fill in the sites of some of the rows."""
        for x, new in zip(self.store, part.store, strict=True):
            x[..., rows] = new

    def sites(self, batch: Batch) -> Site:
        """Return the sites of the batch."""
        if self.held is not None and self.held[0] is batch.positions:
            return self.held[1]
        store = self.settled().store
        return store if batch.is_full else Site(*(x[..., batch.positions] for x in store))

    def with_sites(self, batch: Batch, new: Site) -> RowSites:
        """Return a state with new sites of the batch; those of the batch before are written to the store first."""
        if batch.is_full:
            return self._replace(store=new, held=None)
        if self.held is not None and self.held[0] is not batch.positions:
            self.settled()
        return self._replace(held=(batch.positions, new))

    def settled(self) -> RowSites:
        """Return a state that holds nothing back. The store may be large, so it is changed in place."""
        if self.held is None:
            return self
        positions, sites = self.held
        for x, new in zip(self.store, sites, strict=True):
            x.index_copy_(-1, positions, new)
        return self._replace(held=None)


class Update(NamedTuple):
    """What a batch contributes to the next state.

    Attributes:
        state: the state with the batch's new sites in it.
        sums: sums over the rows of the batch, to be added up over all workers before `combine`; empty if `state` is
            the next state already.
        q: the Gaussian that the sums were computed under, if `combine` needs it.
    """

    state: Any
    sums: tuple[Tensor, ...] = ()
    q: Any = None


class Terms(NamedTuple):
    """What an objective is to contain.

    Attributes:
        share: how much of the terms that do not depend on rows: one over the number of workers.
        exact: whether to add to the gradient what eq. (10) leaves out before convergence.
        gradient: whether to compute the gradients.
    """

    share: float = 1.0
    exact: bool = False
    gradient: bool = True


ALL_TERMS = Terms()


class Objective(NamedTuple):
    """log Z_q or its estimate from one batch, and its gradients, None where they were not asked for.

    `gradient` is by the kernel blocks, `by_q` by the state of a method whose state the optimizer moves. `left_out`
    counts the factors of the batch whose cavities are improper; it is None with a gradient, and where there are none.
    """

    log_z: Tensor
    gradient: Gradient | None = None
    by_q: Tensor | None = None
    left_out: Tensor | None = None


class Method(ABC):
    """A method improves its state at fixed hyper-parameters, and scores the hyper-parameters at a fixed state.

    All functions see the rows of this process only. The caller (`training.step`) adds sums up over workers.

    Attributes:
        keeps_rows: whether the state is a `RowSites`, from which q is rebuilt in training on all rows.
        learns_q: whether the state is a vector that the optimizer moves together with the hyper-parameters.
        mixes: whether Anderson mixing of sweeps reaches the fixed point sooner.
        epsilon: the fraction of labels that the likelihood takes for random.
        alpha: the power of power EP; EP and SEP take it.
    """

    keeps_rows = False
    learns_q = False
    mixes = True
    epsilon = 0.0

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def init(self, prior: Prior, own_weight: Float[Tensor, "C"], n_rows: int) -> Any:
        """Return the state before any data; `own_weight` is the total weight of the rows of each class."""
        return RowSites.empty(prior, n_rows)

    def natural(self, prior: Prior, state: Any) -> Any:
        """Return the product of all sites, from its sums in the state; None if the method has no sites."""
        return Natural(*prior.whiten(state.T, state.t))

    def site_sums(self, f: Conditional, state: Any, batch: Batch) -> Natural:
        """Return the product of the sites of the batch's rows; for a method that keeps rows."""
        raise NotImplementedError

    @abstractmethod
    def update(self, f: Conditional, state: Any, natural: Any, batch: Batch, damping: float | Tensor) -> Update:
        """Refine the sites of the batch once, all at the same time; `natural` is the product of all sites."""

    def combine(self, prior: Prior, update: Update, natural: Any, damping: float | Tensor) -> tuple[Any, Natural]:
        """Return the next state and its product of sites, from an update whose sums are those of all workers."""
        raise NotImplementedError

    @abstractmethod
    def objective(
        self, prior: Prior, f: Conditional, state: Any, natural: Any, batch: Batch, terms: Terms = ALL_TERMS
    ) -> Objective:
        """Return log Z_q and its gradient (eqs. 9, 10); `natural` is the product of all sites."""

    def q(self, prior: Prior, state: Any) -> Whitened:
        """Return q over L⁻¹u: the prior times the product of all sites."""
        return Whitened.from_sites(*self.natural(prior, state))

    def posterior(self, prior: Prior, state: Any) -> Posterior:
        """Return q(u)."""
        return Posterior(prior, self.q(prior, state), self.epsilon)


def factor_weights(batch: Batch) -> Float[Tensor, "C B"]:
    """Return the weight of factor (i, j): that of its row, 0 where j is the row's own class."""
    return torch.where(batch.own, 0.0, batch.weight)


def factor_counts(own_weight: Float[Tensor, "C"]) -> Float[Tensor, "C"]:
    """Return how many factors involve each class: n_k = (N − N_k) + N_k (C − 1)."""
    return own_weight.sum() + own_weight * (len(own_weight) - 2)
