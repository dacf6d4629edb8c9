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

    def places(self, size: int, generator: torch.Generator) -> tuple[Int[Tensor, "B"], ...]:
        """Which rows are in each batch of an epoch: nearly equally many, at most `size`, in random order."""
        order = torch.randperm(len(self), generator=generator).to(self.X.device)
        return order.tensor_split(-(-len(self) // size))

    def in_order(self, size: int | None) -> Iterator[Batch]:
        """Every row once; everything at once where `size` is None."""
        if size is None:
            return iter([self.full])
        order = torch.arange(len(self), device=self.X.device)
        return map(self.batch, order.tensor_split(-(-len(self) // size)))

    def batch(self, positions: Int[Tensor, "B"]) -> Batch:
        """The rows at these places."""
        own = self._one_hot(self.y[positions])
        return Batch(self.X[positions], own, self.weight[positions], positions, len(self) / len(positions), False)

    def _one_hot(self, y: Tensor) -> Tensor:
        return y[None, :] == torch.arange(self.n_classes, device=y.device)[:, None]
