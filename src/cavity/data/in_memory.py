"""Rows of arrays, in memory or mapped into it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from cavity.data.source import Block, arranged, as_labels, as_numbers, block_rows, checked, spot


class Arrays:
    """Rows of an array: of NumPy, a memory map, a tensor, a frame, or anything that gives slices of its rows.

    It is never copied as a whole: a slice at a time is turned into float64.

    Args:
        X: inputs, (N, D).
        y: labels of any type, (N,); None for prediction.
        lanes: into how many stretches the rows are divided, which is the most processes that can share them.

    >>> source = Arrays(np.arange(12.0).reshape(6, 2), ["a", "b"] * 3, lanes=2)
    >>> [block.rows.tolist() for block in source.blocks(1)]
    [[0, 1, 2]]
    >>> next(source.blocks(1)).where(0)
    'X, row 3'
    """

    def __init__(self, X: Any, y: Any = None, lanes: int = 1, *, name: str = "X") -> None:
        self._X, self._y, self._name = _sliceable(X, name), None if y is None else _sliceable(y, "y"), name
        self._n_rows, self.n_features = _shape(self._X, name)
        if self._y is not None and (found := len(self._y)) != self._n_rows:
            raise ValueError(f"{name} has {self._n_rows} rows and y has {found} labels; as many are needed")
        if lanes < 1:
            raise ValueError(f"lanes={lanes} cannot be used; 1 or more is needed")
        self.lanes = max(1, min(lanes, self._n_rows))
        self.feature_names = _names(X)

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        first, end = (self._n_rows * (lane + k) // self.lanes for k in (0, 1))
        size = block_rows(self.n_features, self.lanes)
        for start in arranged(range(first, end, size), seed):
            yield self._block(start, min(start + size, end), first)

    def fingerprint(self) -> dict[str, Any]:
        return {
            "kind": "arrays",
            "shape": [self._n_rows, self.n_features],
            "features": self.feature_names,
            "lanes": self.lanes,
        }

    def _block(self, start: int, end: int, first: int) -> Block:
        X = as_numbers(_rows(self._X, start, end), self.n_features, self._name)
        y = None if self._y is None else as_labels(_rows(self._y, start, end), len(X), "y")
        block = Block(X, y, np.arange(start - first, end - first), partial(spot, self._name, start))
        return checked(block, self.feature_names)


def _sliceable(values: Any, name: str) -> Any:
    """What has a shape and rows to slice is left where it is; lists become arrays."""
    if hasattr(values, "tocsr"):
        raise TypeError(f"{name} is a sparse matrix; a dense array is needed, such as {name}.toarray()")
    return values if hasattr(values, "shape") and hasattr(values, "__getitem__") else np.asarray(values)


def _shape(X: Any, name: str) -> tuple[int, int]:
    if len(X.shape) != 2:
        raise ValueError(f"{name} has the shape {tuple(X.shape)}; two dimensions are needed, (rows, features)")
    return int(X.shape[0]), int(X.shape[1])


def _rows(values: Any, start: int, end: int) -> Any:
    return getattr(values, "iloc", values)[start:end]  # a pandas frame would look for labels


def _names(X: Any) -> list[str] | None:
    names = list(getattr(X, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None
