"""Rows held in memory, on the device that trains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cavity.inference import Batch


@dataclass(frozen=True)
class ArrayData:
    """Scaled inputs, encoded labels and row weights.

    Args:
        X: inputs, (N, D).
        y: labels 0 … C−1, (N,).
        weight: how many copies each row stands for, (N,).
        n_classes: C; a class may have no row.
    """

    X: Float[Tensor, "N D"]
    y: Int[Tensor, "N"]
    weight: Float[Tensor, "N"]
    n_classes: int

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def own_weight(self) -> Float[Tensor, "C"]:
        """The weight of each class's rows."""
        return torch.zeros_like(self.weight[:1]).expand(self.n_classes).index_add(0, self.y, self.weight)

    @cached_property
    def full(self) -> Batch:
        """All rows as one batch."""
        index = torch.arange(len(self), device=self.X.device)
        return Batch(self.X, self._one_hot(self.y), self.weight, index, 1.0, True)

    def shuffled(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """One epoch of batches of nearly equal size, at most `size`, in random order."""
        order = torch.randperm(len(self), generator=generator).to(self.X.device)
        return self._batches(order, size)

    def in_order(self, size: int | None) -> Iterator[Batch]:
        """Every row once; everything at once where `size` is None."""
        if size is None:
            return iter([self.full])
        return self._batches(torch.arange(len(self), device=self.X.device), size)

    def _batches(self, order: Tensor, size: int) -> Iterator[Batch]:
        for index in order.tensor_split(-(-len(self) // size)):
            own = self._one_hot(self.y[index])
            yield Batch(self.X[index], own, self.weight[index], index, len(self) / len(index), False)

    def _one_hot(self, y: Tensor) -> Tensor:
        return y[None, :] == torch.arange(self.n_classes, device=y.device)[:, None]
