"""The rows that training sees: the protocol, rows in memory, and rows streamed from a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from cavity.data import shuffle
from cavity.data.shuffle import LaneBatch, Skip, prefetch
from cavity.data.source import Array, Source
from cavity.data.surveys import Survey, own_lanes
from cavity.inference import Batch
from cavity.runtime.distributed import SINGLE_PROCESS, Workers


class BatchDraw(NamedTuple):
    """Positions of the rows of a batch, and ρ = N/|B|, which counts the rows of all workers."""

    positions: Int[Tensor, "B"]
    scale: float


@runtime_checkable
class Data(Protocol):
    """The rows of one worker, and what is known of those of all workers.

    Every worker makes the same number of steps an epoch. The rows of a step do not depend on the number of workers.
    """

    @property
    def n_classes(self) -> int:
        """C."""

    def __len__(self) -> int:
        """Rows of this worker."""

    @property
    def own_weight(self) -> Float[Tensor, "C"]:
        """Total weight of the rows of each class, on all workers."""

    @property
    def row_ids(self) -> Int[Tensor, "N"]:
        """Numbers that identify the rows among those of all workers, by position."""

    def steps(self, size: int) -> int:
        """Batches of an epoch."""

    def draws(self, size: int, seed: int, epoch: int, first: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch in random order, each as something that `batch` accepts, from `first` on."""

    def batch(self, draw: Any) -> Batch:
        """Return the rows of a draw; a batch is returned as it is."""

    def in_order(self, size: int | None) -> Iterator[Batch]:
        """Yield every row of this worker once; all at once for None. Here ρ counts the rows of this worker."""


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of an epoch, so that any epoch can be repeated."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)


def one_hot(y: Int[Tensor, "B"], n_classes: int) -> Tensor:
    """Return boolean labels, (C, B)."""
    return y[None, :] == torch.arange(n_classes, device=y.device)[:, None]


@dataclass(frozen=True)
class Shard:
    """The part of the rows that one worker holds: consecutive rows from number `first` on, out of `n_rows`."""

    first: int
    n_rows: int
    own_weight: Float[Tensor, "C"]


@dataclass(frozen=True)
class ArrayData:
    """Scaled inputs, encoded labels and row weights, on the device that trains.

    Args:
        X: inputs, (N, D).
        y: labels 0 … C−1, (N,).
        weight: of each row, (N,).
        n_classes: C; a class can have no row.
        shard: which rows these are, where several workers have a part each; None where they are all.
    """

    X: Float[Tensor, "N D"]
    y: Int[Tensor, "N"]
    weight: Float[Tensor, "N"]
    n_classes: int
    shard: Shard | None = None

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def own_weight(self) -> Float[Tensor, "C"]:
        if self.shard is not None:
            return self.shard.own_weight
        return torch.zeros_like(self.weight[:1]).expand(self.n_classes).index_add(0, self.y, self.weight)

    @cached_property
    def full(self) -> Batch:
        """All rows as one batch."""
        index = torch.arange(len(self), device=self.X.device)
        return Batch(self.X, one_hot(self.y, self.n_classes), self.weight, index, 1.0, True)

    @property
    def row_ids(self) -> Int[Tensor, "N"]:
        return torch.arange(len(self)) + (0 if self.shard is None else self.shard.first)

    @property
    def _n_rows(self) -> int:
        return len(self) if self.shard is None else self.shard.n_rows

    def steps(self, size: int) -> int:
        return -(-self._n_rows // size)

    def draws(self, size: int, seed: int, epoch: int, first: int = 0) -> Iterator[BatchDraw]:
        """Yield the rows of each batch: nearly equally many, at most `size`, in random order."""
        generator = torch.Generator().manual_seed(epoch_seed(seed, epoch))
        order = torch.randperm(self._n_rows, generator=generator).to(self.X.device)
        for positions in order.tensor_split(self.steps(size))[first:]:
            scale = self._n_rows / len(positions)
            if self.shard is not None:
                positions = positions - self.shard.first
                positions = positions[(positions >= 0) & (positions < len(self))]
            yield BatchDraw(positions, scale)

    def batch(self, draw: BatchDraw | Batch) -> Batch:
        if isinstance(draw, Batch):
            return draw
        index, scale = draw
        return Batch(self.X[index], one_hot(self.y[index], self.n_classes), self.weight[index], index, scale, False)

    def in_order(self, size: int | None) -> Iterator[Batch]:
        if size is None:
            return iter([self.full])
        order = torch.arange(len(self), device=self.X.device).tensor_split(max(1, -(-len(self) // size)))
        return (self.batch(BatchDraw(index, len(self) / max(len(index), 1))) for index in order)


@dataclass(frozen=True)
class StreamData:
    """Rows that are read from a source again in every epoch, so memory does not grow with them.

    Args:
        source: the rows.
        survey: of all of them.
        transform: scales the inputs.
        class_weight: weight of a row of each class, (C,).
        skip: rows that are not trained on.
        device: of the batches.
        dtype: of the inputs.
        workers: the distributed workers, which share the lanes.
    """

    source: Source
    survey: Survey
    transform: Callable[[Array], Array]
    class_weight: NDArray[np.float64]
    skip: Skip | None
    device: torch.device
    dtype: torch.dtype = torch.float64
    workers: Workers = field(default=SINGLE_PROCESS)

    @property
    def n_classes(self) -> int:
        return len(self.survey.classes)

    def __len__(self) -> int:
        """Rows of this worker, including those skipped."""
        return sum(self.survey.lane_rows[lane] for lane in self._lanes)

    @cached_property
    def own_weight(self) -> Float[Tensor, "C"]:
        counts = self.survey.class_counts - (0 if self.skip is None else self.skip.class_counts)
        return torch.from_numpy(counts * self.class_weight).to(self.device)

    @property
    def row_ids(self) -> Int[Tensor, "N"]:
        """The numbers of the rows when all lanes are counted one after the other."""
        first = np.cumsum([0, *self.survey.lane_rows])
        return torch.cat([torch.arange(first[lane], first[lane + 1]) for lane in self._lanes])

    def steps(self, size: int) -> int:
        return shuffle.n_steps(self.survey.lane_rows, size, self.skip)

    def draws(self, size: int, seed: int, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch in random order, read and moved to the device ahead of time."""
        batches = shuffle.batches(
            self.source, self.survey.classes, self.survey.lane_rows, size, seed, epoch,
            first=first, lanes=self._lanes, skip=self.skip,
        )  # fmt: skip
        n_rows = self.survey.n_rows - (0 if self.skip is None else int(self.skip.lane_rows.sum()))
        return prefetch(self._batch(batch, n_rows / max(batch.total, 1)) for batch in batches)

    def batch(self, draw: Batch) -> Batch:
        return draw

    def in_order(self, size: int | None) -> Iterator[Batch]:
        n_rows = len(self) - (0 if self.skip is None else int(self.skip.lane_rows[list(self._lanes)].sum()))
        size = size or len(self)
        batches = shuffle.in_order(self.source, self.survey.classes, size, lanes=self._lanes, skip=self.skip)
        return (self._batch(batch, n_rows / batch.total) for batch in prefetch(batches))

    @cached_property
    def _lanes(self) -> range:
        return own_lanes(len(self.survey.lane_rows), self.workers)

    @cached_property
    def _first(self) -> NDArray[np.int64]:
        """The position of the first row of each lane among the rows of this worker."""
        return np.cumsum([0] + [n if lane in self._lanes else 0 for lane, n in enumerate(self.survey.lane_rows)])[:-1]

    def _batch(self, batch: LaneBatch, scale: float) -> Batch:
        y, positions = batch.y, self._first[batch.lane] + batch.row
        X = torch.from_numpy(self.transform(batch.X)).to(self.device, self.dtype)
        own = one_hot(torch.from_numpy(y).to(self.device), self.n_classes)
        weight = torch.from_numpy(self.class_weight[y]).to(self.device)
        return Batch(X, own, weight, torch.from_numpy(positions).to(self.device), scale, False)
