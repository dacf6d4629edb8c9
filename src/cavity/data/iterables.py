"""Rows of an iterable of batches, such as a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, RandomSampler

from cavity.data.labels import concat_labels
from cavity.data.source import Array, Block, as_features, as_labels, check_block, row_name

MIN_ROWS = 4_096  # small batches are joined up to here


class Batches:
    """Rows of an iterable of batches (X, y) of arrays, lists or tensors, in one lane.

    The iterable is read several times from its start and must give the same rows in the same order every time, because
    rows are identified by their numbers. Only the shuffle buffer shuffles them, so rows of one class should not all
    come together. A DataLoader with `shuffle=True` is read in the order of its dataset.

    Args:
        batches: a list of batches, a DataLoader, another iterable that can be read repeatedly, or a function that
            returns an iterator. For prediction a batch can be X alone.
        n_features: D; by default that of the first batch, which is read to find out.

    >>> source = Batches([(np.zeros((3, 2)), [0, 1, 0]), (np.ones((2, 2)), [1, 1])])
    >>> next(source.blocks(0)).where(3)
    'batch 1, row 0'
    """

    feature_names: list[str] | None = None
    lanes = 1

    def __init__(self, batches: Any, n_features: int | None = None) -> None:
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
        self._batches = batches
        if n_features is None:
            if not (first := list(islice(self._items(), 1))):
                raise ValueError("`batches` must hold at least one batch, got none.")
            n_features = _split(first[0], "batch 0", None)[0].shape[1]
        self.n_features = n_features

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        parts, done = list[Block](), 0
        for k, item in enumerate(self._items()):
            X, y = _split(item, f"batch {k}", self.n_features)
            if len(X):
                parts.append(Block(X, y, np.arange(done, done + len(X)), partial(row_name, f"batch {k}", 0)))
            done += len(X)
            if sum(len(part.rows) for part in parts) >= MIN_ROWS:
                yield check_block(_join(parts), None)
                parts = []
        if parts:
            yield check_block(_join(parts), None)

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "batches", "n_features": self.n_features, "lanes": 1}

    def _items(self) -> Iterator[Any]:
        return iter(self._batches if isinstance(self._batches, Iterable) else self._batches())


def _split(item: Any, name: str, n_features: int | None) -> tuple[Array, NDArray[Any] | None]:
    """Split a batch into X and y; y is None where it has none."""
    pair = (item,) if hasattr(item, "shape") else item
    if not (isinstance(pair, tuple | list) and len(pair) in (1, 2)):
        raise TypeError(f"{name} must be a pair (X, y), or X alone, got a {type(item).__name__}.")
    X = as_features(pair[0], n_features, f"X of {name}")
    has_labels = len(pair) == 2 and pair[1] is not None
    return X, as_labels(pair[1], len(X), f"y of {name}") if has_labels else None


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
