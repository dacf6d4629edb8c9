"""What a report says, before it is drawn: plain values that a page, a test or another program can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """A figure and its 95 % confidence interval. Those of an NLL may be infinite: something impossible came true."""

    value: float
    low: float
    high: float


class ScoreLine(NamedTuple):
    """The scores of one model; `note` says what it learned from, where that is not what the model learned from."""

    name: str
    error: Interval
    nll: Interval
    brier: Interval
    ece: Interval
    note: str = ""


class Reliability(NamedTuple):
    """Confidence against frequency, in bins of equally many rows; of one class, or (None) of the most probable label.

    `low` and `high` are where the frequency of each bin may lie, by 95 % intervals of Wilson; `ece` is the calibration
    error over fifteen bins, however many are drawn.
    """

    label: str | None
    confidence: Array
    frequency: Array
    low: Array
    high: Array
    count: NDArray[np.int64]  # type: ignore[assignment]
    ece: float


class Relevance(NamedTuple):
    """How fast each class's function changes with each feature: 1/length-scale in scaled units, (C, D).

    Where all classes share the kernel there is one line, for "all classes".
    """

    features: list[str]
    classes: list[str]
    values: Array


class UnsureRow(NamedTuple):
    """A row that a person should look at; `row` is its place in the data given, `top` its likeliest labels."""

    row: int
    truth: str
    top: list[tuple[str, float]]
    total: float
    aleatoric: float
    epistemic: float
    why: str


class Course(NamedTuple):
    """The training curve, and what happened on the way."""

    epoch: NDArray[np.int64]
    seconds: Array
    objective: Array
    events: list[tuple[int, str]]
    records: Sequence[dict[str, Any]] = ()  # of the events


class Map(NamedTuple):
    """Rows and inducing points in two dimensions, with the names of the axes.

    Inducing points that all classes share are of the class whose function is largest there.
    """

    rows: Array
    row_class: NDArray[np.int64]
    row_is_right: NDArray[np.bool_]
    inducing: Array
    inducing_class: NDArray[np.int64]
    axes: tuple[str, str]
    share: float  # of the rows' variance that is seen


class Advice(NamedTuple):
    """`level` is "good", "note" or "warning"; what was found, and what to do about it."""

    level: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Findings:
    """Everything a report shows. Rows are those of the data given, classes in the order of `classes`.

    Of very many rows a sample is looked at, and of many a sample has its entropies taken apart.
    """

    title: str
    made: str  # date and time, and the version of cavity
    n_rows: int  # that were looked at
    classes: list[str]
    counts: NDArray[np.int64]  # rows of each class
    scores: list[ScoreLine]  # the model first
    reliability: list[Reliability]  # of the most probable label first, then of each class
    confusion: NDArray[np.int64]  # true class by row, predicted by column
    relevance: Relevance | None
    total: Array  # entropies, of each row or of a sample
    aleatoric: Array
    epistemic: Array
    is_right: NDArray[np.bool_]  # of the same rows
    row_names: list[str]  # what these are called
    unsure: list[UnsureRow]
    course: Course
    map: Map | None
    advice: list[Advice]
    about: list[tuple[str, str]] = field(default_factory=list)  # settings and what was learned, as text
