"""Rows of arrays, in memory or in `.npy` files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.schema import (
    CategoricalFeatures,
    Schema,
    column_names,
    joint_kinds,
    kinds_of,
    object_array,
    table_columns,
)
from cavity.data.source import (
    Block,
    CategoryBlock,
    as_features,
    as_labels,
    block_rows,
    check_block,
    check_labels,
    permuted,
    row_name,
)


class Arrays:
    """Rows of a NumPy array, a memory map, a tensor, a frame, or anything whose rows can be sliced.

    The array is never copied as a whole: one slice at a time is converted to float64.

    Args:
        X: inputs, (N, D): numbers, text, dates and gaps.
        y: labels of any type, (N,); None for prediction.
        lanes: number of parts of the rows, and so the largest number of workers that can share them.
        name: of X in error messages.
        categorical_features: which columns are categories: "from_dtype", None, or a mask, places or names. `survey`
            finds their levels; until then their cells are NaN.

    >>> source = Arrays(np.arange(12.0).reshape(6, 2), ["a", "b"] * 3, lanes=2)
    >>> [block.rows.tolist() for block in source.blocks(1)]
    [[0, 1, 2]]
    >>> next(source.blocks(1)).where(0)
    'X, row 3'
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        lanes: int = 1,
        *,
        name: str = "X",
        categorical_features: CategoricalFeatures = "from_dtype",
    ) -> None:
        self._X, self._y, self._name = _sliceable(X, name), None if y is None else _sliceable(y, "y"), name
        if len(self._X.shape) != 2:
            raise ValueError(f"{name} must have two dimensions (rows, features), got the shape {tuple(self._X.shape)}.")
        self._n_rows, self.n_features = (int(n) for n in self._X.shape)
        if self._y is not None and (found := len(self._y)) != self._n_rows:
            raise ValueError(f"{name} and y must have as many rows, got {name} with {self._n_rows} and y with {found}.")
        if lanes < 1:
            raise ValueError(f"`lanes` must be 1 or more, got {lanes}.")
        self.lanes = max(1, min(lanes, self._n_rows))
        self.feature_names = column_names(X)
        self.categorical_features = categorical_features
        self.schema = self._find_schema()

    def with_schema(self, schema: Schema) -> Arrays:
        """Return a copy that codes its cells by this schema."""
        found = copy(self)
        found.schema = schema
        return found

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        for X, y, where, first in self._slices(lane, seed):
            if self.schema is None:
                cells = as_features(X, self.n_features, self._name, where.args[1])
            else:
                cells = self.schema.read(X, self._name, where.args[1])
            yield check_block(Block(cells, y, np.arange(first, first + len(cells)), where), self.feature_names)

    def categories(self, lane: int) -> Iterator[CategoryBlock]:
        """Read the categories and labels of a lane in stored order."""
        places = [] if self.schema is None else self.schema.categories
        for X, y, where, _ in self._slices(lane, None):
            check_labels(y, where)
            columns = table_columns(X, self._name)
            yield CategoryBlock({j: columns[j][1] for j in places}, y, where)

    def _slices(self, lane: int, seed: int | None) -> Iterator[tuple[Any, NDArray[Any] | None, partial[str], int]]:
        """Yield rows of a lane: inputs, labels, what names a row, and the number of the first."""
        first, end = (self._n_rows * (lane + k) // self.lanes for k in (0, 1))
        size = block_rows(self.n_features, self.lanes)
        for start in permuted(range(first, end, size), seed):
            stop = min(start + size, end)
            y = None if self._y is None else as_labels(_rows(self._y, start, stop), stop - start, "y")
            yield _rows(self._X, start, stop), y, partial(row_name, self._name, start), start - first

    def _find_schema(self) -> Schema | None:
        """Find what the columns hold by their types; where they hold objects, by all of these."""
        size, types = block_rows(self.n_features, 1), getattr(self._X, "dtypes", getattr(self._X, "dtype", ()))
        has_objects = "object" in map(str, types if isinstance(types, Iterable) else [types])
        found = None
        for start in range(0, self._n_rows if has_objects else 1, size):
            rows = _rows(self._X, start, min(start + size, self._n_rows))
            found = joint_kinds(found, kinds_of(rows, self.categorical_features, self._name))
        return found

    def fingerprint(self) -> dict[str, Any]:
        shape = [self._n_rows, self.n_features]
        return {"kind": "arrays", "shape": shape, "features": self.feature_names, "lanes": self.lanes}


class Npy(Arrays):
    """Rows of `.npy` files, read one slice at a time; they need not fit in memory.

    Args:
        X_path: file of the inputs, (N, D).
        y_path: file of the labels, (N,), or the labels themselves; None for prediction.
        lanes: number of parts of the rows, and so the largest number of workers that can share them.
        categorical_features: as for `Arrays`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "X.npy", np.arange(12.0).reshape(6, 2))
    >>> source = Npy(folder / "X.npy", [0, 1, 0, 1, 0, 1])
    >>> source.lanes, source.n_features
    (6, 2)
    """

    def __init__(
        self,
        X_path: str | os.PathLike[str],
        y_path: Any = None,
        lanes: int = 8,
        *,
        categorical_features: CategoricalFeatures = "from_dtype",
    ) -> None:
        X, y = _NpyFile(Path(X_path)), _NpyFile(Path(y_path)) if isinstance(y_path, str | os.PathLike) else y_path
        super().__init__(X, y, lanes, name=X.path.name, categorical_features=categorical_features)
        self._paths = [part.path for part in (X, y) if isinstance(part, _NpyFile)]

    def fingerprint(self) -> dict[str, Any]:
        files = [{"name": path.name, "bytes": path.stat().st_size} for path in self._paths]
        return super().fingerprint() | {"kind": "npy", "files": files}


class _NpyFile:
    """An array in a file. Each slice is copied and the map closed; otherwise all that was read would stay mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shape = self._open().shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return np.array(self._open()[rows])

    def _open(self) -> NDArray[Any]:
        found = np.load(self.path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise ValueError(f"{self.path.name} must hold one array, got several; save the array with np.save.")
        return found


def _sliceable(values: Any, name: str) -> Any:
    """Return what has a shape and slices as it is; convert lists to arrays, of objects where they hold text."""
    if hasattr(values, "tocsr"):
        raise TypeError(f"{name} must be dense, got a sparse matrix; use {name}.toarray().")
    if hasattr(values, "shape") and hasattr(values, "__getitem__"):
        return values
    found = np.asarray(values)
    return object_array(values, name) if found.ndim == 2 and found.dtype.kind in "US" else found


def _rows(values: Any, start: int, end: int) -> Any:
    return getattr(values, "iloc", values)[start:end]  # a pandas frame would look for index labels
