"""The result of examining a model: plain values that a page, a test or another program can read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.metrics import Array, CalibrationCheck, Indices, Interval, Mask, ReliabilityCurve, ScoreIntervals

MOVED = 0.05  # level of the tests of columns


class Relevance(NamedTuple):
    """How fast each class's function changes with each feature: 1/length-scale in scaled units, (C, D).

    If all classes share the kernel, there is one row, for "all classes".
    """

    features: list[str]
    classes: list[str]
    values: Array


class ColumnSummary(NamedTuple):
    """How a column of a table was read, and what the rows of the report hold there."""

    name: str
    reading: str  # "number", "category of 3 levels", "date", "time" or "left out (…)"
    features: str  # what the model makes of it, in words; empty if it is left out
    gaps: float | None  # share of the training rows without a value; None if unknown
    gaps_here: float | None  # share of the rows of the report
    n_rare: int = 0  # levels that share one indicator
    unseen: tuple[tuple[str, int], ...] = ()  # levels of these rows that training did not have, with their rows


class UncertainRow(NamedTuple):
    """A row to review: `row` is its index in the given data, `top` its most probable labels.

    `values` are those of its most relevant columns, as text in the units of X. `speaks` has columns with their values
    and contributions to the margin of the predicted label over the next: those for the former first.
    """

    row: int
    truth: str
    top: list[tuple[str, float]]
    total: float
    aleatoric: float
    epistemic: float
    why: str
    values: tuple[tuple[str, str], ...] = ()
    speaks: tuple[tuple[str, str, float], ...] = ()


class SetSummary(NamedTuple):
    """Prediction sets of one coverage: the share of rows whose label is in theirs, and how many sets have each size.

    `sizes` starts with sets of no label. `by_class` is the share of the rows of each class, NaN for one without rows.
    """

    coverage: float
    covered: Interval
    sizes: Indices
    by_class: Array


class StrangeRow(NamedTuple):
    """A row unlike the training rows: its name, or its index in the given data, and its unusual cells.

    `cells` has for each of them the column, the value as text, and the share of training rows with one as unusual.
    """

    row: str
    novelty: float
    cells: tuple[tuple[str, str, float], ...]


class NovelRows(NamedTuple):
    """How many rows are unlike the training rows.

    Attributes:
        n_rows: examined.
        n_known: training rows that these are ranked among.
        level: the novelty up to which a row counts as novel, which is also their share among rows like these.
        share: of novel rows, with its interval.
        expected: the range of the share for rows like the training rows, in 95 % of cases.
        p_value: of a test that the rows are no stranger than the training rows.
        histogram: rows by novelty, in bins of equal width from 0 to 1.
        strangest: at most 20 novel rows, the strangest first.
    """

    n_rows: int
    n_known: int
    level: float
    share: Interval
    expected: tuple[float, float]
    p_value: float
    histogram: Indices
    strangest: list[StrangeRow]

    @property
    def are_many(self) -> bool:
        """Whether more rows are novel than chance explains."""
        return self.share.value > self.expected[1]


class ColumnShift(NamedTuple):
    """How the distribution of a column differs from that of the training rows.

    Attributes:
        name: of the column.
        distance: the largest difference of the distribution functions of numbers, half of the summed differences of the
            shares of levels, or the difference in the shares of gaps, if that is larger.
        p_value: of a test that there is no difference, times the number of columns.
        gaps, gaps_here: the share of cells without a value, in training and here.
        what: the difference, in words.
    """

    name: str
    distance: float
    p_value: float
    gaps: float
    gaps_here: float
    what: str


class TrainingEvent(NamedTuple):
    """Something that happened during training."""

    epoch: int
    text: str
    kind: str = ""  # the value of a `cavity.training.Event`; other text in files of version 0.1.0
    reason: str = ""  # why it happened, if known
    seconds: float | None = None  # since the start of training, if known


class TrainingCurve(NamedTuple):
    """The objective of each epoch that has one, and the events of all epochs."""

    epoch: Indices
    seconds: Array
    objective: Array
    events: list[TrainingEvent]

    def is_rising(self, share: float = 0.05) -> bool:
        """Whether the last epochs, at most ten, still contributed more than this share of the total gain."""
        values, window = self.objective, min(10, len(self.objective) // 2)
        if window == 0:
            return False
        gained = values.max() - values[0]
        late = values[-window:].mean() - values[-2 * window : -window].mean()
        return bool(gained > 0 and late > share * gained)


class Map(NamedTuple):
    """Rows and inducing points in two dimensions, with the names of the axes.

    Inducing points that all classes share belong to the class whose function is largest there.
    """

    rows: Array
    row_class: Indices
    row_is_right: Mask
    inducing: Array
    inducing_class: Indices
    axes: tuple[str, str]
    share: float  # of the rows' variance that the two dimensions hold
    n_inducing: int  # of the model; `inducing` can be a sample of them
    columns: tuple[str, ...] = ()  # names of the columns of X
    points: NDArray[Any] | None = None  # the same inducing points in the units of X, (n, D)


class Advice(NamedTuple):
    """A finding and what to do about it; `level` is "good", "note" or "warning"."""

    level: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Findings:
    """Everything that a report shows, with classes in the order of `classes`.

    Large data are sampled: at most 20,000 rows are examined, and uncertainties are computed for about 3,000.
    """

    title: str
    created: str  # date, time and version of cavity
    n_rows: int  # examined
    classes: list[str]
    counts: Indices  # rows of each class
    scores: list[ScoreIntervals]  # the model first, then the baselines
    calibration: CalibrationCheck
    reliability: list[ReliabilityCurve]  # of the most probable label, then of each class
    confusion: Indices  # true class by row, predicted class by column
    relevance: Relevance | None
    total: Array  # entropy of each row, or of a sample
    aleatoric: Array
    epistemic: Array
    is_right: Mask  # of the same rows
    row_names: list[str]  # of the same rows
    uncertain: list[UncertainRow]
    training: TrainingCurve
    map: Map | None
    advice: list[Advice]
    about: list[tuple[str, str]] = field(default_factory=list)  # settings and learned values, as text
    no_verdict: str = ""  # why these rows cannot tell how good the model is; empty if they can
    columns: list[ColumnSummary] = field(default_factory=list)  # empty if all are numbers without gaps
    sets: list[SetSummary] = field(default_factory=list)  # empty if the model has kept no held-out rows
    novelty: NovelRows | None = None  # None where the model does not know it


@dataclass(frozen=True)
class Drift:
    """How a table differs from the training rows."""

    title: str
    created: str
    novelty: NovelRows
    columns: list[ColumnShift]  # those that moved most first
    scores: ScoreIntervals | None = None  # on the rows with labels that the model knows
    calibration: CalibrationCheck | None = None
    reliability: ReliabilityCurve | None = None
    n_labeled: int = 0
    before: dict[str, float] = field(default_factory=dict)  # scores saved with the model
    unknown_labels: tuple[tuple[str, int], ...] = ()  # labels that the model does not know, with their rows

    @property
    def moved(self) -> list[ColumnShift]:
        """The columns whose distribution has changed, by a test at 5 % for all columns together."""
        return [column for column in self.columns if column.p_value < MOVED]


def training_events(history: Sequence[dict[str, Any]]) -> list[TrainingEvent]:
    """Read the events of a `history_`."""
    from cavity.training import describe  # loads torch, which a page of findings does not need

    return [
        TrainingEvent(int(r["epoch"]), describe(r), str(r["event"]), str(r.get("reason", "")), r.get("seconds"))
        for r in history
        if r.get("event")
    ]


def training_curve(history: Sequence[dict[str, Any]]) -> TrainingCurve:
    """Read the objectives and events of a `history_`."""
    known = [r for r in history if isinstance(r.get("objective"), int | float) and math.isfinite(r["objective"])]
    return TrainingCurve(
        np.array([record["epoch"] for record in known], dtype=np.int64),
        np.array([record.get("seconds") or 0.0 for record in known], dtype=np.float64),  # partial_fit records no time
        np.array([record["objective"] for record in known], dtype=np.float64),
        training_events(history),
    )
