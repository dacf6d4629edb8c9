"""Hostile tables: valid probabilities, or an error that names the column; nothing depends on the order of levels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity import GPClassifier
from cavity.data.schema import IDENTIFIER_LEVELS
from tests.problems import hostile

pytestmark = pytest.mark.filterwarnings("ignore::cavity.runtime.warnings.CavityWarning")  # hostile data deserve them

TEXTS = ["a", "b", "", " ", "'", '"', 'say "no"', "line\nbreak", "tab\t", "ä€😀", "nan", "None", "NA", "3", "3.0",
         "1e3", "x" * 10_000, "\x00", ",", ";"]  # fmt: skip
FAR = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(1970, 1, 1)]


GAPS = (None, np.nan, pd.NA, pd.NaT)


def cells(
    rng: np.random.Generator, values: list[Any], n: int, missing: float, gaps: tuple[Any, ...] = GAPS
) -> list[Any]:
    """Draw values with gaps, by default of every kind."""
    drawn = [values[k] for k in rng.integers(len(values), size=n)]
    return [gaps[rng.integers(len(gaps))] if rng.random() < missing else value for value in drawn]


# name: a column of n cells; what raises is in FAULTS
COLUMNS = {
    "number": lambda r, n: r.normal(size=n),
    "number with gaps": lambda r, n: np.where(r.random(n) < 0.3, np.nan, r.normal(size=n)),
    "one gap": lambda r, n: np.where(np.arange(n) == 0, np.nan, 1e9 + r.normal(size=n)),
    "only one number": lambda r, n: np.where(np.arange(n) == 0, 1.0, np.nan),
    "all missing": lambda r, n: np.full(n, np.nan),
    "all None": lambda r, n: pd.Series([None] * n, dtype=object),
    "nullable int": lambda r, n: pd.array(cells(r, [1, 2, 3], n, 0.2, (None,)), dtype="Int64"),
    "decimal": lambda r, n: pd.Series(cells(r, [Decimal("1.5"), Decimal("2")], n, 0.1), dtype=object),
    "one level": lambda r, n: np.full(n, "same", dtype=object),
    "level per row": lambda r, n: np.array([f"row {i}" for i in range(n)], dtype=object),
    "texts": lambda r, n: pd.Series(cells(r, TEXTS, n, 0.2), dtype=object),
    "string": lambda r, n: pd.array(cells(r, ["u", "v"], n, 0.2, (None,)), dtype="string"),
    "bool": lambda r, n: r.random(n) < 0.5,
    "nullable bool": lambda r, n: pd.array(cells(r, [True, False], n, 0.2, (None,)), dtype="boolean"),
    "mixed": lambda r, n: pd.Series(cells(r, ["a", 3, 3.5, "3", True, date(2020, 1, 1)], n, 0.2), dtype=object),
    "category": lambda r, n: pd.Categorical(cells(r, ["lo", "hi"], n, 0.2, (None,)), categories=["hi", "unused", "lo"]),
    "category of numbers": lambda r, n: pd.Categorical(r.integers(0, 4, n), categories=[3, 2, 1, 0, 9]),
    "date": lambda r, n: pd.Timestamp("2020-01-01") + pd.to_timedelta(r.uniform(0, 900, n), unit="D"),
    "zoned": lambda r, n: pd.date_range("2021-03-27", periods=n, freq="3h", tz="Europe/Berlin"),
    "same date": lambda r, n: pd.Series([date(2020, 2, 29)] * n, dtype=object),
    "far dates": lambda r, n: pd.Series(cells(r, FAR, n, 0.3), dtype=object),
    "duration": lambda r, n: pd.to_timedelta(r.uniform(0, 9, n), unit="h"),
    "infinite": lambda r, n: np.where(np.arange(n) == 1, np.inf, r.normal(size=n)),
    "bytes": lambda r, n: pd.Series([b"x", b"y"] * n, dtype=object)[:n],
    "lists": lambda r, n: pd.Series([[1], [2, 3]] * n, dtype=object)[:n],
    "dicts": lambda r, n: pd.Series([{"a": 1}] * n, dtype=object),
}  # fmt: skip
FAULTS = {"infinite", "bytes", "lists", "dicts"}


def _is_muddle(column: pd.Series) -> bool:
    """Whether a column has dates among numbers and no text that would make it a category."""
    kinds = {type(cell) for cell in column if not pd.isna(cell)} if column.name.startswith("mixed") else set()
    return date in kinds and len(kinds) > 1 and str not in kinds


@dataclass
class Problem:
    """A training table with labels, and how it was made."""

    frame: pd.DataFrame
    y: np.ndarray
    arguments: dict[str, Any]
    seed: int

    @property
    def faults(self) -> list[str]:
        return [name for name in self.frame if name.rstrip("0123456789 ") in FAULTS or _is_muddle(self.frame[name])]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5))
    n, seed = draw(st.integers(8, 40)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"{kind} {j}": COLUMNS[kind](rng, n) for j, kind in enumerate(kinds)})
    y = rng.integers(0, draw(st.integers(2, 3)), n)
    y[:3] = [0, 1, 0]
    arguments = {
        "method": draw(st.sampled_from(["ep", "sep", "vi"])),
        "scaling": draw(st.sampled_from(["standard", "common", "quantile"])),
        "kernel": draw(st.sampled_from([None, "matern32"])),
    }
    return Problem(frame, y, arguments, seed)


def check(p: np.ndarray, n: int) -> None:
    assert p.shape[0] == n
    assert np.isfinite(p).all()
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=0, atol=1e-12)


def changed(frame: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """The same columns with new levels, gaps and numbers far out."""
    new = frame.copy()
    for name in new:
        column = new[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            new[name] = column.cat.add_categories(["new level"]).fillna("new level")
        elif pd.api.types.is_float_dtype(column.dtype):
            new[name] = np.where(rng.random(len(new)) < 0.5, np.nan, 1e6)
        elif column.dtype == object and column.map(lambda cell: isinstance(cell, str)).any():
            new[name] = [f"new {i}" if i % 2 else None for i in range(len(new))]
    return new


def try_one(problem: Problem) -> None:
    frame, y, rng = problem.frame, problem.y, np.random.default_rng(problem.seed)
    clf = GPClassifier(
        n_inducing=5, max_epochs=2, calibrate=False, batch_size=None, random_state=0, device="cpu", **problem.arguments
    )
    is_useless = all(name.startswith(("all missing", "all None", "level per row")) for name in frame)
    has_levels = any(name.startswith("level") for name in frame)
    if problem.faults or (is_useless and not (has_levels and len(frame) <= IDENTIFIER_LEVELS)):
        with pytest.raises((ValueError, TypeError)) as caught:
            clf.fit(frame, y)
        assert any(repr(name) in str(caught.value) for name in frame)
        return
    clf.fit(frame, y)
    p = clf.predict_proba(frame)
    check(p, len(frame))
    check(clf.predict_proba(changed(frame, rng)), len(frame))
    # the order of levels, unused levels and the library do not matter
    other = frame.copy()
    for name in other:
        if isinstance(other[name].dtype, pd.CategoricalDtype):
            levels = other[name].cat.categories
            other[name] = other[name].cat.set_categories(
                [*levels[::-1], *(["unused too"] if levels[0] == "hi" else [])]
            )
    np.testing.assert_array_equal(clf.predict_proba(other), p)
    again = GPClassifier(**clf.get_params(deep=False)).fit(other, y)
    np.testing.assert_array_equal(again.predict_proba(frame), p)
    if len(frame.columns) > 1:
        with pytest.raises(ValueError, match="must be in the same order"):
            clf.predict_proba(frame[frame.columns[::-1]])
    with pytest.raises(ValueError, match=r"feature names should match|unseen at fit time"):
        clf.predict_proba(frame.rename(columns={frame.columns[0]: "another"}))


@hostile(120)
@given(problems())
def test_a_table_is_read_or_its_column_is_named(problem: Problem) -> None:
    try_one(problem)


@pytest.mark.slow
@hostile(2000)
@given(problems())
def test_a_table_is_read_or_its_column_is_named_2000_times(problem: Problem) -> None:
    try_one(problem)


LIBRARIES = ["texts", "string", "bool", "category", "date", "number with gaps", "nullable int", "zoned", "duration"]


@pytest.mark.parametrize("kind", LIBRARIES)
def test_the_library_of_a_frame_does_not_matter(kind: str) -> None:
    rng = np.random.default_rng(0)
    column = [None if pd.isna(x) else x for x in COLUMNS[kind](rng, 40)] if kind == "texts" else COLUMNS[kind](rng, 40)
    frame = pd.DataFrame({"x": rng.normal(size=40), "other": column})
    y = rng.integers(0, 2, 40)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    settings = {"n_inducing": 5, "max_epochs": 2, "calibrate": False, "random_state": 0, "device": "cpu"}
    expected = GPClassifier(**settings).fit(frame, y).predict_proba(frame)
    for same in (table, pl.from_arrow(table)):
        clf = GPClassifier(**settings).fit(same, y)
        np.testing.assert_array_equal(clf.predict_proba(same), expected)
        np.testing.assert_array_equal(clf.predict_proba(frame), expected)
