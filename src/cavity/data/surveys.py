"""One pass over the rows before training: their number, the classes, statistics of the features, and a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import LabelCounts, concat_labels, distinct, encode, find_labels, plain
from cavity.data.shuffle import Skip, find_hashes
from cavity.data.source import Array, Block, Source, labels_of, row_hashes
from cavity.runtime.distributed import SINGLE_PROCESS, Workers

DIGITS = 6  # of the means in a fingerprint
MODEST = 250  # powers of two: squares of values up to there neither overflow nor underflow
SMALLEST_UNIT = -1000


@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass over a source has found.

    Attributes:
        n_features: D.
        feature_names: None where the source has none.
        lane_rows: rows of each lane.
        classes: the labels, sorted.
        class_counts: rows of each class, (C,).
        mean, sd: of each feature, (D,); the sd has n − 1 in its denominator and is exactly 0 for a constant feature.
        lowest, highest: the range of each feature, (D,).
        sample: rows drawn uniformly without replacement; labels are 0 … C−1.
        fingerprint: identifies the data, as JSON values.
    """

    n_features: int
    feature_names: list[str] | None
    lane_rows: tuple[int, ...]
    classes: NDArray[Any]
    class_counts: NDArray[np.int64]
    mean: Array
    sd: Array
    lowest: Array
    highest: Array
    sample: SampledRows
    fingerprint: dict[str, Any]

    @property
    def n_rows(self) -> int:
        """Rows in all lanes."""
        return sum(self.lane_rows)

    @property
    def size(self) -> Array:
        """The largest absolute value of each feature."""
        return np.maximum(-self.lowest, self.highest)


def survey(
    source: Source, *, sample_rows: int = 10_000, seed: int = 0, classes: Any = None, workers: Workers = SINGLE_PROCESS
) -> Survey:
    """Read a source once and summarize it; the result does not depend on the number of workers.

    Args:
        source: the rows, with labels.
        sample_rows: rows of the sample, at most.
        seed: of the sample.
        classes: all labels allowed; by default those found.
        workers: the distributed workers; each reads its own lanes.

    Raises:
        ValueError: there are no rows, a value or label is missing, or a label is not one of the classes.

    >>> from cavity.data import Arrays
    >>> found = survey(Arrays(np.array([[1.0], [2.0], [3.0]]), ["no", "yes", "no"]))
    >>> found.n_rows, found.mean, found.sd, found.class_counts
    (3, array([2.]), array([1.]), array([2, 1]))
    """
    counts = LabelCounts(None if classes is None else distinct(np.asarray(classes))[0])
    reservoir, by_lane = ReservoirSample(sample_rows, seed), dict[int, Moments]()
    blocks = ((lane, block) for lane in own_lanes(source.lanes, workers) for block in source.blocks(lane))
    for lane, block in workers.keepalive((lane, block) for lane, block in blocks if len(block.rows)):
        counts.add(labels_of(block), block.where)
        reservoir.add(lane, block)
        moments = Moments.of(block.X)
        by_lane[lane] = by_lane[lane].merge(moments) if lane in by_lane else moments
    by_lane = {lane: moments for found in workers.gather(by_lane) for lane, moments in found.items()}
    if not by_lane:
        raise ValueError("The source has no rows; at least one is required.")
    all_counts = LabelCounts()
    for labels, n in workers.gather((counts.classes, counts.counts)):
        all_counts.merge(labels, n)
    drawn = reservoir.drawn()
    keys = np.sort(np.concatenate(workers.gather(np.empty(0) if drawn is None else drawn.key)))
    cut = keys[:sample_rows][-1] if len(keys) else 0.0
    parts = workers.gather(None if drawn is None else drawn.take(drawn.key <= cut))  # only rows of the sample are sent
    sample = SampledRows.concat([part for part in parts if part is not None]).smallest(sample_rows)
    sample = sample._replace(y=find_labels(sample.y, all_counts.classes)[0])
    lane_rows = tuple(by_lane[lane].n if lane in by_lane else 0 for lane in range(source.lanes))
    whole = reduce(Moments.merge, (by_lane[lane] for lane in sorted(by_lane)))  # the same order on any workers
    mean, sd = whole.mean_and_sd()
    size = np.maximum(-whole.lowest, whole.highest)
    relative_mean = (mean / np.where(size > 0, size, 1.0)).round(DIGITS) + 0.0
    fingerprint = source.fingerprint() | {
        "lane_rows": list(lane_rows),
        "classes": [plain(label) for label in all_counts.classes],
        "class_counts": all_counts.counts.tolist(),
        "means_by_size": relative_mean.tolist(),
    }
    return Survey(source.n_features, source.feature_names, lane_rows, all_counts.classes, all_counts.counts, mean, sd,
                  whole.lowest, whole.highest, sample, fingerprint)  # fmt: skip


def find_copies(source: Source, known: Survey, count: int, most: int, workers: Workers = SINGLE_PROCESS) -> Skip:
    """Read a source once to find all copies of the first `count` rows of the sample, whatever their labels.

    A row is not taken if there would be more than `most` with its copies, or if a class would have no row left.
    """
    hashes, first = np.unique(row_hashes(known.sample.X[:count]), return_index=True)
    by_lane = np.zeros((len(hashes), source.lanes), dtype=np.int64)
    by_class = np.zeros((len(hashes), len(known.classes)), dtype=np.int64)
    blocks = ((lane, block) for lane in own_lanes(source.lanes, workers) for block in source.blocks(lane))
    for lane, block in workers.keepalive(blocks):
        place = find_hashes(block.X, hashes)
        is_copy = place >= 0
        by_lane[:, lane] += np.bincount(place[is_copy], minlength=len(hashes))
        np.add.at(by_class, (place[is_copy], encode(labels_of(block), known.classes, block.where)[is_copy]), 1)
    by_lane, by_class = (np.sum(part, axis=0) for part in zip(*workers.gather((by_lane, by_class)), strict=True))
    left, is_taken = known.class_counts, np.zeros(len(hashes), dtype=bool)
    for i in np.argsort(first):  # in the order of the sample
        own, n_copies = by_class[i] > 0, int(by_class[i].sum())
        if n_copies <= most and (left[own] > by_class[i][own]).all():
            is_taken[i], most, left = True, most - n_copies, left - by_class[i]
    return Skip(hashes[is_taken], by_lane[is_taken].sum(0), by_class[is_taken].sum(0))


def own_lanes(n_lanes: int, workers: Workers) -> range:
    """Return the lanes that this worker reads."""
    return range(workers.rank, n_lanes, workers.size)


class SampledRows(NamedTuple):
    """Rows with the random keys by which they are sampled, and their lanes and numbers."""

    key: Array
    X: Array
    y: NDArray[Any]
    lane: NDArray[np.int64]
    row: NDArray[np.int64]

    @staticmethod
    def concat(parts: Sequence[SampledRows]) -> SampledRows:
        key, X, y, lane, row = zip(*parts, strict=True)
        join = np.concatenate
        return SampledRows(join(key), join(X), concat_labels(y), join(lane), join(row))

    def take(self, chosen: NDArray[Any] | slice) -> SampledRows:
        return SampledRows._make(part[chosen] for part in self)

    def smallest(self, size: int) -> SampledRows:
        """Return the rows with the smallest keys, sorted by them."""
        return self.take(np.lexsort((self.row, self.lane, self.key))[:size])


class ReservoirSample:
    """Samples rows without replacement in one pass: each row gets a random key, and the smallest keys are kept.

    The keys of a lane depend on the seed alone, so the sample is the same on any workers.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._generators: dict[int, np.random.Generator] = {}
        self._held: list[SampledRows] = []
        self._cut = np.inf if size > 0 else 0.0  # keys at or above it are not kept

    def add(self, lane: int, block: Block) -> None:
        """Consider the next rows of a lane, in stored order."""
        if lane not in self._generators:
            self._generators[lane] = np.random.Generator(np.random.Philox([self._seed, lane]))
        key = self._generators[lane].random(len(block.rows))
        rows = SampledRows(key, block.X, labels_of(block), np.full(len(key), lane), block.rows)
        self._held.append(rows.take(np.flatnonzero(key < self._cut)))
        if sum(len(part.key) for part in self._held) > 2 * self._size:
            kept = SampledRows.concat(self._held).smallest(self._size)
            self._held = [kept]
            self._cut = float(kept.key[-1]) if self._size > 0 else 0.0

    def drawn(self) -> SampledRows | None:
        """Return the sample so far; None where there were no rows."""
        return SampledRows.concat(self._held).smallest(self._size) if self._held else None


class Moments(NamedTuple):
    """Mean, spread and range of each feature; values of any size neither overflow nor underflow."""

    n: int  # rows
    mean: Array  # in multiples of `unit`
    square: Array  # sum of squared deviations from the mean, in multiples of `unit` squared
    unit: Array  # a power of two near the values, 1 for values of modest size, the smallest for 0
    lowest: Array
    highest: Array

    @staticmethod
    def of(X: Array) -> Moments:
        """Compute the moments of at least one row."""
        lowest, highest = X.min(0), X.max(0)
        size = np.maximum(-lowest, highest)
        power = np.frexp(size)[1]
        power = np.where(np.abs(power) <= MODEST, 0, power.clip(SMALLEST_UNIT, 1023))
        unit = np.ldexp(1.0, np.where(size > 0, power, SMALLEST_UNIT))
        divisor = np.where(size > 0, unit, 1.0)
        Z = X if (divisor == 1.0).all() else X / divisor
        mean = (Z.sum(0) / len(Z)).clip(lowest / divisor, highest / divisor)  # exact where all values are equal
        deviation = Z - mean
        shift = deviation.sum(0) / len(Z)
        square = np.einsum("nd,nd->d", deviation, deviation) - len(Z) * shift**2
        return Moments(len(Z), mean + shift, square.clip(min=0.0), unit, lowest, highest)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of the rows of both (Chan, Golub and LeVeque, 1979)."""
        n, unit = self.n + other.n, np.maximum(self.unit, other.unit)
        ratio, other_ratio = self.unit / unit, other.unit / unit
        step = other.mean * other_ratio - self.mean * ratio
        mean = self.mean * ratio + step * (other.n / n)
        square = self.square * ratio**2 + other.square * other_ratio**2 + step**2 * (self.n * (other.n / n))
        lowest, highest = np.minimum(self.lowest, other.lowest), np.maximum(self.highest, other.highest)
        return Moments(n, mean, square, unit, lowest, highest)

    def mean_and_sd(self) -> tuple[Array, Array]:
        """Return both in the units of X; the sd has n − 1 and is exactly 0 for a constant feature."""
        limit = np.finfo(float).max
        with np.errstate(over="ignore"):
            sd = np.minimum(np.sqrt(self.square / max(self.n - 1, 1)) * self.unit, limit)
            mean = (self.mean * self.unit).clip(self.lowest, self.highest)
        return mean, np.where(self.lowest == self.highest, 0.0, sd)
