"""Columns of a table: how each was read, what it lacks, and the values of a row as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, time
from typing import Any

import numpy as np

from cavity.data.schema import CATEGORY, DATE, LEFT_OUT, TIME, Column, Schema
from cavity.fitting.encoding import TableEncoding
from cavity.fitting.rows import allow_overflow
from cavity.metrics import Array
from cavity.report.findings import ColumnSummary
from cavity.report.text import counted, name, tidy

MISSING = "missing"
MAX_EXPLAINED = 50  # columns; with more, a contribution is small, and computing them takes long
SPEAKING, LEAST_SPEAKING = 3, 0.1  # columns for a label, and against it; the least, relative to the largest
Unseen = Mapping[Any, Counter[str]]


def read_rows(clf: Any, X: Any) -> tuple[Array, Unseen]:
    """Return the cells of a table, (N, D), and how often each level that the model does not know occurs, by column."""
    from sklearn.utils import check_array

    schema: Schema | None = getattr(clf, "_schema", None)
    if schema is not None:
        return schema.read_counted(X)
    with allow_overflow():
        cells = np.asarray(check_array(X, dtype=np.float64, order="C", ensure_all_finite="allow-nan"))
    return np.where(np.isnan(cells), np.nan, cells) if np.isnan(cells).any() else cells, {}


def summarize_columns(
    clf: Any, names: Sequence[str], cells: Array, unseen: Unseen, train: Array | None
) -> list[ColumnSummary]:
    """Describe each column; an empty list if all hold numbers without gaps.

    Args:
        clf: the classifier.
        names: of the columns.
        cells: of the rows of the report.
        unseen: the levels in these rows that the model does not know, as `read_rows` returns them.
        train: cells of the training rows, if they are given.
    """
    encoding, columns = getattr(clf, "_encoding", None), getattr(clf, "columns_", [])
    if not (isinstance(encoding, TableEncoding) or np.isnan(cells).any()) or not len(columns):
        return []
    found = []
    for j, column in enumerate(columns):
        if column.kind == LEFT_OUT:
            found.append(ColumnSummary(names[j], column.describe(), "", None, None))
            continue
        levels = tuple(unseen.get(column.name, Counter()).most_common())
        n_gaps = int(np.isnan(cells[:, j]).sum()) - sum(n for _, n in levels)
        share = _training_gaps(encoding, j, column) if train is None else float(np.isnan(train[:, j]).mean())
        features, n_rare = _features(encoding, j, column)
        here = n_gaps / max(len(cells), 1)
        found.append(ColumnSummary(names[j], column.describe(), features, share, here, n_rare, levels))
    return found


def _training_gaps(encoding: Any, j: int, column: Column) -> float | None:
    """Return the share of gaps in the training rows, as far as the model knows it."""
    if column.kind == CATEGORY:
        return None
    if not isinstance(encoding, TableEncoding):
        return 0.0
    if j not in encoding.numeric:
        return 1.0
    return next((gap.center for gap in encoding.gaps if gap.column == j), 0.0)


def _features(encoding: Any, j: int, column: Column) -> tuple[str, int]:
    """Return what the model makes of a column, and how many of its levels share an indicator."""
    if not isinstance(encoding, TableEncoding):
        return "value", 0
    if column.kind == CATEGORY:
        part = next(part for part in encoding.categories if part.column == j)
        n = part.table.shape[1] - part.n_frequencies
        _, of_level, count = np.unique(part.table[:-1], axis=0, return_inverse=True, return_counts=True)
        n_rare = int((count[of_level.ravel()] > 1).sum())
        return counted(n, "indicator") + (", class frequencies" if part.n_frequencies else ""), n_rare
    words = {"value": "time" if column.kind in (DATE, TIME) else "value"}
    parts = [words.get(group.what, group.what) for group in encoding.groups if group.column == j]
    return ", ".join(parts) or "none: every value is missing", 0


def row_values(clf: Any, row: Any, names: Sequence[str], chosen: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """Return names and values of some columns of a table with one row, as text in the units of X."""
    (cells, unseen), schema = read_rows(clf, row), getattr(clf, "_schema", None)
    shown = []
    for j in chosen:
        value = cells[0, j] if schema is None else schema.decode(cells)[0, j]
        if schema is not None and (new := unseen.get(schema.columns[j].name)):
            shown.append((names[j], f"{name(next(iter(new)))} (not in training)"))
        else:
            shown.append((names[j], value_text(value)))
    return tuple(shown)


def speaking_columns(clf: Any, rows: Any, names: Sequence[str]) -> list[tuple[tuple[str, str, float], ...]]:
    """Return the columns that speak most for the predicted label of each row against the next, then those against it.

    Each comes with its value as text and its contribution to the margin. Small ones are left out, and all of them where
    there are too many columns for a few of them to tell much.
    """
    if not hasattr(clf, "explain") or len(names) > MAX_EXPLAINED:
        return [()] * len(read_rows(clf, rows)[0])
    from sklearn.utils import _safe_indexing

    contributions, found = clf.explain(rows).contributions, []
    for i, own in enumerate(contributions):
        least = LEAST_SPEAKING * np.abs(own).max()
        ends = (np.argsort(-side, kind="stable")[:SPEAKING] for side in (own, -own))
        chosen = [int(j) for side, end in zip((own, -own), ends, strict=True) for j in end if side[j] > least]
        values = row_values(clf, _safe_indexing(rows, [i]), names, chosen)
        found.append(tuple((*shown, float(own[j])) for j, shown in zip(chosen, values, strict=True)))
    return found


def value_text(value: Any) -> str:
    """Write a cell for a reader.

    >>> value_text("red"), value_text(0.25), value_text(None), value_text(datetime(2026, 1, 2))
    ('red', '0.25', 'missing', '2026-01-02')
    """
    if value is None or value != value:
        return MISSING
    if isinstance(value, datetime):
        is_day = value.time() == time()
        return f"{value:%Y-%m-%d}" if is_day else f"{value:%Y-%m-%d %H:%M:%S}".removesuffix(":00")
    if isinstance(value, time):
        return f"{value:%H:%M:%S}".removesuffix(":00")
    return name(value) if isinstance(value, str) else tidy(float(value), 4)
