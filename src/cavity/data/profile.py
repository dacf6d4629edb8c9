"""The training columns one by one: their values, with the number of rows that have each, and their gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.schema import CATEGORY, LEFT_OUT, NUMBER, Schema

Array = NDArray[np.float64]

KNOTS = 257  # values that are kept of a column of numbers, at most
TAIL = 16  # values at either end that are kept one by one
ONE = 1.5  # rows, up to which a value belongs to one row alone


class ColumnProfile(NamedTuple):
    """A column of the training rows.

    Attributes:
        values: increasing; of a category, the indices of its levels. Of a column of numbers with many values, some of
            them, evenly spaced by rows.
        rows: with a value above the one before and up to this one, for each of `values`.
        missing: rows with a gap.
        is_category: whether the values are indices of levels.
    """

    values: Array
    rows: Array
    missing: float
    is_category: bool = False

    @classmethod
    def of(cls, cells: Array, weight: Array, is_category: bool = False) -> ColumnProfile:
        """Summarize cells, each of which counts `weight` times."""
        known = ~np.isnan(cells)
        values, index = np.unique(cells[known], return_inverse=True)
        rows = np.bincount(index, weight[known], len(values)).astype(np.float64)
        if not is_category and len(values) > KNOTS:
            below, inner = np.cumsum(rows) - rows, KNOTS - 2 * TAIL
            first, last = below[TAIL], below[-TAIL]
            group = TAIL + np.floor(inner * (below - first) / (last - first)).astype(np.int64)
            group[:TAIL], group[-TAIL:] = np.arange(TAIL), TAIL + inner + np.arange(TAIL)
            ends = np.flatnonzero(np.diff(group, append=group[-1] + 1))
            values, rows = values[ends], np.diff(np.cumsum(rows)[ends], prepend=0.0)
        return cls(values, rows, float(weight[~known].sum()), is_category)

    @property
    def known(self) -> float:
        """Rows without a gap."""
        return float(self.rows.sum())

    def merged(self, other: ColumnProfile) -> ColumnProfile:
        """Return the profile of the rows of both."""
        values, rows = (np.concatenate(pair) for pair in ((self.values, other.values), (self.rows, other.rows)))
        found = ColumnProfile.of(values, rows, self.is_category)
        return found._replace(missing=self.missing + other.missing)

    def share_up_to(self, x: Array) -> Array:
        """Return the share of the rows without a gap whose number is at most x, interpolated between the values."""
        ends = np.cumsum(self.rows) / self.known
        return np.asarray(np.where(x < self.values[0], 0.0, np.interp(x, self.values, ends)))

    def unusual(self, cells: Array) -> Array:
        """Return the share of the rows with a cell as unusual, the given one included: above 0 and at most 1.

        As unusual as a number are numbers as far out, on either side; as a level or a gap, those as rare.
        """
        total = self.known + self.missing
        if not total:
            return np.ones(len(cells))
        of_cell = self._rows_of(cells)
        counts = np.sort(np.append(self.rows, self.missing) if self.is_category else [self.known, self.missing])
        rarer = np.append(0.0, np.cumsum(counts))[np.searchsorted(counts, of_cell * (1.0 + 1e-9), side="right")]
        if not self.is_category and len(self.values):
            below = self.share_up_to(np.nextafter(cells, -np.inf))
            at = np.searchsorted(self.values, cells).clip(max=len(self.values) - 1)
            is_value = self.values[at] == cells
            below = np.where(is_value, (np.cumsum(self.rows) - self.rows)[at] / self.known, below)
            tail = np.minimum(self.share_up_to(cells), 1.0 - below)
            rarer = np.where(np.isnan(cells), rarer, np.minimum(2.0 * tail, 1.0) * total)
        return np.asarray((rarer + 1.0) / (total + 1.0))

    def is_new(self, cells: Array, is_left_out: bool = False) -> NDArray[np.bool_]:
        """Whether no row has the level, or a gap where the cell is one; all numbers count as known.

        With `is_left_out` the cells are those of training rows, and one copy of each does not count.
        """
        if not self.known + self.missing:
            return np.zeros(len(cells), dtype=bool)
        return np.asarray(self._rows_of(cells) < (ONE if is_left_out else np.finfo(float).tiny))

    def _rows_of(self, cells: Array) -> Array:
        """Return the rows with the level, or else with a number, or with a gap."""
        if not self.is_category:
            return np.where(np.isnan(cells), self.missing, np.inf)
        by_level = np.zeros(int(self.values[-1]) + 1 if len(self.values) else 1)
        by_level[self.values.astype(np.int64)] = self.rows
        inside = (cells >= 0.0) & (cells < len(by_level))
        found = np.where(inside, by_level[np.where(inside, cells, 0.0).astype(np.int64)], 0.0)
        return np.where(np.isnan(cells), self.missing, found)


@dataclass(frozen=True)
class Profile:
    """The columns of the training rows, in their order; one that is left out has no rows."""

    columns: tuple[ColumnProfile, ...]

    @classmethod
    def of(cls, schema: Schema | None, X: Array, weight: Array, levels: Mapping[int, Array] | None = None) -> Profile:
        """Summarize training rows.

        Args:
            schema: what the columns hold; None where all hold numbers.
            X: the cells, (N, D).
            weight: how many rows each of them stands for.
            levels: the rows with each level of some categories, and last those with a gap, where all rows have been
                counted and X is a sample.
        """
        columns = []
        for j, cells in enumerate(X.T):
            kind = NUMBER if schema is None else schema.columns[j].kind
            if levels is not None and j in levels:
                rows = levels[j][:-1]
                has_rows = np.flatnonzero(rows > 0.0)
                columns.append(ColumnProfile(has_rows.astype(float), rows[has_rows], float(levels[j][-1]), True))
            elif kind == LEFT_OUT:
                columns.append(ColumnProfile(np.zeros(0), np.zeros(0), 0.0))
            else:
                columns.append(ColumnProfile.of(cells, weight, kind == CATEGORY))
        return cls(tuple(columns))

    def merged(self, other: Profile) -> Profile:
        """Return the profile of the rows of both."""
        pairs = zip(self.columns, other.columns, strict=True)
        return Profile(tuple(one.merged(two) for one, two in pairs))

    def unusual(self, X: Array) -> Array:
        """Return for each cell the share of the training rows with one as unusual, (N, D)."""
        return np.stack([column.unusual(cells) for column, cells in zip(self.columns, X.T, strict=True)], axis=1)

    def count_new(self, X: Array, is_left_out: bool = False) -> Array:
        """Return how many levels and gaps of each row no training row has, (N,)."""
        pairs = zip(self.columns, X.T, strict=True)
        return np.sum([column.is_new(cells, is_left_out) for column, cells in pairs], axis=0, dtype=np.float64)

    def background(self, j: int, count: int) -> tuple[Array, Array]:
        """Return at most `count` cells that stand for column j, and their weights, which sum to 1.

        Of numbers these are quantiles, of a category its most frequent levels; a gap, which is NaN, is one of them
        where there are some. A column that is left out has a single cell, 0.

        >>> profile = Profile.of(None, np.array([[1.0], [1.0], [2.0], [np.nan]]), np.ones(4))
        >>> profile.background(0, 10)
        (array([ 1.,  2., nan]), array([0.5 , 0.25, 0.25]))
        """
        values, rows, missing, is_category = self.columns[j]
        if not (total := rows.sum() + missing):
            return np.zeros(1), np.ones(1)
        most = max(count - (missing > 0.0), 1 if len(values) else 0)
        if is_category:
            chosen = np.sort(np.argsort(-rows, kind="stable")[:most])
            values, rows = values[chosen], rows[chosen] * (rows.sum() / rows[chosen].sum())
        elif len(values) > most:
            middle = (np.cumsum(rows) - 0.5 * rows) / rows.sum()
            values, index = np.unique(values[np.searchsorted(middle, (np.arange(most) + 0.5) / most).clip(
                max=len(values) - 1)], return_inverse=True)  # fmt: skip
            rows = np.bincount(index) * (rows.sum() / most)
        if missing > 0.0:
            values, rows = np.append(values, np.nan), np.append(rows, missing)
        return values, rows / total
