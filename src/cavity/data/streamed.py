"""Training on rows that are read again in every epoch: memory does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from cavity.data import shuffle
from cavity.data.ahead import ahead
from cavity.data.base import one_hot
from cavity.data.labels import Encoded
from cavity.data.shuffle import LaneBatch
from cavity.data.source import Source
from cavity.data.survey import Survey
from cavity.fitting.encoding import Scaler
from cavity.inference import Batch
from cavity.runtime.distributed import SINGLE_PROCESS, Workers


@dataclass(frozen=True)
class StreamData:
    """The lanes of a source that this rank reads.

    Args:
        source: where rows come from.
        survey: what is known of all of them.
        scaler: fitted to them.
        class_weight: of a row of each class, (C,).
        skip: rows of each lane that are not learned from, sorted.
        device: where batches go.
        dtype: of the inputs.
        workers: the processes that share the lanes.
    """

    source: Source
    survey: Survey
    scaler: Scaler
    class_weight: NDArray[np.float64]
    skip: dict[int, NDArray[np.int64]]
    device: torch.device
    dtype: torch.dtype = torch.float64
    workers: Workers = field(default=SINGLE_PROCESS)

    @property
    def n_classes(self) -> int:
        """C."""
        return len(self.survey.classes)

    def __len__(self) -> int:
        """Rows of this rank, with those left out."""
        return sum(self.survey.lane_rows[lane] for lane in self._mine)

    @cached_property
    def own_weight(self) -> Float[Tensor, "C"]:
        """The weight of each class's rows, on all workers."""
        n_skipped = sum(map(len, self.skip.values()))
        counts = self.survey.class_counts - np.bincount(self.survey.sample.y[:n_skipped], minlength=self.n_classes)
        return torch.from_numpy(counts * self.class_weight).to(self.device)

    @property
    def row_ids(self) -> Int[Tensor, "N"]:
        """The number of each row of this rank when all lanes are counted one after the other."""
        first = np.cumsum([0, *self.survey.lane_rows])
        return torch.cat([torch.arange(first[lane], first[lane + 1]) for lane in self._mine])

    def steps(self, size: int) -> int:
        """Batches of an epoch."""
        return shuffle.steps(self.survey.lane_rows, size, self.skip)

    def draws(self, size: int, seed: int, epoch: int, first: int = 0) -> Iterator[Batch]:
        """The batches of an epoch in random order, read ahead and brought to the device."""
        read = shuffle.batches(
            self._encoded, self.survey.lane_rows, size, seed, epoch, first=first, mine=self._mine, skip=self.skip
        )
        n_rows = self.survey.n_rows - sum(map(len, self.skip.values()))
        return ahead(self._batch(batch, n_rows / max(batch.total, 1)) for batch in read)

    def batch(self, draw: Batch) -> Batch:
        """The rows of a draw, which it holds itself."""
        return draw

    def in_order(self, size: int | None) -> Iterator[Batch]:
        """Every row once."""
        n_rows = len(self) - sum(len(self.skip.get(lane, ())) for lane in self._mine)
        for batch in ahead(map(self._kept, shuffle.in_order(self._encoded, self._mine, size or len(self)))):
            if len(batch.row):
                yield self._batch(batch, n_rows / len(batch.row))

    @cached_property
    def _mine(self) -> tuple[int, ...]:
        return tuple(range(self.workers.rank, len(self.survey.lane_rows), self.workers.size))

    @cached_property
    def _encoded(self) -> Encoded:
        return Encoded(self.source, self.survey.classes)

    @cached_property
    def _first(self) -> NDArray[np.int64]:
        """Where the rows of each lane begin among those of this rank."""
        first = np.full(len(self.survey.lane_rows), -1, dtype=np.int64)
        sizes = [self.survey.lane_rows[lane] for lane in self._mine]
        first[list(self._mine)] = np.cumsum([0, *sizes[:-1]])
        return first

    def _kept(self, batch: LaneBatch) -> LaneBatch:
        """Without the rows that are left out."""
        is_out = np.zeros(len(batch.row), dtype=bool)
        for lane in np.unique(batch.lane):
            is_out |= (batch.lane == lane) & np.isin(batch.row, self.skip.get(int(lane), np.zeros(0, dtype=np.int64)))
        if not is_out.any():
            return batch
        keep, where = np.flatnonzero(~is_out), batch.where
        parts: dict[str, Any] = {name: getattr(batch, name)[keep] for name in ("X", "y", "lane", "row")}
        return batch._replace(**parts, where=lambda i: where(int(keep[i])))

    def _batch(self, batch: LaneBatch, scale: float) -> Batch:
        y, positions = batch.y, self._first[batch.lane] + batch.row
        X = torch.from_numpy(self.scaler.transform(batch.X)).to(self.device, self.dtype)
        own = one_hot(torch.from_numpy(y).to(self.device), self.n_classes)
        weight = torch.from_numpy(self.class_weight[y]).to(self.device)
        return Batch(X, own, weight, torch.from_numpy(positions).to(self.device), scale, False)
