"""Rows of an iterable of batches, such as a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, RandomSampler

from cavity.data.labels import concat_labels
from cavity.data.schema import CategoricalFeatures, Schema, column_names, kinds_of, table_columns
from cavity.data.source import (
    Array,
    Block,
    CategoryBlock,
    as_features,
    as_labels,
    check_block,
    check_labels,
    row_name,
)

MIN_ROWS = 4_096  # small batches are joined up to here


class Batches:
    """Rows of an iterable of batches (X, y) of arrays, frames, lists or tensors, in one lane.

    The iterable is read several times from its start and must give the same rows in the same order every time, because
    rows are identified by their numbers. Only the shuffle buffer shuffles them, so rows of one class should not all
    come together. A DataLoader with `shuffle=True` is read in the order of its dataset.

    Args:
        batches: a list of batches, a DataLoader, another iterable that can be read repeatedly, or a function that
            returns an iterator. For prediction a batch can be X alone.
        n_features: D; by default that of the first batch, which is read to find out.
        categorical_features: which columns are categories: "from_dtype" (text, categories and booleans of frames, by
            the types in the first batch), None, or a mask, places or names. `survey` finds their levels; until then
            their cells are NaN.

    >>> source = Batches([(np.zeros((3, 2)), [0, 1, 0]), (np.ones((2, 2)), [1, 1])])
    >>> next(source.blocks(0)).where(3)
    'batch 1, row 0'
    """

    lanes = 1

    def __init__(
        self,
        batches: Any,
        n_features: int | None = None,
        *,
        categorical_features: CategoricalFeatures = "from_dtype",
    ) -> None:
        if isinstance(batches, Iterator):
            raise TypeError(f"`batches` must be readable several times, got {batches!r}, which can be read only once; "
                            "give a list of batches, or a function that returns a new iterator")  # fmt: skip
        if not (callable(batches) or isinstance(batches, Iterable)):
            raise TypeError(f"`batches` must be an iterable of (X, y) batches, got {batches!r}.")
        sampler = batches.sampler if isinstance(batches, DataLoader) else None
        if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(batches.dataset):
            batches = DataLoader(  # the rows in order, so that each keeps its number; other samplers are left alone
                batches.dataset,
                batch_size=batches.batch_size,
                num_workers=batches.num_workers,
                collate_fn=batches.collate_fn,
                worker_init_fn=batches.worker_init_fn,
            )
        self._batches, self.categorical_features = batches, categorical_features
        if n_features is None:
            shape = getattr(self._first, "shape", None) or np.asarray(self._first).shape
            if len(shape) != 2:
                raise ValueError(f"X of batch 0 must have two dimensions, got the shape {tuple(shape)}.")
            n_features = int(shape[1])
        self.n_features = n_features

    @cached_property
    def feature_names(self) -> list[str] | None:
        """The names of the columns, where batches are frames."""
        return column_names(self._first)

    @cached_property
    def schema(self) -> Schema | None:
        """What the columns of the first batch hold; None where all hold numbers."""
        return kinds_of(self._first, self.categorical_features, "X of batch 0")

    def with_schema(self, schema: Schema) -> Batches:
        """Return a copy that codes its cells by this schema."""
        found = copy(self)
        found.schema = schema
        return found

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        parts, done = list[Block](), 0
        for k, (X, y) in enumerate(self._pairs()):
            cells = self._cells(X, f"X of batch {k}")
            labels = None if y is None else as_labels(y, len(cells), f"y of batch {k}")
            if len(cells):
                rows = np.arange(done, done + len(cells))
                parts.append(Block(cells, labels, rows, partial(row_name, f"batch {k}", 0)))
            done += len(cells)
            if sum(len(part.rows) for part in parts) >= MIN_ROWS:
                yield check_block(_join(parts), self.feature_names)
                parts = []
        if parts:
            yield check_block(_join(parts), self.feature_names)

    def categories(self, lane: int) -> Iterator[CategoryBlock]:
        """Read the categories and labels in stored order."""
        places = [] if self.schema is None else self.schema.categories
        for k, (X, y) in enumerate(self._pairs()):
            columns, where = table_columns(X, f"X of batch {k}"), partial(row_name, f"batch {k}", 0)
            if len(columns) != self.n_features:
                raise ValueError(f"X of batch {k} must have {self.n_features} columns, got {len(columns)}")
            labels = None if y is None else as_labels(y, len(columns[0][1]), f"y of batch {k}")
            check_labels(labels, where)
            yield CategoryBlock({j: columns[j][1] for j in places}, labels, where)

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "batches", "n_features": self.n_features, "lanes": 1}

    def _cells(self, X: Any, name: str) -> Array:
        if self.schema is None:
            return as_features(X, self.n_features, name)
        return self.schema.read(X, name)

    @cached_property
    def _first(self) -> Any:
        """The inputs of the first batch."""
        if not (first := list(islice(self._pairs(), 1))):
            raise ValueError("`batches` must hold at least one batch, got none.")
        return first[0][0]

    def _pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yield the inputs and labels of each batch; labels are None where it has none."""
        for k, item in enumerate(self._batches if isinstance(self._batches, Iterable) else self._batches()):
            pair = (item,) if hasattr(item, "shape") else item
            if not (isinstance(pair, tuple | list) and len(pair) in (1, 2)):
                raise TypeError(f"batch {k} must be a pair (X, y), or X alone, got a {type(item).__name__}.")
            names = column_names(pair[0])
            if k and names is not None and names != self.feature_names:
                raise ValueError(f"X of batch {k} must have the columns of batch 0, {self.feature_names}, got {names}")
            yield pair[0], pair[1] if len(pair) == 2 else None


def _join(parts: list[Block]) -> Block:
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.rows) for part in parts)])
    unlabeled = [part for part in parts if part.y is None]
    if 0 < len(unlabeled) < len(parts):
        raise ValueError(f"{unlabeled[0].where(0)}: the label is missing; give all batches labels, or none")

    def where(i: int) -> str:
        part = int(np.searchsorted(starts, i, side="right")) - 1
        return parts[part].where(i - int(starts[part]))

    y = None if unlabeled else concat_labels([part.y for part in parts if part.y is not None])
    return Block(np.concatenate([part.X for part in parts]), y, np.concatenate([part.rows for part in parts]), where)
