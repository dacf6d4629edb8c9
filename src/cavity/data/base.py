"""What training needs of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cavity.inference import Batch


class Draw(NamedTuple):
    """Places of the rows of a batch, and ρ = N/|B|, which counts the rows of all workers."""

    positions: Int[Tensor, "B"]
    scale: float


@runtime_checkable
class Data(Protocol):
    """The rows of one rank, and what is known of those of all workers.

    Every rank makes the same number of steps an epoch. What they see together does not depend on how many they are.
    """

    @property
    def n_classes(self) -> int:
        """C."""

    def __len__(self) -> int:
        """Rows of this rank."""

    @property
    def own_weight(self) -> Float[Tensor, "C"]:
        """The weight of each class's rows, on all workers."""

    @property
    def row_ids(self) -> Int[Tensor, "N"]:
        """Numbers that tell the rows of all workers apart, in the order of their places."""

    def steps(self, size: int) -> int:
        """Batches of an epoch."""

    def draws(self, size: int, seed: int, epoch: int, first: int = 0) -> Iterator[Any]:
        """The batches of an epoch in random order, each as something that `batch` takes, from the first on."""

    def batch(self, draw: Any) -> Batch:
        """The rows of a draw; a batch itself is one too."""

    def in_order(self, size: int | None) -> Iterator[Batch]:
        """Every row of this rank once; everything at once where `size` is None. Here ρ counts this rank's rows."""


def epoch_seed(seed: int, epoch: int) -> int:
    """A seed for each epoch, so that any of them can be made anew."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)


def one_hot(y: Int[Tensor, "B"], n_classes: int) -> Tensor:
    """Labels with the class axis first."""
    return y[None, :] == torch.arange(n_classes, device=y.device)[:, None]
