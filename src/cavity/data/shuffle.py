"""Batches of rows from all lanes, shuffled or as stored; the same rows in each step on any number of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.buffer import Cut, Rows, Skip, joined, shuffled
from cavity.data.source import ROWS, Array, Block, Source


class LaneBatch(NamedTuple):
    """The rows of one step that are of this rank's lanes.

    Attributes:
        X: inputs, (n, D); n may be 0.
        y: labels as the source has them, (n,).
        lane, row: which rows they are, (n,).
        where: where the i-th of them is stored, in words; it may take a while to find.
        step: which step of the epoch it is.
        total: how many rows the step has in all lanes, those of other workers included.
    """

    X: Array
    y: NDArray[Any] | None
    lane: NDArray[np.int64]
    row: NDArray[np.int64]
    where: Callable[[int], str]
    step: int
    total: int


def steps(lane_rows: Sequence[int], size: int, skip: Skip | None = None) -> int:
    """Steps of an epoch: as many as it takes for at most `size` rows a step, up to rounding in each lane."""
    return -(-sum(_kept_rows(lane_rows, skip)) // size)


def taken(kept: Sequence[int], n_steps: int, step: int) -> list[int]:
    """How many rows of each lane the steps before this one take: as evenly as can be.

    >>> [taken([10, 5], 4, step) for step in range(5)]
    [[0, 0], [2, 1], [5, 2], [7, 3], [10, 5]]
    """
    return [step * n // max(n_steps, 1) for n in kept]


def batches(
    source: Source,
    lane_rows: Sequence[int],
    size: int,
    seed: int,
    epoch: int,
    *,
    first: int = 0,
    mine: Sequence[int] | None = None,
    skip: Skip | None = None,
    buffer_rows: int = ROWS,
) -> Iterator[LaneBatch]:
    """The steps of an epoch, every row in one of them.

    Pieces of a lane come in an order drawn from (seed, epoch, lane), and its rows pass through a buffer in which they
    are permuted. So a step has the same rows on any number of workers.

    Args:
        source: the rows.
        lane_rows: how many each lane holds, as surveyed.
        size: rows a step, about.
        seed, epoch: of the order.
        first: the step to begin with.
        mine: lanes to read; by default all.
        skip: rows to leave out: for each lane, whoever reads it, their numbers in rising order.
        buffer_rows: rows in the buffers of all lanes together.
    """
    kept, n_steps = _kept_rows(lane_rows, skip), steps(lane_rows, size, skip)
    if not 0 <= first <= n_steps:
        raise ValueError(f"first={first} cannot be used; the epoch has {n_steps} steps of about {size} rows")
    lanes, room = range(source.lanes) if mine is None else mine, buffer_rows // source.lanes
    streams = {lane: Cut(shuffled(source, lane, kept[lane], [seed, epoch, lane], skip, room)) for lane in lanes}
    before = taken(kept, n_steps, first)
    for lane, stream in streams.items():
        stream.drop(before[lane])
    for step in range(first, n_steps):
        after = taken(kept, n_steps, step + 1)
        parts = {lane: list(stream.take(after[lane] - before[lane])) for lane, stream in streams.items()}
        yield _batch(source, parts, step, sum(after) - sum(before))
        before = after
    for stream in streams.values():
        stream.finish()


def in_order(source: Source, mine: Sequence[int] | None = None, size: int = ROWS) -> Iterator[LaneBatch]:
    """Every row of these lanes once, as stored, at most `size` at a time; `total` is what a batch holds itself."""
    step = 0
    for lane in range(source.lanes) if mine is None else mine:
        for block in source.blocks(lane):
            for start in range(0, len(block.rows), size):
                yield _slice(block, lane, start, size, step)
                step += 1


def locate(source: Source, lane: int, row: int) -> str:
    """Where a row is stored, in words; the lane is read up to it."""
    for block in source.blocks(lane):
        found = np.flatnonzero(block.rows == row)
        if len(found):
            return block.where(int(found[0]))
    return f"lane {lane}, row {row}"


def _kept_rows(lane_rows: Sequence[int], skip: Skip | None) -> list[int]:
    return [n - len((skip or {}).get(lane, ())) for lane, n in enumerate(lane_rows)]


def _batch(source: Source, parts: dict[int, list[Rows]], step: int, total: int) -> LaneBatch:
    found = [rows for lane_parts in parts.values() for rows in lane_parts]
    counts = [sum(len(rows.row) for rows in lane_parts) for lane_parts in parts.values()]
    lane = np.repeat(np.array(list(parts), dtype=np.int64), counts)
    rows = joined(found, source.n_features)
    return LaneBatch(rows.X, rows.y, lane, rows.row, partial(_where, source, lane, rows.row), step, total)


def _slice(block: Block, lane: int, start: int, size: int, step: int) -> LaneBatch:
    chosen = slice(start, start + size)
    y, row = None if block.y is None else block.y[chosen], block.rows[chosen]
    place = partial(_shifted, block.where, start)
    return LaneBatch(block.X[chosen], y, np.full(len(row), lane), row, place, step, len(row))


def _shifted(where: Callable[[int], str], start: int, i: int) -> str:
    return where(start + i)


def _where(source: Source, lane: NDArray[np.int64], row: NDArray[np.int64], i: int) -> str:
    return locate(source, int(lane[i]), int(row[i]))
