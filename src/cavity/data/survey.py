"""One pass over the rows before training: how many, which labels, how large the values are, and a sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import Counts, distinct, places, plain
from cavity.data.moments import Moments, joined, moments
from cavity.data.sample import Draw, Drawn
from cavity.data.sample import joined as joined_rows
from cavity.data.source import Array, Block, Source
from cavity.runtime.distributed import SINGLE_PROCESS, Workers

DIGITS = 6  # of the means in a fingerprint


class Sample(NamedTuple):
    """Rows drawn from all: inputs, labels 0 … C−1, and which rows they are."""

    X: Array
    y: NDArray[np.int64]
    lane: NDArray[np.int64]
    row: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass over a source has found.

    Attributes:
        n_features: D.
        feature_names: where the source has them.
        lane_rows: how many rows each lane holds.
        classes: the labels, sorted.
        class_counts: how many rows have each, (C,).
        mean, sd: of each feature, (D,); the sd, with n − 1, is exactly 0 for a constant feature.
        lowest, highest: the range of each feature, (D,).
        sample: rows drawn uniformly without replacement.
        fingerprint: what tells these data from others, for JSON.
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
    sample: Sample
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
    """Read a source once.

    The result does not depend on how many processes share the work.

    Args:
        source: the rows, with labels.
        sample_rows: how many to keep at most.
        seed: of the sample.
        classes: all labels there may be; by default those that are found. Any other is refused.
        workers: the processes; each reads its own lanes.

    >>> from cavity.data import Arrays
    >>> found = survey(Arrays(np.array([[1.0], [2.0], [3.0]]), ["no", "yes", "no"]))
    >>> found.n_rows, found.mean, found.sd, found.class_counts
    (3, array([2.]), array([1.]), array([2, 1]))
    """
    counts, draw, by_lane = Counts(_given(classes)), Draw(sample_rows, seed), dict[int, Moments]()
    for lane, block in workers.in_touch(_my_blocks(source, workers)):
        counts.add(block)
        draw.add(lane, block)
        here = moments(block.X)
        by_lane[lane] = joined(by_lane[lane], here) if lane in by_lane else here
    found = [part for parts in workers.gather(by_lane) for part in parts.items()]
    if not found:
        raise ValueError("the source has no rows; at least one is needed")
    counts = _all_counts(counts, workers)
    drawn = _all_drawn(draw.drawn(), sample_rows, workers)
    sample = Sample(drawn.X, places(drawn.y, counts.classes)[0], drawn.lane, drawn.row)
    return _survey(source, dict(found), counts, sample)


def _survey(source: Source, by_lane: dict[int, Moments], counts: Counts, sample: Sample) -> Survey:
    lane_rows = tuple(by_lane[lane].n if lane in by_lane else 0 for lane in range(source.lanes))
    whole = reduce(joined, (by_lane[lane] for lane in sorted(by_lane)))  # in this order on any number of workers
    mean, sd = whole.mean_and_sd()
    size = np.maximum(-whole.lowest, whole.highest)
    middle = (mean / np.where(size > 0, size, 1.0)).round(DIGITS) + 0.0
    fingerprint = source.fingerprint() | {
        "lane_rows": list(lane_rows),
        "classes": plain(counts.classes),
        "class_counts": counts.counts.tolist(),
        "means_by_size": middle.tolist(),
    }
    return Survey(source.n_features, source.feature_names, lane_rows, counts.classes, counts.counts, mean, sd,
                  whole.lowest, whole.highest, sample, fingerprint)  # fmt: skip


def _my_blocks(source: Source, workers: Workers) -> Iterator[tuple[int, Block]]:
    for lane in my_lanes(source, workers):
        for block in source.blocks(lane):
            if len(block.rows):
                yield lane, block


def my_lanes(source: Source, workers: Workers) -> range:
    """The lanes that this rank reads."""
    return range(workers.rank, source.lanes, workers.size)


def _given(classes: Any) -> NDArray[Any] | None:
    return None if classes is None else distinct(np.asarray(classes))[0]


def _all_counts(mine: Counts, workers: Workers) -> Counts:
    whole = Counts()
    for classes, counts in workers.gather((mine.classes, mine.counts)):
        whole.join(classes, counts)
    return whole


def _all_drawn(mine: Drawn | None, size: int, workers: Workers) -> Drawn:
    """The winners of all workers; only they are sent around."""
    keys = np.concatenate(workers.gather(np.empty(0) if mine is None else mine.key))
    cut = np.sort(keys)[:size][-1] if len(keys) else 0.0
    parts = workers.gather(None if mine is None else mine.take(mine.key <= cut))
    return joined_rows([part for part in parts if part is not None]).smallest(size)
