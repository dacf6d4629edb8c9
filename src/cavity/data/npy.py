"""Rows of .npy files, mapped into memory a slice at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.in_memory import Arrays
from cavity.data.source import Block

PathLike = str | os.PathLike[str]


class Npy:
    """Rows of `.npy` files, however large.

    Args:
        X_path: file of the inputs, (N, D).
        y_path: file of the labels, (N,), or the labels themselves; None for prediction.
        lanes: into how many stretches the rows are divided, which is the most processes that can share them.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "X.npy", np.arange(12.0).reshape(6, 2))
    >>> source = Npy(folder / "X.npy", [0, 1, 0, 1, 0, 1])
    >>> source.lanes, source.n_features
    (6, 2)
    """

    feature_names: list[str] | None = None

    def __init__(self, X_path: PathLike, y_path: Any = None, lanes: int = 8) -> None:
        X, y = _Mapped(Path(X_path)), _mapped(y_path)
        self._arrays = Arrays(X, y, lanes, name=X.path.name)
        self._files = [part.path for part in (X, y) if isinstance(part, _Mapped)]
        self.n_features, self.lanes = self._arrays.n_features, self._arrays.lanes

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        return self._arrays.blocks(lane, seed)

    def fingerprint(self) -> dict[str, Any]:
        files = [{"name": path.name, "bytes": path.stat().st_size} for path in self._files]
        return self._arrays.fingerprint() | {"kind": "npy", "files": files}


def _mapped(labels: Any) -> Any:
    return _Mapped(Path(labels)) if isinstance(labels, str | os.PathLike) else labels


class _Mapped:
    """An array in a file. Each slice is copied and the file let go, or all that was read would stay mapped."""

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
            raise ValueError(f"{self.path.name} holds several arrays; save the one to read with np.save")
        return found
