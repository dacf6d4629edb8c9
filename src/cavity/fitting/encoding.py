"""Encoding of the inputs: from the cells of a table to features around ±1, and back.

Numbers are scaled. A table with anything else, or with gaps, has a `TableEncoding`: every column becomes one or more
groups of features, and the features of a group share a length-scale. This is the only place that knows what a column
was. Statistics are weighted: a row of weight w counts as w copies of it. They are safe for values of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cavity.data.schema import CATEGORY, DATE, DAY, NUMBER, TIME, Schema
from cavity.data.surveys import CellStatistics, row_folds
from cavity.numerics.limits import LARGEST_INPUT

Array = NDArray[np.float64]

BLOCK_NUMBERS = 2**16  # of a block of rows: they fit into a cache, with what is computed of them
KNOTS = 512  # of a monotone map, at most
POWERS, POWER_VALUES = (-4.0, 6.0), 4096  # exponents of a power transform; values that decide on one, at most
SIMILAR_RANGE, LEAST_OF_A_KIND = 3.0, 5  # of features of one kind: largest over median range, and their number
SKEWNESS, TIES = 1.0, 0.3  # a column of more skewness, or with one value in more of its rows, is skewed


# How these were chosen: docs/adr/0011-tables.md.
RARE_ROWS = 3  # levels with fewer rows than this share an indicator
LEAST_VARIANCE = 0.1  # of the indicators of a category, before they are scaled
MOST_INDICATORS = 50  # of a category; with more levels, class frequencies are added
PRIOR_ROWS = 5.0  # that pull the class frequencies of a level towards those of all rows
CYCLES = {"year": 365.2425 * DAY, "week": 7.0 * DAY, "day": DAY}
SAME_PHASE = 0.99  # mean resultant length of dates that are all at one place of a cycle


@runtime_checkable
class Scaler(Protocol):
    """An invertible map of each feature."""

    def transform(self, X: Array) -> Array:
        """Map from the units of X; a gap, which is NaN, becomes the center."""

    def inverse(self, X: Array) -> Array:
        """Map back to the units of X."""


@dataclass(frozen=True)
class Standard:
    """(x − mean) / sd; a constant feature becomes 0, up to rounding."""

    mean: Array
    sd: Array

    def transform(self, X: Array) -> Array:
        found, half_sd = np.empty(np.shape(X)), 0.5 * self.sd
        with np.errstate(over="ignore"):
            for rows in _blocks(X):
                part = np.multiply(X[rows], 0.5, out=found[rows])  # halves: no difference overflows
                part -= 0.5 * self.mean
                part /= half_sd
                _fill(part)
        return found

    def inverse(self, X: Array) -> Array:
        with np.errstate(over="ignore"):
            return _finite(X * self.sd + self.mean)


@dataclass(frozen=True)
class Monotone:
    """A monotone piecewise linear map of each feature: `knots` in the units of X, and the `levels` that they map to.

    Outside the training range it continues with the slope of `Standard`, so that far stays far.
    """

    standard: Standard
    knots: tuple[Array, ...]
    levels: tuple[Array, ...]

    def transform(self, X: Array) -> Array:
        columns = zip(0.5 * X.T, self.knots, self.levels, self.standard.sd, strict=True)
        with np.errstate(over="ignore"):
            scaled = [_inside(x, 0.5 * k, levels) + _beyond(x, 0.5 * k) / (0.5 * sd) for x, k, levels, sd in columns]
        return _fill(np.stack(scaled, axis=1))

    def inverse(self, X: Array) -> Array:
        flat = X.reshape(-1, X.shape[-1])
        columns = zip(flat.T, self.knots, self.levels, self.standard.sd, strict=True)
        with np.errstate(over="ignore"):
            raw = [2.0 * _inside(x, levels, 0.5 * k) + _beyond(x, levels) * sd for x, k, levels, sd in columns]
        return _finite(np.stack(raw, axis=1).reshape(X.shape))


@dataclass(frozen=True)
class Unscaled:
    """The identity; a gap becomes the mean, or 0 where it is not known."""

    mean: Array | None = None

    def transform(self, X: Array) -> Array:
        if (gaps := np.isnan(X)).any():
            X = np.where(gaps, 0.0 if self.mean is None else self.mean, X)
        if not (np.abs(X) <= LARGEST_INPUT).all():
            raise ValueError(
                f"scaling=None needs values of X up to {LARGEST_INPUT:g} in absolute value, got {np.abs(X).max():.3g}: "
                "use scaling='standard' or scale the features"
            )
        return X if X.flags.writeable else X.copy()  # torch warns of an array that it must not write to

    def inverse(self, X: Array) -> Array:
        return X


def fit_scaler(scaling: str | None, X: Array, weight: Array) -> Scaler:
    """Fit the map that `scaling` names to the training rows.

    None, "standard", "common", "quantile" (to a uniform distribution), "power" (to nearly a normal one), or "skewed":
    quantiles for skewed columns, and "standard" for the others. All but None and "common" give mean 0 and sd 1.
    """
    standard = _fit_standard(X, weight)
    if scaling is None:
        return Unscaled(standard.mean)
    if scaling == "common":
        return Standard(standard.mean, _common(standard.sd, np.fmin.reduce(X) < np.fmax.reduce(X)))
    if scaling == "standard":
        return standard
    knots, levels = [], []
    for j, x in enumerate(X.T):
        known = ~np.isnan(x)
        if not known.any():
            x, known = np.zeros(len(x)), ~known
        values, index = np.unique(x[known], return_inverse=True)
        count: Array = np.bincount(index, weights=weight[known]).astype(np.float64)
        keep = np.unique(np.linspace(0, len(values) - 1, min(len(values), KNOTS)).round().astype(int))
        if scaling == "power" or (scaling == "skewed" and not _is_skewed(values, count)):
            z = (0.5 * values - 0.5 * standard.mean[j]) / (0.5 * standard.sd[j])
            if scaling == "skewed":  # a straight line
                keep = keep[[0, -1]] if len(keep) > 1 else keep
            else:
                z = _power_transform(z, count)
            levels.append(z[keep])
        else:
            mid_rank = (np.cumsum(count) - 0.5 * count) / count.sum()
            levels.append((mid_rank[keep] - 0.5) * np.sqrt(12.0))  # mean 0 and sd 1, as of a uniform
        knots.append(values[keep])
    return Monotone(standard, tuple(knots), tuple(levels))


def _power_transform(z: Array, count: Array) -> Array:
    """Return the power transform of Yeo and Johnson (2000) of standardized values, with mean 0 and sd 1.

    Its exponent maximizes the likelihood of a normal distribution, given the weight of each of the distinct values.
    """
    from scipy.optimize import minimize_scalar

    if len(z) < 2:
        return z
    group = np.arange(len(z)) * min(len(z), POWER_VALUES) // len(z)  # so that this takes milliseconds
    weight: Array = np.bincount(group, count).astype(np.float64)
    size = np.bincount(group, count * np.sign(z) * np.log1p(np.abs(z))) / weight
    total = float(weight.sum())

    def power(size: Array, exponent: float) -> Array:
        own = np.where(size >= 0.0, exponent, 2.0 - exponent)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(own == 0.0, size, np.sign(size) * np.expm1(own * np.abs(size)) / own)

    def moments(x: Array, weight: Array) -> tuple[float, float]:
        mean = float((weight * x).sum() / total)
        return mean, float((weight * (x - mean) ** 2).sum() / total)

    def loss(exponent: float) -> float:
        variance = moments(power(size, exponent), weight)[1]
        size_term = (exponent - 1.0) * float(weight @ size)
        return 0.5 * total * float(np.log(max(variance, np.finfo(float).tiny))) - size_term

    found = minimize_scalar(loss, bounds=POWERS, method="bounded", options={"xatol": 1e-5})
    exponent = round(float(found.x), 3)  # so that rounding errors do not change it
    x = power(np.sign(z) * np.log1p(np.abs(z)), exponent)
    mean, variance = moments(x, count)
    variance /= max(1.0 - 1.0 / total, 0.5)
    return np.asarray((x - mean) / np.sqrt(variance)) if variance > 0.0 else z


def _is_skewed(values: Array, count: Array) -> bool:
    """Whether quantiles suit a column better than its mean and sd, given its distinct values and their weights."""
    share = count / count.sum()
    size = np.abs(values).max()
    deviation = values / size - (share * values / size).sum() if size > 0 else values
    variance = float((share * deviation**2).sum())
    third = abs(float((share * deviation**3).sum()))
    return variance > 0.0 and (float(share.max()) > TIES or third > SKEWNESS * variance**1.5)


def standard_scaler(scaling: str | None, mean: Array, sd: Array, size: Array, schema: Schema | None = None) -> Scaler:
    """Return the map that `scaling` names (None, "common" or another), given mean, sd and largest absolute value.

    Categories of the schema do not count for a common scale: their numbers are names.
    """
    if scaling is None:
        return Unscaled(mean)
    limits = np.finfo(float)
    of_constant = np.maximum(1.0, np.sqrt(limits.eps) * size)
    varies = sd > np.maximum(10 * limits.eps * np.abs(mean), limits.tiny)
    sd = np.where(varies, sd, of_constant)
    if scaling == "common":
        kinds = [NUMBER] * len(sd) if schema is None else [column.kind for column in schema.columns]
        sd = _common(sd, varies & [kind in (NUMBER, DATE, TIME) for kind in kinds])
    return Standard(mean, sd)


def has_common_unit(X: Array) -> bool:
    """Whether the features could be measurements of one kind, such as pixels: their ranges are similar."""
    low, high = X.min(0), X.max(0)
    if np.isnan(low).any():  # a column with a gap
        return False
    size = float(max(np.abs(low).max(initial=0.0), np.abs(high).max(initial=0.0)))
    spans = (high / size - low / size)[high > low] if size > 0 else np.zeros(0)
    return len(spans) >= LEAST_OF_A_KIND and float(spans.max()) <= SIMILAR_RANGE * float(np.median(spans))


def _common(sd: Array, varies: NDArray[np.bool_]) -> Array:
    """Return the root mean square of the standard deviations of the features that vary, for every feature."""
    if not varies.any():
        return sd
    largest = sd[varies].max()
    common = largest * np.sqrt(np.mean((sd[varies] / largest) ** 2))
    found: Array = np.where(varies | (sd <= 1.0), common, np.maximum(common, sd))  # above rounding errors of a constant
    return found


def _fit_standard(X: Array, weight: Array) -> Standard:
    """Compute weighted mean and standard deviation with n − 1, on values scaled to about 1 first, without gaps."""
    if not len(X):  # a column without values
        return Standard(np.zeros(X.shape[1]), np.ones(X.shape[1]))
    low, high = X.min(0), X.max(0)
    if np.isnan(low).any():
        found = [_fit_standard(x[known, None], weight[known]) for x, known in zip(X.T, ~np.isnan(X.T), strict=True)]
        return Standard(*(np.concatenate([getattr(one, name) for one in found]) for name in ("mean", "sd")))
    limits, share = np.finfo(float), weight / weight.sum()
    with np.errstate(over="ignore"):
        size = np.maximum(np.abs(low), np.abs(high))
        size = np.where(size > 0, size, 1.0)
        mean = _weighted_sum(X, share, lambda x: x / size)
        reach = np.maximum(high / size - mean, mean - low / size)
        is_constant = reach <= 10 * limits.eps * np.abs(mean)
        reach = np.where(is_constant, 1.0, reach)
        variance = _weighted_sum(X, share, lambda x: ((x / size - mean) / reach) ** 2)
        variance /= max(1.0 - 1.0 / weight.sum(), 0.5)
        sd = np.minimum(np.sqrt(variance) * reach * size, limits.max)
        of_constant = np.maximum(1.0, np.sqrt(limits.eps) * size)  # above the rounding errors of a large constant
        mean = _finite(mean * size)
    return Standard(mean, np.where(is_constant | (sd < limits.tiny), of_constant, sd))


# --- Tables with categories, dates and gaps ---


class Group(NamedTuple):
    """Features that share a length-scale: the column that they come from, and what they say of it."""

    column: int
    what: str = "value"  # or "missing", "level", "frequency", or the name of a cycle
    width: int = 1


class Gap(NamedTuple):
    """An indicator of the gaps in a column of numbers, (missing − center) · scale."""

    column: int
    center: float
    scale: float

    def transform(self, cells: Array) -> Array:
        return (np.isnan(cells[:, [self.column]]).astype(np.float64) - self.center) * self.scale


class Cycle(NamedTuple):
    """Cosine and sine of a date or time in a cycle of `period` seconds; 0 where it is missing."""

    column: int
    name: str
    period: float

    def transform(self, cells: Array) -> Array:
        angle = 2.0 * np.pi / self.period * np.fmod(cells[:, self.column], self.period)
        return np.asarray(np.nan_to_num(np.stack([np.cos(angle), np.sin(angle)], axis=1)))


@dataclass(frozen=True)
class Levels:
    """A category as a table of features.

    Attributes:
        column: its place.
        table: the features of each level, and in the last row those of none of them, (K + 1, F): indicators first, then
            class frequencies.
        n_frequencies: how many features are class frequencies.
        by_fold: these for the training rows of each fold, (FOLDS, K + 1, n_frequencies); None outside training.
    """

    column: int
    table: Array
    n_frequencies: int = 0
    by_fold: Array | None = None

    @property
    def groups(self) -> list[Group]:
        """The groups of its features."""
        found = [Group(self.column, "level", self.table.shape[1] - self.n_frequencies)]
        return [*found, Group(self.column, "frequency", self.n_frequencies)] if self.n_frequencies else found

    def transform(self, cells: Array) -> Array:
        return np.asarray(self.table[self._index(cells)])

    def transform_training(self, cells: Array, fold: NDArray[np.int64]) -> Array:
        """Encode training rows, given the fold of each."""
        features = self.transform(cells)
        if self.by_fold is not None:
            features[:, -self.n_frequencies :] = self.by_fold[fold, self._index(cells)]
        return features

    def nearest(self, features: Array) -> Array:
        """Return the level whose features are nearest; NaN for none of them."""
        squares = (self.table**2).sum(1) - 2.0 * features @ self.table.T
        best = squares.argmin(-1)
        return np.where(best < len(self.table) - 1, best, np.nan)

    def _index(self, cells: Array) -> NDArray[np.int64]:
        column, none = cells[:, self.column], len(self.table) - 1
        return np.where(np.isnan(column), none, column).astype(np.int64)


@dataclass(frozen=True)
class TableEncoding:
    """The features of a table with categories, dates or gaps.

    Attributes:
        n_columns: D, of the table.
        numeric: the columns that `scaler` scales: numbers, dates and times.
        scaler: None where there are no such columns.
        gaps, categories, cycles: the other parts.
    """

    n_columns: int
    numeric: tuple[int, ...]
    scaler: Scaler | None
    gaps: tuple[Gap, ...] = ()
    categories: tuple[Levels, ...] = ()
    cycles: tuple[Cycle, ...] = ()

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of features, in the order of the columns."""
        return tuple(group for group, _ in self._ordered)

    @cached_property
    def feature_groups(self) -> tuple[int, ...]:
        """The index of each feature's group."""
        return tuple(g for g, group in enumerate(self.groups) for _ in range(group.width))

    def transform(self, X: Array) -> Array:
        """Return the features, (N, F), of cells, (N, D)."""
        return self._joined(X, [part.transform(X) for part in self.categories])

    def transform_training(self, X: Array) -> Array:
        """Return the features of training rows: what depends on labels does not see those of the row itself."""
        if all(part.by_fold is None for part in self.categories):
            return self.transform(X)
        fold = row_folds(X)
        return self._joined(X, [part.transform_training(X, fold) for part in self.categories])

    def inverse(self, X: Array) -> Array:
        """Return the cells, (…, D), of features, (…, F): for categories, the nearest level."""
        cells = np.zeros((*X.shape[:-1], self.n_columns))
        places = np.empty(len(self.order), dtype=np.int64)
        places[self.order] = np.arange(len(self.order))
        X = X[..., places]
        if self.scaler is not None:
            cells[..., list(self.numeric)] = self.scaler.inverse(X[..., : len(self.numeric)])
        start = len(self.numeric)
        for gap in self.gaps:
            is_gap = X[..., start] > (0.5 - gap.center) * gap.scale
            cells[..., gap.column] = np.where(is_gap, np.nan, cells[..., gap.column])
            start += 1
        for part in self.categories:
            end = start + part.table.shape[1]
            cells[..., part.column] = part.nearest(X[..., start:end])
            start = end
        return cells

    def _joined(self, X: Array, categories: list[Array]) -> Array:
        numbers = [] if self.scaler is None else [self.scaler.transform(X[:, list(self.numeric)])]
        blocks = [*numbers, *(part.transform(X) for part in self.gaps), *categories]
        return np.concatenate([*blocks, *(part.transform(X) for part in self.cycles)], axis=1)[:, self.order]

    @cached_property
    def _ordered(self) -> list[tuple[Group, range]]:
        """The groups in the order of the columns, with their features in the order of the parts."""
        parts = [
            *(Group(j, "value") for j in self.numeric),
            *(Group(gap.column, "missing") for gap in self.gaps),
            *(group for part in self.categories for group in part.groups),
            *(Group(part.column, part.name, 2) for part in self.cycles),
        ]
        ends = np.cumsum([group.width for group in parts])
        features = [range(int(end) - group.width, int(end)) for group, end in zip(parts, ends, strict=True)]
        return sorted(zip(parts, features, strict=True), key=lambda pair: pair[0].column)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The place of each feature where the parts follow each other: numbers, gaps, categories, cycles."""
        return np.array([k for _, features in self._ordered for k in features], dtype=np.int64)


Encoding = Scaler | TableEncoding


def encode_training(encoding: Encoding, X: Array) -> Array:
    """Return the features of training rows."""
    return encoding.transform_training(X) if isinstance(encoding, TableEncoding) else encoding.transform(X)


def most_features(schema: Schema, n_classes: int) -> int:
    """Return how many features the columns can have at most, for an estimate of memory."""
    dates = 2 + 2 * len(CYCLES)
    widths = {NUMBER: 2, DATE: dates, TIME: dates}
    indicators = [min(len(column.levels or ()), MOST_INDICATORS + n_classes) for column in schema.columns]
    return sum(widths.get(column.kind, n) for column, n in zip(schema.columns, indicators, strict=True))


def fit_encoding(
    schema: Schema | None,
    scaling: str | None,
    X: Array,
    y: NDArray[np.int64],
    weight: Array,
    n_classes: int,
    known: CellStatistics | None = None,
    scaler: Scaler | None = None,
) -> Encoding:
    """Fit the encoding of a table to its training rows.

    Args:
        schema: what the columns hold; None where all hold numbers.
        scaling: of numbers: a name as of `fit_scaler`, or "default": "standard" where all columns are numbers
            without gaps, "skewed" elsewhere.
        X: the cells of the training rows, or of a sample of them, (N, D).
        y: their labels 0 … C−1.
        weight: their weights.
        n_classes: C.
        known: the statistics of all rows, where X is a sample.
        scaler: of the columns as if all held numbers, where all rows have been seen; by default it is fitted to X.
    """
    n_columns = X.shape[1]
    columns = (NUMBER,) * n_columns if schema is None else tuple(column.kind for column in schema.columns)
    missing = _weighted_sum(X, weight, np.isnan) if known is None else known.missing.sum(1)
    total = float(weight.sum()) if known is None else float(known.rows.sum())
    if all(kind == NUMBER for kind in columns) and not missing.any():
        return fit_scaler("standard" if scaling == "default" else scaling, X, weight) if scaler is None else scaler
    if scaling == "default":
        scaling, scaler = "skewed", None
    numeric = tuple(j for j, kind in enumerate(columns) if kind in (NUMBER, DATE, TIME))
    if numeric and scaler is None:
        scaler = fit_scaler(scaling, X[:, list(numeric)], weight)
    elif numeric:
        scaler = _take(scaler, numeric)
    if isinstance(scaler, Unscaled) and {DATE, TIME} & set(columns):  # nobody can scale dates in advance
        standard = _fit_standard(X[:, list(numeric)], weight)
        scaler = Standard(standard.mean, np.where([columns[j] == NUMBER for j in numeric], 1.0, standard.sd))
    gaps, cycles, categories = list[Gap](), list[Cycle](), list[Levels]()
    for j in numeric:
        if 0 < missing[j] < total:
            share = float(missing[j]) / total
            gaps.append(Gap(j, share, 1.0 / np.sqrt(max(share * (1.0 - share), 0.5 * LEAST_VARIANCE))))
        if columns[j] in (DATE, TIME):
            cycles += _covered_cycles(j, X[:, j])
    if CATEGORY in columns and schema is not None:
        counts = CellStatistics.of(schema, X, y, weight, n_classes).counts if known is None else known.counts
        categories = [_fit_levels(j, counts[j], total) for j, kind in enumerate(columns) if kind == CATEGORY]
    return TableEncoding(n_columns, numeric, scaler if numeric else None, tuple(gaps), tuple(categories), tuple(cycles))


def _take(scaler: Scaler | None, columns: Sequence[int]) -> Scaler:
    """Return the map of some of the features."""
    chosen = list(columns)
    if isinstance(scaler, Standard):
        return Standard(scaler.mean[chosen], scaler.sd[chosen])
    if isinstance(scaler, Monotone):
        knots, levels = (tuple(part[j] for j in chosen) for part in (scaler.knots, scaler.levels))
        return Monotone(Standard(scaler.standard.mean[chosen], scaler.standard.sd[chosen]), knots, levels)
    return Unscaled(None if not isinstance(scaler, Unscaled) or scaler.mean is None else scaler.mean[chosen])


def _covered_cycles(column: int, cells: Array) -> list[Cycle]:
    """Return the cycles that dates cover at least once, at more than one place of the cycle."""
    cells = cells[~np.isnan(cells)]
    found = []
    for name, period in CYCLES.items() if len(cells) else ():
        phase = np.exp(2j * np.pi * np.fmod(cells, period) / period)
        is_covered = np.ptp(cells) >= 0.99 * period or (name == "day" and np.abs(cells).max() < DAY)
        if is_covered and np.abs(phase.mean()) < SAME_PHASE:
            found.append(Cycle(column, name, period))
    return found


def _fit_levels(column: int, counts: Array, total: float) -> Levels:
    """Encode a category by indicators of its levels; where these are many, of the most frequent, and class frequencies.

    Args:
        column: its place.
        counts: weight of the rows by fold, level and class, (FOLDS, K, C).
        total: weight of all rows, those with gaps too.
    """
    rows, by_level = counts.sum((0, 2)), counts.sum(2)
    n_levels, is_rare = len(rows), rows < RARE_ROWS
    place, width = np.arange(n_levels), n_levels
    if is_rare.sum() > 1:  # rare levels share the last indicator
        place, width = np.where(is_rare, (~is_rare).sum(), np.cumsum(~is_rare) - 1), int((~is_rare).sum()) + 1
    if is_many := width > MOST_INDICATORS:
        place, width = np.full(n_levels, MOST_INDICATORS), MOST_INDICATORS
        place[np.argsort(-rows, kind="stable")[:width]] = np.arange(width)
    indicators = np.eye(width + 1, width)[[*place, width]]  # the others are none of the known
    share = np.bincount(place, rows, width + 1)[:width] / total
    indicators /= np.sqrt(max(float((share * (1.0 - share)).sum()), LEAST_VARIANCE))
    hidden = float((by_level * (by_level == rows) * ~is_rare).sum())  # rows whose level has none in the other folds
    if not is_many or hidden > 0.5 * float(rows[~is_rare].sum()):  # as where rows are much the same: they share a fold
        return Levels(column, indicators)

    def ratios(counts: Array) -> Array:
        """log p(class | level) / p(class), shrunk towards 0; 0 in the last row."""
        classes = counts.sum(0) + 1.0
        prior = PRIOR_ROWS * classes / classes.sum()
        shrunk = np.vstack([counts + prior, prior])
        return np.asarray(np.log(shrunk / shrunk.sum(1, keepdims=True)) - np.log(prior / PRIOR_ROWS))

    by_fold = np.stack([ratios(counts.sum(0) - fold) for fold in counts])
    weight = by_level[..., None] / max(float(counts.sum()), 1.0)  # of each fold and level
    center = (weight * by_fold[:, :-1]).sum((0, 1))
    spread = np.sqrt((weight * (by_fold[:, :-1] - center) ** 2).sum())
    scale = 1.0 / max(float(spread), np.sqrt(LEAST_VARIANCE))
    table = np.concatenate([indicators, (ratios(counts.sum(0)) - center) * scale], axis=1)
    return Levels(column, table, counts.shape[2], (by_fold - center) * scale)


def _inside(x: Array, knots: Array, levels: Array) -> Array:
    """Interpolate the knots; constant outside the first and the last."""
    return np.asarray(np.clip(np.interp(x, knots, levels), levels[0], levels[-1]))


def _beyond(x: Array, knots: Array) -> Array:
    """Return the distance outside the knots; 0 between them."""
    return np.asarray(np.minimum(x - knots[0], 0.0) + np.maximum(x - knots[-1], 0.0))


def _fill(X: Array) -> Array:
    """Bring scaled numbers within bounds, in place; a gap becomes 0, the center."""
    np.clip(X, -LARGEST_INPUT, LARGEST_INPUT, out=X)
    np.copyto(X, 0.0, where=np.isnan(X))
    return X


def _blocks(X: Array) -> Iterator[slice]:
    """Yield blocks of rows."""
    size = max(1, BLOCK_NUMBERS * len(X) // max(X.size, 1))
    return (slice(first, first + size) for first in range(0, len(X), size))


def _weighted_sum(X: Array, weight: Array, of: Callable[[Array], Array]) -> Array:
    """Return the sum over rows of their weight times a function of them."""
    total = np.zeros(X.shape[1])
    for rows in _blocks(X):
        part = weight[rows, None] * of(X[rows])
        part[0] += total  # rows are added in their order, whatever the blocks
        total = part.sum(0)
    return total


def _finite(X: Array) -> Array:
    return np.clip(X, -np.finfo(float).max, np.finfo(float).max)
