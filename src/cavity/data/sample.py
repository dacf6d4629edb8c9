"""A uniform sample of rows, the same however many processes read them and in whatever blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import together
from cavity.data.source import Array, Block


class Drawn(NamedTuple):
    """Rows with the random keys that they were drawn by."""

    key: Array
    X: Array
    y: NDArray[Any]
    lane: NDArray[np.int64]
    row: NDArray[np.int64]

    def take(self, chosen: NDArray[Any] | slice) -> Drawn:
        """Some of them."""
        return Drawn(self.key[chosen], self.X[chosen], self.y[chosen], self.lane[chosen], self.row[chosen])

    def smallest(self, size: int) -> Drawn:
        """Those of the smallest keys, sorted by them."""
        return self.take(np.lexsort((self.row, self.lane, self.key))[:size])


class Draw:
    """Draws rows without replacement while they come by: each gets a random key, and the smallest keys win.

    Args:
        size: how many rows.
        seed: of the keys; those of a lane depend on nothing else.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._keys: dict[int, np.random.Generator] = {}
        self._held: list[Drawn] = []
        self._cut = np.inf if size > 0 else 0.0  # keys at or above it have lost

    def add(self, lane: int, block: Block) -> None:
        """Look at the next rows of a lane, in the order in which they are stored."""
        if lane not in self._keys:
            self._keys[lane] = np.random.Generator(np.random.Philox([self._seed, lane]))
        key = self._keys[lane].random(len(block.rows))
        chosen = np.flatnonzero(key < self._cut)
        assert block.y is not None
        rows = Drawn(key, block.X, block.y, np.full(len(key), lane), block.rows)
        self._held.append(rows.take(chosen))
        if sum(len(part.key) for part in self._held) > 2 * self._size:
            self._compact()

    def drawn(self) -> Drawn | None:
        """The rows so far; None where there were none."""
        return joined(self._held).smallest(self._size) if self._held else None

    def _compact(self) -> None:
        kept = joined(self._held).smallest(self._size)
        self._held = [kept]
        self._cut = float(kept.key[-1]) if self._size > 0 else 0.0


def joined(parts: Sequence[Drawn]) -> Drawn:
    """All rows of the parts."""
    key, X, y, lane, row = zip(*parts, strict=True)
    return Drawn(np.concatenate(key), np.concatenate(X), together(y), np.concatenate(lane), np.concatenate(row))
