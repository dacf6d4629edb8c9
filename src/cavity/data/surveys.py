"""One pass over the rows before training: their number, the classes, statistics of the features, and a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import LabelCounts, concat_labels, distinct, encode, find_labels, label_text, plain
from cavity.data.schema import (
    CATEGORY,
    LEFT_OUT,
    Schema,
    chosen_places,
    count_levels,
    has_too_many_levels,
    too_many_levels,
    with_levels,
)
from cavity.data.shuffle import Skip, find_hashes
from cavity.data.source import Array, Block, ColumnSource, Source, coded, labels_of, row_hashes, schema_of
from cavity.runtime.distributed import SINGLE_PROCESS, Workers

T = TypeVar("T")

DIGITS = 6  # of the means in a fingerprint
MODEST = 250  # powers of two: squares of values up to there neither overflow nor underflow
SMALLEST_UNIT = -1000
FOLDS = 5  # the class frequencies that encode a level in a training row come from the rows of the other folds
EMPTY = "every value is missing"
MOST_COUNTS = 5_000_000  # of the rows of a category by fold, level and class


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
        lowest, highest: the range of each feature, (D,); 0 where all values are missing.
        sample: rows drawn uniformly without replacement; labels are 0 … C−1.
        fingerprint: identifies the data, as JSON values.
        schema: what the columns hold, with all levels; None where all hold numbers.
        statistics: gaps and levels by class, a row counting as one; None for numbers without gaps.

    Gaps do not count for mean, sd and range. Those of categories are of their codes, and mean nothing.
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
    schema: Schema | None = None
    statistics: CellStatistics | None = None

    @property
    def n_rows(self) -> int:
        """Rows in all lanes."""
        return sum(self.lane_rows)

    @property
    def size(self) -> Array:
        """The largest absolute value of each feature."""
        return np.maximum(-self.lowest, self.highest)

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """Which columns have one value, or a gap, in all rows; those left out are not counted, (D,)."""
        missing = np.zeros(self.n_features) if self.statistics is None else self.statistics.missing.sum(1)
        found = (self.lowest == self.highest) & ((missing == 0) | (missing == self.n_rows))
        return found if self.schema is None else found & [one.kind != LEFT_OUT for one in self.schema.columns]


def survey(
    source: Source, *, sample_rows: int = 10_000, seed: int = 0, classes: Any = None, workers: Workers = SINGLE_PROCESS
) -> Survey:
    """Read a source once and summarize it; the result does not depend on the number of workers.

    A source with categories is read twice: first to find their levels (see `find_levels`).

    Args:
        source: the rows, with labels.
        sample_rows: rows of the sample, at most.
        seed: of the sample.
        classes: all labels allowed; by default those found.
        workers: the distributed workers; each reads its own lanes.

    Raises:
        ValueError: there are no rows, a value is infinite, a label is missing or not one of the classes.

    >>> from cavity.data import Arrays
    >>> found = survey(Arrays(np.array([[1.0], [2.0], [3.0]]), ["no", "yes", "no"]))
    >>> found.n_rows, found.mean, found.sd, found.class_counts
    (3, array([2.]), array([1.]), array([2, 1]))
    """
    allowed = None if classes is None else distinct(np.asarray(classes))[0]
    counts, schema, found_classes = LabelCounts(allowed), schema_of(source), np.empty(0)
    if schema is not None and schema.categories:
        schema, found_classes = find_levels(source, schema, allowed, workers)
        source = coded(source, schema)
    reservoir, by_lane = ReservoirSample(sample_rows, seed), dict[int, Moments]()
    missing, levels = dict[str, Array](), dict[int, Array]()
    blocks = ((lane, block) for lane in own_lanes(source.lanes, workers) for block in source.blocks(lane))
    for lane, block in workers.keepalive((lane, block) for lane, block in blocks if len(block.rows)):
        counts.add(labels_of(block), block.where)
        reservoir.add(lane, block)
        moments = Moments.of(block.X)
        by_lane[lane] = by_lane[lane].merge(moments) if lane in by_lane else moments
        if (moments.n_values < moments.n).any():
            labels, index, _ = distinct(labels_of(block))
            by_label = np.zeros((len(labels), source.n_features))
            np.add.at(by_label, index, np.isnan(block.X))
            missing = _sums(missing, dict(zip(map(label_text, labels), by_label, strict=True)))
        if schema is not None and schema.categories:
            y = encode(labels_of(block), found_classes, block.where)
            for j, found in level_counts(schema, block.X, y, np.ones(len(y)), len(found_classes)).items():
                levels[j] = np.add(levels[j], found, out=levels[j]) if j in levels else found
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
    if schema is not None and (empty := _without_values(schema, whole)):
        kept = (replace(c, kind=LEFT_OUT, reason=EMPTY) if j in empty else c for j, c in enumerate(schema.columns))
        source = coded(source, Schema(tuple(kept)))  # another pass: the cells of these columns change
        return survey(source, sample_rows=sample_rows, seed=seed, classes=classes, workers=workers)
    mean, sd = whole.mean_and_sd()
    lowest, highest = whole.bounds()
    size = np.maximum(-lowest, highest)
    relative_mean = (mean / np.where(size > 0, size, 1.0)).round(DIGITS) + 0.0
    fingerprint = source.fingerprint() | {
        "lane_rows": list(lane_rows),
        "classes": [plain(label) for label in all_counts.classes],
        "class_counts": all_counts.counts.tolist(),
        "means_by_size": relative_mean.tolist(),
    }
    fingerprint |= {} if schema is None else schema.fingerprint()
    parts = workers.gather((missing, levels))
    missing, levels = (reduce(_sums, of_workers) for of_workers in zip(*parts, strict=True))
    statistics = None
    if schema is not None or missing:
        gaps = [missing.get(label_text(label), np.zeros(source.n_features)) for label in all_counts.classes]
        statistics = CellStatistics(all_counts.counts.astype(np.float64), np.stack(gaps, axis=1), levels)
    return Survey(source.n_features, source.feature_names, lane_rows, all_counts.classes, all_counts.counts, mean, sd,
                  lowest, highest, sample, fingerprint, schema, statistics)  # fmt: skip


def find_levels(
    source: Source, schema: Schema, classes: NDArray[Any] | None = None, workers: Workers = SINGLE_PROCESS
) -> tuple[Schema, NDArray[Any]]:
    """Read the categories and labels of a source once; return the schema with all levels, and the classes.

    A category with too many levels is left out, and so is one that identifies rows. If there are more than
    `MOST_COUNTS` numbers by fold, level and class, only the most frequent levels of the category are kept, and the
    others count as unknown.
    """
    open_places = [j for j in schema.categories if schema.columns[j].levels is None]
    labels, counts = LabelCounts(classes), dict[int, Counter[str] | None]((j, Counter()) for j in open_places)
    lanes, columns = own_lanes(source.lanes, workers), cast(ColumnSource, source)
    for block in workers.keepalive(block for lane in lanes for block in columns.categories(lane)):
        if block.y is not None and len(block.y):
            labels.add(block.y, block.where)
        for j, counter in counts.items():
            if counter is not None:
                before = len(counter)
                counter.update(count_levels(block.columns[j], f"{block.where(0)}: column {schema.columns[j].name!r}"))
                if len(counter) > before and has_too_many_levels(counter):
                    counts[j] = None
    all_labels, named = LabelCounts(), chosen_places(columns.categorical_features, [c.name for c in schema.columns])
    gathered = workers.gather((labels.classes, labels.counts, counts))
    for found, n, _ in gathered:
        all_labels.merge(found, n)
    most, kept = MOST_COUNTS // (FOLDS * max(len(all_labels.classes), 1)), list(schema.columns)
    for j in open_places:
        parts = [of_worker[j] for _, _, of_worker in gathered]
        if any(part is None for part in parts):
            kept[j] = too_many_levels(kept[j])
            continue
        whole = sum(parts, Counter[str]())
        kept[j] = with_levels(kept[j], whole, whole.total(), j in (named or ()))
        if kept[j].kind == CATEGORY and len(whole) > most:
            frequent = sorted(whole, key=lambda level: (-whole[level], level))[:most]
            kept[j] = replace(kept[j], levels=tuple(sorted(frequent)))
    return Schema(tuple(kept)), all_labels.classes


def _without_values(schema: Schema, whole: Moments) -> set[int]:
    """Return the columns of numbers, dates and times that have no value in any row."""
    return {int(j) for j in np.flatnonzero(whole.n_values == 0) if schema.columns[j].kind != CATEGORY}


def _sums(one: dict[T, Array], other: dict[T, Array]) -> dict[T, Array]:
    """Add the values of the same keys."""
    return {key: np.asarray(one.get(key, 0.0) + other.get(key, 0.0)) for key in one | other}


def row_folds(X: Array) -> NDArray[np.int64]:
    """Return the fold of each row, which depends on its cells alone."""
    return (row_hashes(X) >> np.uint64(32)).astype(np.int64) % FOLDS


def level_counts(
    schema: Schema | None, X: Array, y: NDArray[np.int64], weight: Array, n_classes: int
) -> dict[int, Array]:
    """Return the weight of rows by fold, level and class, (FOLDS, K, C), of each category by its place."""
    fold, counts = row_folds(X), dict[int, Array]()
    for j, column in () if schema is None else enumerate(schema.columns):
        if column.kind != CATEGORY:
            continue
        n_levels, known = len(column.levels or ()), ~np.isnan(X[:, j])
        place = (fold[known] * n_levels + X[known, j].astype(np.int64)) * n_classes + y[known]
        found = np.bincount(place, weight[known], FOLDS * n_levels * n_classes).astype(np.float64)
        counts[j] = found.reshape(FOLDS, n_levels, n_classes)
    return counts


class CellStatistics(NamedTuple):
    """What all training rows say about the columns, beside their cells.

    Attributes:
        rows: weight of the rows of each class, (C,).
        missing: weight of the rows of each class where a column has a gap, (D, C).
        counts: of each category, by its place: the weight of the rows by fold, level and class, (FOLDS, K, C).
    """

    rows: Array
    missing: Array
    counts: dict[int, Array]

    @staticmethod
    def of(schema: Schema | None, X: Array, y: NDArray[np.int64], weight: Array, n_classes: int) -> CellStatistics:
        """Compute the statistics of rows in memory."""
        missing = np.zeros((n_classes, X.shape[1]))
        np.add.at(missing, y, np.isnan(X) * weight[:, None])
        rows = np.bincount(y, weight, n_classes).astype(np.float64)
        return CellStatistics(rows, missing.T, level_counts(schema, X, y, weight, n_classes))

    def weighted(self, class_weight: Array) -> CellStatistics:
        """Return the statistics with each row of a class weighted by that of the class, (C,)."""
        counts = {j: found * class_weight for j, found in self.counts.items()}
        return CellStatistics(self.rows * class_weight, self.missing * class_weight, counts)

    def levels(self) -> dict[int, Array]:
        """Return the rows with each level of a category, by its place, and last those with a gap."""
        return {j: np.append(found.sum((0, 2)), self.missing[j].sum()) for j, found in self.counts.items()}

    def without(self, schema: Schema | None, X: Array, by_class: NDArray[np.int64]) -> CellStatistics:
        """Return the statistics without some rows: their cells, and the number of rows of each class, (n, C)."""
        n_rows, n_classes = by_class.shape
        y = np.tile(np.arange(n_classes), n_rows)
        less = CellStatistics.of(schema, X.repeat(n_classes, axis=0), y, by_class.ravel().astype(np.float64), n_classes)
        counts = {j: found - less.counts[j] for j, found in self.counts.items()}
        return CellStatistics(self.rows - less.rows, self.missing - less.missing, counts)


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
    by_lane, by_class = by_lane[is_taken], by_class[is_taken]
    return Skip(hashes[is_taken], by_lane.sum(0), by_class.sum(0), by_class)


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
    """Mean, spread and range of each feature without its gaps; values of any size neither overflow nor underflow."""

    n: int  # rows
    n_values: NDArray[np.int64]  # that are not missing
    mean: Array  # in multiples of `unit`
    square: Array  # sum of squared deviations from the mean, in multiples of `unit` squared
    unit: Array  # a power of two near the values, 1 for values of modest size, the smallest for 0
    lowest: Array  # ∞ where all values are missing
    highest: Array

    @staticmethod
    def of(X: Array) -> Moments:
        """Compute the moments of at least one row."""
        gaps = np.isnan(X)
        count, has_gaps = len(X) - gaps.sum(0), bool(gaps.any())
        lowest = (np.where(gaps, np.inf, X) if has_gaps else X).min(0)
        highest = (np.where(gaps, -np.inf, X) if has_gaps else X).max(0)
        X, n = np.where(gaps, 0.0, X) if has_gaps else X, count.clip(min=1)
        size = np.where(count > 0, np.maximum(-lowest, highest), 0.0)
        power = np.frexp(size)[1]
        power = np.where(np.abs(power) <= MODEST, 0, power.clip(SMALLEST_UNIT, 1023))
        unit = np.ldexp(1.0, np.where(size > 0, power, SMALLEST_UNIT))
        divisor = np.where(size > 0, unit, 1.0)
        Z = X if (divisor == 1.0).all() else X / divisor
        mean = Z.sum(0) / n
        mean = np.where(count > 0, mean.clip(lowest / divisor, highest / divisor), 0.0)  # exact if all are equal
        deviation = np.where(gaps, 0.0, Z - mean) if has_gaps else Z - mean
        shift = deviation.sum(0) / n
        square = np.einsum("nd,nd->d", deviation, deviation) - n * shift**2
        return Moments(len(Z), count, mean + shift, square.clip(min=0.0), unit, lowest, highest)

    def merge(self, other: Moments) -> Moments:
        """Return the moments of the rows of both (Chan, Golub and LeVeque, 1979)."""
        count, unit = self.n_values + other.n_values, np.maximum(self.unit, other.unit)
        ratio, other_ratio, share = self.unit / unit, other.unit / unit, other.n_values / count.clip(min=1)
        step = other.mean * other_ratio - self.mean * ratio
        mean = self.mean * ratio + step * share
        square = self.square * ratio**2 + other.square * other_ratio**2 + step**2 * (self.n_values * share)
        lowest, highest = np.minimum(self.lowest, other.lowest), np.maximum(self.highest, other.highest)
        return Moments(self.n + other.n, count, mean, square, unit, lowest, highest)

    def bounds(self) -> tuple[Array, Array]:
        """Return the lowest and the highest values; 0 where all are missing."""
        return np.where(self.n_values > 0, self.lowest, 0.0), np.where(self.n_values > 0, self.highest, 0.0)

    def mean_and_sd(self) -> tuple[Array, Array]:
        """Return both in the units of X; the sd has n − 1 and is exactly 0 for a constant feature."""
        limit, (lowest, highest) = np.finfo(float).max, self.bounds()
        with np.errstate(over="ignore"):
            sd = np.minimum(np.sqrt(self.square / (self.n_values - 1).clip(min=1)) * self.unit, limit)
            mean = (self.mean * self.unit).clip(lowest, highest)
        return mean, np.where(lowest == highest, 0.0, sd)
