"""The rows of one lane in random order, and any number of them at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import together
from cavity.data.source import Array, Block, Source

Skip = Mapping[int, NDArray[np.int64]]

PORTION = 4_096  # rows that change places at a time, at most
PORTIONS = 4  # in a buffer, at least: fewer would hardly mix


class Rows(NamedTuple):
    """Inputs, labels and numbers in the lane."""

    X: Array
    y: NDArray[Any] | None
    row: NDArray[np.int64]

    def take(self, chosen: NDArray[Any] | slice) -> Rows:
        """Some of them."""
        return Rows(self.X[chosen], None if self.y is None else self.y[chosen], self.row[chosen])

    def parts(self, size: int) -> Iterator[Rows]:
        """All of them, at most `size` at a time."""
        return (self.take(slice(start, start + size)) for start in range(0, len(self.row), size))


class Buffer:
    """A shuffle buffer: once it is full, rows that come in push out as many others, drawn at random.

    Args:
        capacity: rows that it holds.
        rng: what draws.
    """

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        self._capacity, self._rng = max(capacity, 1), rng
        self._portion = max(1, min(self._capacity // PORTIONS, PORTION))
        self._held: Rows | None = None
        self._filled = 0

    def push(self, rows: Rows) -> Iterator[Rows]:
        """Rows go in; those that they push out."""
        free = self._capacity - self._filled
        self._put(np.arange(self._filled, self._filled + min(free, len(rows.row))), rows.take(slice(free)))
        self._filled += min(free, len(rows.row))
        for part in rows.take(slice(free, None)).parts(self._portion):
            places = self._rng.choice(self._capacity, len(part.row), replace=False)
            out = self._room(part).take(places)
            self._put(places, part)
            yield out

    def rest(self) -> Iterator[Rows]:
        """All that is left."""
        order = self._rng.permutation(self._filled)
        for start in range(0, self._filled, self._portion):
            assert self._held is not None
            yield self._held.take(order[start : start + self._portion])
        self._filled = 0

    def _put(self, places: NDArray[np.int64], rows: Rows) -> None:
        room = self._room(rows)
        room.X[places], room.row[places] = rows.X, rows.row
        if room.y is not None:
            room.y[places] = rows.y

    def _room(self, rows: Rows) -> Rows:
        """Where rows are held, with labels of a type that these fit in."""
        n, held = self._capacity, self._held
        y = rows.y if held is None else held.y
        if held is None:
            y = None if y is None else np.empty(n, dtype=y.dtype)
            held = Rows(np.empty((n, rows.X.shape[1])), y, np.empty(n, dtype=np.int64))
        elif y is not None and rows.y is not None and y.dtype != rows.y.dtype:
            y = y.astype(together([y[:1], rows.y[:1]]).dtype)
        self._held = held._replace(y=y)
        return self._held


def shuffled(
    source: Source, lane: int, n_rows: int, seed: Sequence[int], skip: Skip | None, buffer_rows: int
) -> Iterator[Rows]:
    """The rows of a lane in random order; it is an error if there are more or fewer than `n_rows`."""
    rng = np.random.default_rng(seed)
    buffer, left_out, seen = Buffer(min(buffer_rows, n_rows), rng), (skip or {}).get(lane), 0
    for block in source.blocks(lane, seed=int(rng.integers(2**62))):
        rows = _kept(block, left_out)
        seen += len(rows.row)
        if seen > n_rows:
            raise _changed(lane, f"more than {n_rows}")
        yield from buffer.push(rows)
    if seen < n_rows:
        raise _changed(lane, f"{seen}, not {n_rows},")
    yield from buffer.rest()


def joined(parts: Sequence[Rows], n_features: int) -> Rows:
    """All rows of the parts."""
    if not parts:
        return Rows(np.empty((0, n_features)), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    y = None if parts[0].y is None else together([part.y for part in parts if part.y is not None])
    return Rows(np.concatenate([part.X for part in parts]), y, np.concatenate([part.row for part in parts]))


class Cut:
    """A stream of rows from which any number can be taken."""

    def __init__(self, stream: Iterator[Rows]) -> None:
        self._stream, self._rows, self._at = stream, joined([], 0), 0

    def take(self, count: int) -> Iterator[Rows]:
        """The next rows, in one part or several; none of them is copied."""
        while count > 0:
            if self._at == len(self._rows.row):
                self._rows, self._at = next(self._stream), 0
            part = self._rows.take(slice(self._at, self._at + count))
            self._at += len(part.row)
            count -= len(part.row)
            yield part

    def drop(self, count: int) -> None:
        """Go past the next rows."""
        for _ in self.take(count):
            pass

    def finish(self) -> None:
        """Read to the end, where nothing is left; were there rows, the stream would say so."""
        for _ in self._stream:
            pass


def _kept(block: Block, left_out: NDArray[np.int64] | None) -> Rows:
    rows = Rows(block.X, block.y, block.rows)
    if left_out is None or not len(left_out):
        return rows
    place = np.searchsorted(left_out, block.rows).clip(max=len(left_out) - 1)
    return rows.take(left_out[place] != block.rows)


def _changed(lane: int, found: str) -> ValueError:
    return ValueError(f"lane {lane} of the source has {found} rows to train on: the data have changed since they were "
                      "surveyed; make the source anew and fit again")  # fmt: skip
