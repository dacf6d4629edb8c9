"""Rows held in memory, on the device that trains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cavity.data.base import Draw, epoch_seed, one_hot
from cavity.inference import Batch


@dataclass(frozen=True)
class Share:
    """Which of the rows of all workers are these: a block of them, `first` its number, out of `n_rows`."""

    first: int
    n_rows: int
    own_weight: Float[Tensor, "C"]


@dataclass(frozen=True)
class ArrayData:
    """Scaled inputs, encoded labels and row weights.

    Args:
        X: inputs, (N, D).
        y: labels 0 … C−1, (N,).
        weight: how many copies each row stands for, (N,).
        n_classes: C; a class may have no row.
        share: which rows these are, where several workers have a block each; None where they are all.
    """

    X: Float[Tensor, "N D"]
    y: Int[Tensor, "N"]
    weight: Float[Tensor, "N"]
    n_classes: int
    share: Share | None = None

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def own_weight(self) -> Float[Tensor, "C"]:
        """The weight of each class's rows, on all workers."""
        if self.share is not None:
            return self.share.own_weight
        return torch.zeros_like(self.weight[:1]).expand(self.n_classes).index_add(0, self.y, self.weight)

    @cached_property
    def full(self) -> Batch:
        """All rows as one batch."""
        index = torch.arange(len(self), device=self.X.device)
        return Batch(self.X, one_hot(self.y, self.n_classes), self.weight, index, 1.0, True)

    @property
    def row_ids(self) -> Int[Tensor, "N"]:
        """Their numbers among the rows of all workers."""
        return torch.arange(len(self)) + (0 if self.share is None else self.share.first)

    @property
    def _n_rows(self) -> int:
        return len(self) if self.share is None else self.share.n_rows

    def steps(self, size: int) -> int:
        """Batches of an epoch."""
        return -(-self._n_rows // size)

    def draws(self, size: int, seed: int, epoch: int, first: int = 0) -> Iterator[Draw]:
        """Which rows are in each batch of an epoch: nearly equally many, at most `size`, in random order."""
        generator = torch.Generator().manual_seed(epoch_seed(seed, epoch))
        order = torch.randperm(self._n_rows, generator=generator).to(self.X.device)
        for places in order.tensor_split(self.steps(size))[first:]:
            yield Draw(self._mine(places), self._n_rows / len(places))

    def batch(self, draw: Draw | Batch) -> Batch:
        """The rows of a draw; a batch itself is one too."""
        if isinstance(draw, Batch):
            return draw
        own, places = one_hot(self.y[draw.positions], self.n_classes), draw.positions
        return Batch(self.X[places], own, self.weight[places], places, draw.scale, False)

    def in_order(self, size: int | None) -> Iterator[Batch]:
        """Every row once; everything at once where `size` is None."""
        if size is None:
            return iter([self.full])
        order = torch.arange(len(self), device=self.X.device).tensor_split(max(1, -(-len(self) // size)))
        return (self.batch(Draw(places, len(self) / max(len(places), 1))) for places in order)

    def _mine(self, places: Int[Tensor, "B"]) -> Int[Tensor, "_"]:
        """Those of the places that are in this block, counted from its start."""
        if self.share is None:
            return places
        places = places - self.share.first
        return places[(places >= 0) & (places < len(self))]
