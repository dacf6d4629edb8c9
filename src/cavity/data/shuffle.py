"""Batches of rows from all lanes, shuffled or in stored order; each step has the same rows on any number of workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import encode
from cavity.data.source import BUFFER_ROWS, Array, Block, Source, labels_of, row_hashes

T = TypeVar("T")

PORTION = 4_096  # rows exchanged at a time, at most
PORTIONS = 4  # in a buffer, at least: fewer would hardly mix
END: Any = object()


class Skip(NamedTuple):
    """Rows to leave out: all with these hashes, so that no copy of such a row stays.

    Attributes:
        hashes: of the rows, sorted.
        lane_rows: number of these rows in each lane.
        class_counts: number of these rows in each class.
        by_class: the same for each hash, (H, C); None where it is not known.
    """

    hashes: NDArray[np.uint64]
    lane_rows: NDArray[np.int64]
    class_counts: NDArray[np.int64]
    by_class: NDArray[np.int64] | None = None


class LaneRows(NamedTuple):
    """Inputs, encoded labels and numbers of rows of one lane."""

    X: Array
    y: NDArray[np.int64]
    row: NDArray[np.int64]

    def take(self, chosen: NDArray[Any] | slice) -> LaneRows:
        return LaneRows(self.X[chosen], self.y[chosen], self.row[chosen])

    def parts(self, size: int) -> Iterator[LaneRows]:
        """Split into parts of at most `size` rows."""
        return (self.take(slice(start, start + size)) for start in range(0, len(self.row), size))

    def without(self, skip: Skip | None) -> LaneRows:
        """Leave out these rows."""
        if skip is None or not len(skip.hashes):
            return self
        return self.take(find_hashes(self.X, skip.hashes) < 0)


class LaneBatch(NamedTuple):
    """The rows of one step that are of this worker's lanes."""

    X: Array  # inputs, (n, D); n can be 0
    y: NDArray[np.int64]  # labels encoded as 0 … C−1, (n,)
    lane: NDArray[np.int64]  # (n,)
    row: NDArray[np.int64]  # numbers of the rows in their lanes, (n,)
    total: int  # rows of the step in all lanes, including those of other workers


def find_hashes(X: Array, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the index of each row's hash in the sorted `hashes`; -1 if it is not one of them."""
    if not len(hashes):
        return np.full(len(X), -1)
    found = row_hashes(X)
    place = np.searchsorted(hashes, found).clip(max=len(hashes) - 1)
    return np.where(hashes[place] == found, place, -1)


def encoded(block: Block, classes: NDArray[Any]) -> LaneRows:
    """Encode the labels of a block; raise ValueError for a label that is not one of the classes."""
    return LaneRows(block.X, encode(labels_of(block), classes, block.where), block.rows)


def n_steps(lane_rows: Sequence[int], size: int, skip: Skip | None = None) -> int:
    """Return the steps of an epoch of at most `size` rows each, up to rounding in each lane."""
    return -(-sum(_rows_kept(lane_rows, skip)) // size)


def taken(kept: Sequence[int], steps: int, step: int) -> list[int]:
    """Return how many rows of each lane the steps before this one take, as evenly as possible.

    >>> [taken([10, 5], 4, step) for step in range(5)]
    [[0, 0], [2, 1], [5, 2], [7, 3], [10, 5]]
    """
    return [step * n // max(steps, 1) for n in kept]


def batches(
    source: Source,
    classes: NDArray[Any],
    lane_rows: Sequence[int],
    size: int,
    seed: int,
    epoch: int,
    *,
    first: int = 0,
    lanes: Sequence[int] | None = None,
    skip: Skip | None = None,
    buffer_rows: int = BUFFER_ROWS,
) -> Iterator[LaneBatch]:
    """Yield the steps of an epoch, from `first` on; every row is in one of them.

    The pieces of a lane come in an order drawn from (seed, epoch, lane), and its rows pass through a shuffle buffer. So
    a step has the same rows on any number of workers.

    Args:
        source: the rows.
        classes: the labels, sorted.
        lane_rows: rows of each lane, as surveyed.
        size: rows of a step, about.
        seed, epoch: determine the order.
        first: the step to begin with.
        lanes: the lanes to read; by default all.
        skip: rows to leave out, of all lanes.
        buffer_rows: in the buffers of all lanes together.
    """
    kept, steps = _rows_kept(lane_rows, skip), n_steps(lane_rows, size, skip)
    if not 0 <= first <= steps:
        raise ValueError(f"`first` must be between 0 and {steps}, the steps of an epoch, got {first}.")
    capacity = buffer_rows // source.lanes
    streams = {
        lane: _shuffled_lane(source, classes, lane, kept[lane], [seed, epoch, lane], skip, capacity)
        for lane in (range(source.lanes) if lanes is None else lanes)
    }
    rest, before = dict[int, LaneRows](), taken(kept, steps, 0)
    for step in range(steps):
        after, parts, counts = taken(kept, steps, step + 1), list[LaneRows](), dict.fromkeys(streams, 0)
        for lane, stream in streams.items():
            counts[lane] = left = after[lane] - before[lane]
            while left > 0:
                rows = rest.pop(lane) if lane in rest else next(stream)
                if len(rows.row) > left:
                    rest[lane] = rows.take(slice(left, None))
                parts.append(rows.take(slice(left)))
                left -= len(parts[-1].row)
        if step >= first:
            none = np.empty(0, dtype=np.int64)
            parts.append(LaneRows(np.empty((0, source.n_features)), none, none))
            X, y, row = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            lane_of_row = np.repeat(np.array(list(counts), dtype=np.int64), list(counts.values()))
            yield LaneBatch(X, y, lane_of_row, row, sum(after) - sum(before))
        before = after
    for stream in streams.values():  # nothing is left, but a lane that has grown raises an error here
        deque(stream, maxlen=0)


def in_order(
    source: Source,
    classes: NDArray[Any],
    size: int = BUFFER_ROWS,
    *,
    lanes: Sequence[int] | None = None,
    skip: Skip | None = None,
) -> Iterator[LaneBatch]:
    """Yield every row of these lanes once in stored order, at most `size` at a time; `total` is the batch's own."""
    for lane in range(source.lanes) if lanes is None else lanes:
        for block in source.blocks(lane):
            for part in encoded(block, classes).parts(size):
                X, y, row = part.without(skip)
                if len(row):
                    yield LaneBatch(X, y, np.full(len(row), lane), row, len(row))


def _rows_kept(lane_rows: Sequence[int], skip: Skip | None) -> list[int]:
    return list(lane_rows) if skip is None else [n - int(k) for n, k in zip(lane_rows, skip.lane_rows, strict=True)]


def _shuffled_lane(
    source: Source, classes: NDArray[Any], lane: int, n_rows: int, seed: Sequence[int], skip: Skip | None, capacity: int
) -> Iterator[LaneRows]:
    """Yield the rows of a lane in random order; raise ValueError unless there are `n_rows`."""
    rng = np.random.default_rng(seed)
    buffer, seen = ShuffleBuffer(min(capacity, n_rows), source.n_features, rng), 0
    for block in source.blocks(lane, seed=int(rng.integers(2**62))):
        rows = encoded(block, classes).without(skip)
        seen += len(rows.row)
        if seen > n_rows:
            break
        yield from buffer.push(rows)
    if seen != n_rows:
        found = f"more than {n_rows}" if seen > n_rows else f"{seen}"
        raise ValueError(f"Lane {lane} of the source must have {n_rows} rows to train on, got {found}: the data have "
                         "changed since the survey; create the source again and fit again")  # fmt: skip
    yield from buffer.rest()


class ShuffleBuffer:
    """A shuffle buffer: once it holds `capacity` rows, new rows replace as many random others."""

    def __init__(self, capacity: int, n_features: int, rng: np.random.Generator) -> None:
        self._capacity, self._rng, self._filled = max(capacity, 1), rng, 0
        self._portion = max(1, min(self._capacity // PORTIONS, PORTION))
        n = self._capacity
        self._held = LaneRows(np.empty((n, n_features)), np.empty(n, np.int64), np.empty(n, np.int64))

    def push(self, rows: LaneRows) -> Iterator[LaneRows]:
        """Put rows in; yield those that they replace."""
        free = self._capacity - self._filled
        fill = rows.take(slice(free))
        self._put(np.arange(self._filled, self._filled + len(fill.row)), fill)
        self._filled += len(fill.row)
        for part in rows.take(slice(free, None)).parts(self._portion):
            places = self._rng.choice(self._capacity, len(part.row), replace=False)
            out = self._held.take(places)
            self._put(places, part)
            yield out

    def rest(self) -> Iterator[LaneRows]:
        """Yield all rows left, in random order."""
        order = self._rng.permutation(self._filled)
        for start in range(0, self._filled, self._portion):
            yield self._held.take(order[start : start + self._portion])

    def _put(self, places: NDArray[np.int64], rows: LaneRows) -> None:
        for held, new in zip(self._held, rows, strict=True):
            held[places] = new


def prefetch(items: Iterable[T], depth: int = 4) -> Generator[T, None, None]:
    """Yield the same items, up to `depth` of them computed ahead by a thread.

    Errors are raised here. When the reader stops, early or not, the thread ends, and a generator is closed.

    >>> list(prefetch(x * x for x in range(5)))
    [0, 1, 4, 9, 16]
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="cavity-prefetch") as pool:
        waiting = deque(pool.submit(next, iterator, END) for _ in range(depth))
        try:
            while (item := waiting.popleft().result()) is not END:
                waiting.append(pool.submit(next, iterator, END))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)
            if isinstance(items, Generator):
                items.close()
