"""Rows of any iterable of batches, such as a torch DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, RandomSampler

from cavity.data.labels import together
from cavity.data.source import Array, Block, as_labels, as_numbers, checked, spot

FEWEST_ROWS = 4_096  # small batches are put together up to here


class Batches:
    """Rows of an iterable of batches (X, y), of arrays, lists or tensors: one lane.

    It is read several times, each time from its start, and must hold the same rows in the same order every time: rows
    are known by their numbers. The shuffle buffer alone shuffles them, so rows that are alike should not all come in
    one stretch. A DataLoader with `shuffle=True` is read in the order of its dataset.

    Args:
        batches: a list of batches, a DataLoader, any other iterable that can be read again and again, or a function
            that returns an iterator. A batch for prediction may be X alone.
        n_features: D; by default that of the first batch, which is read for it.

    >>> source = Batches([(np.zeros((3, 2)), [0, 1, 0]), (np.ones((2, 2)), [1, 1])])
    >>> next(source.blocks(0)).where(3)
    'batch 1, row 0'
    """

    feature_names: list[str] | None = None
    lanes = 1

    def __init__(self, batches: Any, n_features: int | None = None) -> None:
        if isinstance(batches, Iterator):
            raise TypeError(f"batches={batches!r} can be read only once; give a list of batches, or a function that "
                            "returns a new iterator each time: the rows are read several times")  # fmt: skip
        if not (callable(batches) or isinstance(batches, Iterable)):
            raise TypeError(f"batches={batches!r} cannot be read; an iterable of (X, y) batches is needed")
        self._batches = _in_order(batches) if isinstance(batches, DataLoader) else batches
        self.n_features = self._width() if n_features is None else n_features

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        held: list[Block] = []
        for block in self._parts():
            held.append(block)
            if sum(len(part.rows) for part in held) >= FEWEST_ROWS:
                yield checked(_joined(held), None)
                held = []
        if held:
            yield checked(_joined(held), None)

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "batches", "n_features": self.n_features, "lanes": 1}

    def _items(self) -> Iterator[Any]:
        return iter(self._batches if isinstance(self._batches, Iterable) else self._batches())

    def _width(self) -> int:
        for item in self._items():
            return _parted(item, "batch 0", None)[0].shape[1]
        raise ValueError("batches holds no batch; at least one is needed")

    def _parts(self) -> Iterator[Block]:
        """A block for each batch that has rows."""
        done = 0
        for k, item in enumerate(self._items()):
            X, y = _parted(item, f"batch {k}", self.n_features)
            if len(X):
                yield Block(X, y, np.arange(done, done + len(X)), partial(spot, f"batch {k}", 0))
            done += len(X)


def _parted(item: Any, name: str, n_features: int | None) -> tuple[Array, NDArray[Any] | None]:
    """X and y of a batch; y is None where it has none."""
    pair = (item,) if hasattr(item, "shape") else item
    if not (isinstance(pair, tuple | list) and len(pair) in (1, 2)):
        raise TypeError(f"{name} is a {type(item).__name__}; a pair (X, y), or X alone, is needed")
    X = as_numbers(pair[0], n_features, f"X of {name}")
    has_labels = len(pair) == 2 and pair[1] is not None
    return X, as_labels(pair[1], len(X), f"y of {name}") if has_labels else None


def _joined(parts: list[Block]) -> Block:
    """Blocks that follow each other, as one."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.rows) for part in parts)])
    X, rows = (np.concatenate(columns) for columns in zip(*((part.X, part.rows) for part in parts), strict=True))
    return Block(X, _all_labels(parts), rows, partial(_where, [part.where for part in parts], starts))


def _all_labels(parts: list[Block]) -> NDArray[Any] | None:
    found = [part.y for part in parts if part.y is not None]
    if found and len(found) < len(parts):
        bare = next(part for part in parts if part.y is None)
        raise ValueError(f"{bare.where(0)}: there is no label, but there are in other batches; all need them or none")
    return together(found) if found else None


def _where(places: list[Callable[[int], str]], starts: NDArray[np.int64], i: int) -> str:
    part = int(np.searchsorted(starts, i, side="right")) - 1
    return places[part](i - int(starts[part]))


def _in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Without its shuffling, which would give rows new numbers each time; other samplers are left alone."""
    sampler = loader.sampler
    if type(sampler) is not RandomSampler or sampler.replacement or sampler.num_samples != len(loader.dataset):  # type: ignore[arg-type]
        return loader
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        worker_init_fn=loader.worker_init_fn,
    )
