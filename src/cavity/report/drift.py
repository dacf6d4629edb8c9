"""Novel rows and drift: how a table differs from the training rows, by row and by column."""

from __future__ import annotations

import os
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cavity.data.labels import find_labels, label_text
from cavity.data.profile import KNOTS, ColumnProfile
from cavity.data.schema import CATEGORY, DATE, LEFT_OUT, TIME, UNKNOWN, Column, Schema
from cavity.fitting.rows import read_cells
from cavity.metrics import (
    Array,
    Interval,
    check_calibration,
    reliability_curve,
    score_intervals,
    wilson_interval,
)
from cavity.report import sections
from cavity.report.columns import row_values, value_text
from cavity.report.features import feature_names, sample_indices
from cavity.report.findings import ColumnShift, Drift, NovelRows, StrangeRow
from cavity.report.html import Markup
from cavity.report.page import document, in_notebook, write_page
from cavity.report.text import calibration_verdict, counted, listed, name, percent, table
from cavity.version import __version__

LEVEL = 0.05  # of novel rows
BINS = 20
MAX_ROWS = 100_000
LISTED_ROWS, LISTED_CELLS = 20, 4
UNUSUAL = 0.02  # share of training rows with a cell as unusual, up to which it is listed
RARE = 10  # rows of a level, in both tables, below which levels are taken together for a test
SCORES = ("error", "nll", "brier", "ece")


def examine_drift(clf: Any, X: Any, y: Any = None, *, title: str | None = None, row_names: Any = None) -> Drift:
    """Compare a table with the training rows of a classifier.

    Of more than 100,000 rows, a fixed random sample is examined.

    Args:
        clf: a fitted classifier.
        X: features, (N, D).
        y: labels, (N,), None where they are not known; to score the model as well.
        title: of the page.
        row_names: integers that identify the rows; by default their indices.

    Raises:
        ValueError: if the classifier has no rows to compare with (see `GPClassifier.novelty`).

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(random_state=0).fit(X[::2], y[::2])
    >>> found = examine_drift(clf, X[1::2] + [0.0, 0.0, 2.0, 0.0])
    >>> [column.name for column in found.moved]
    ['x2']
    """
    from cavity.report.analysis import take_rows

    X = X if hasattr(X, "columns") else np.asarray(X)
    index = sample_indices(len(X), MAX_ROWS)
    rows = take_rows(X, index)
    names = np.arange(len(X)) if row_names is None else np.asarray(row_names)
    found = dict[str, Any]()
    if y is not None:
        if len(y) != len(X):
            raise ValueError(f"`y` must have one label for each of the {len(X)} rows, got {len(y)}.")
        found = _scored(clf, rows, np.asarray(y)[index])
    return Drift(
        title=title or f"Drift of {counted(len(index), 'row')}",
        created=f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}, cavity {__version__}",
        novelty=novel_rows(clf, rows, names[index]),
        columns=column_shifts(clf, rows),
        before={key: float(clf.metrics_[key]) for key in SCORES if isinstance(clf.metrics_.get(key), int | float)},
        **found,
    )


def novel_rows(clf: Any, X: Any, row_names: Any) -> NovelRows:
    """Count the rows that are unlike the training rows.

    The share that is expected has a beta-binomial distribution, because both the rows and those they are ranked among
    are drawn. The test is that of Kolmogorov and Smirnov, for two samples, against stranger rows.
    """
    from scipy.stats import betabinom, ks_2samp

    from cavity.report.analysis import take_rows

    p, by_column, _ = clf.novelty(X, explain=True)
    usual, n = clf._novelty.usual, len(p)
    n_known = len(usual)
    hits, below = int((p <= LEVEL).sum()), int(LEVEL * (n_known + 1))
    ends = betabinom.ppf([0.025, 0.975], n, below, n_known + 1 - below) / n if below else (0.0, 0.0)
    chosen = [int(i) for i in np.argsort(p, kind="stable")[:LISTED_ROWS] if p[i] <= LEVEL]
    names, strangest = feature_names(clf), list[StrangeRow]()
    for i in chosen:
        order = [int(j) for j in np.argsort(by_column[i], kind="stable") if by_column[i, j] <= UNUSUAL][:LISTED_CELLS]
        values = row_values(clf, take_rows(X, np.array([i])), names, order) if order else ()
        cells = tuple((*value, float(by_column[i, j])) for value, j in zip(values, order, strict=True))
        strangest.append(StrangeRow(str(row_names[i]), float(p[i]), cells))
    return NovelRows(
        n_rows=n,
        n_known=n_known,
        level=LEVEL,
        share=Interval(hits / n, *(float(end) for end in wilson_interval(hits, n))),
        expected=(float(ends[0]), float(ends[1])),
        p_value=float(ks_2samp(p, usual, alternative="greater", method="asymp").pvalue),
        histogram=np.histogram(p, bins=BINS, range=(0.0, 1.0))[0],
        strangest=strangest,
    )


# --- Columns ---


def column_shifts(clf: Any, X: Any) -> list[ColumnShift]:
    """Compare each column with that of the training rows; those that differ most come first."""
    schema: Schema | None = clf._schema
    cells, names = read_cells(clf, X, schema, unknown=UNKNOWN), feature_names(clf)
    columns = [Column(label) for label in names] if schema is None else list(schema.columns)
    known = [j for j, column in enumerate(columns) if column.kind != LEFT_OUT]
    profiles = clf._novelty.profile.columns
    found = [_shift(names[j], columns[j], profiles[j], cells[:, j], len(known)) for j in known]
    return sorted(found, key=lambda shift: (shift.p_value >= 1.0, -shift.distance))


def _shift(label: str, column: Column, profile: ColumnProfile, cells: Array, n_columns: int) -> ColumnShift:
    gap, n = np.isnan(cells), len(cells)
    before, here = profile.missing / (profile.known + profile.missing), float(gap.mean())
    n_gaps, values = int(gap.sum()), cells[~gap]
    tests = [_p_of_counts(np.array([[profile.missing, profile.known], [n_gaps, n - n_gaps]]))]
    distance, what = 0.0, list[str]()
    if len(values) and profile.known:
        compare = _compare_levels if column.kind == CATEGORY else _compare_numbers
        distance, p_value, what = compare(column, profile, values)
        tests.append(p_value)
    if abs(here - before) > 0.005:
        what.append(f"gaps {percent(before)} → {percent(here)}")
    corrected = min(1.0, min(tests) * len(tests) * n_columns)
    return ColumnShift(label, max(distance, abs(here - before)), corrected, before, here, "; ".join(what))


def _compare_numbers(column: Column, profile: ColumnProfile, values: Array) -> tuple[float, float, list[str]]:
    """Return the distance of Kolmogorov and Smirnov, the p-value of their test, and the difference in words."""
    from scipy.stats import kstwo

    values, n = np.sort(values), len(values)
    ends, at = np.cumsum(profile.rows) / profile.known, profile.values
    distance = np.abs(np.searchsorted(values, at, side="right") / n - ends).max()
    if len(at) < KNOTS:  # all values are known, so there is no row between them
        distance = max(distance, np.abs(np.searchsorted(values, at) / n - np.append(0.0, ends[:-1])).max())
    p_value = float(kstwo.sf(distance, max(round(n * profile.known / (n + profile.known)), 1)))
    medians = at[np.searchsorted(ends, 0.5).clip(max=len(at) - 1)], float(values[(n - 1) // 2])
    shown = [_number_text(column, float(value)) for value in medians]
    what = [f"median {shown[0]} → {shown[1]}" if shown[0] != shown[1] else f"median {shown[0]}"]
    outside = float(((values < at[0]) | (values > at[-1])).mean())
    if outside:
        what.append(f"{percent(outside)} outside the range of training")
    return float(distance), p_value, what


def _number_text(column: Column, value: float) -> str:
    if column.kind in (DATE, TIME):
        return value_text(Schema((column,)).decode(np.array([[value]]))[0, 0])
    return value_text(value)


def _compare_levels(column: Column, profile: ColumnProfile, values: Array) -> tuple[float, float, list[str]]:
    """Return the total variation distance, the p-value of a χ² test, and the largest difference in words."""
    levels = column.levels or ()
    before, here = np.zeros(len(levels) + 1), np.bincount(values.astype(np.int64) + 1, minlength=len(levels) + 1)
    before[profile.values.astype(np.int64) + 1] = profile.rows  # the first entry is that of unknown levels
    shares = before / profile.known, here / len(values)
    is_rare = before + here < RARE
    counts = np.array([[*part[~is_rare], part[is_rare].sum()] for part in (before, here)], dtype=np.float64)
    difference = np.abs(shares[1] - shares[0])
    k, what = int(difference[1:].argmax()) if levels else 0, []
    if levels and difference[k + 1] > 0.005:
        what.append(f"{name(levels[k], 24)} {percent(shares[0][k + 1])} → {percent(shares[1][k + 1])}")
    if here[0]:
        what.append(f"new levels {percent(shares[1][0])}")
    return 0.5 * float(difference.sum()), _p_of_counts(counts), what


def _p_of_counts(both: Array) -> float:
    """Return the p-value of a test that two rows of counts have the same distribution."""
    from scipy.stats import chi2_contingency, fisher_exact

    both = both[:, both.sum(0) > 0.0]
    if both.shape[1] < 2:
        return 1.0
    if both.shape[1] == 2 and both.min() < RARE:
        return float(fisher_exact(np.rint(both).astype(np.int64)).pvalue)
    return float(chi2_contingency(both).pvalue)


# --- Labels ---


def _scored(clf: Any, X: Any, y: Any) -> dict[str, Any]:
    """Return the scores on the rows with labels that the model knows, and the labels that it does not know."""
    from cavity.report.analysis import take_rows

    index, is_known = find_labels(y, clf.classes_)
    labels, counts = np.unique(y[~is_known].astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    found: dict[str, Any] = {"unknown_labels": tuple((label_text(labels[k]), int(counts[k])) for k in order.tolist())}
    which = np.flatnonzero(is_known)
    if not len(which):
        return found
    log_p, truth = np.asarray(clf.predict_log_proba(take_rows(X, which))), index[which]
    return found | {
        "scores": score_intervals("this model", truth, log_p),
        "calibration": check_calibration(truth, log_p),
        "reliability": reliability_curve(None, np.exp(log_p.max(1)), log_p.argmax(1) == truth),
        "n_labeled": len(which),
    }


# --- The page ---


class DriftReport:
    """The differences between a table and the training rows: show them in a notebook, print them, or save a page.

    Attributes:
        findings: the numbers, as plain values.
    """

    def __init__(self, findings: Drift) -> None:
        self.findings = findings

    @cached_property
    def html(self) -> str:
        """The report as one self-contained HTML page."""
        found, novel = self.findings, self.findings.novelty
        facts = [counted(novel.n_rows, "row"), counted(len(found.columns), "column"), found.created]
        drawn = [
            ("novelty", "Novel rows", sections.novelty(novel)),
            ("columns", "Columns", sections.moved_columns(found)),
            ("labels", "Labels", sections.labels(found)),
        ]
        texts = headline(found), support(found)
        return document("Drift report", found.title, facts, texts, found.created, drawn)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, which is replaced atomically if it exists."""
        return write_page(self.html, path)

    def __repr__(self) -> str:
        found = self.findings
        rows = [[column.name, f"{column.distance:.3f}", f"{column.p_value:.2g}", column.what] for column in found.moved]
        shown = table(["column", "distance", "p", "difference"], rows) if rows else ""
        return "\n".join(filter(None, [found.title, f"{headline(found)}. {support(found)}", shown]))

    def _repr_html_(self) -> Markup:
        return in_notebook(self.html, self.findings.title)


def headline(found: Drift) -> str:
    """Summarize rows and columns in one sentence."""
    novel, moved = found.novelty, found.moved
    rows = f"{percent(novel.share.value)} of the rows are novel, {percent(novel.level, 0)} are expected"
    names = listed([name(column.name, 30) for column in moved], 3)
    have = "has" if len(moved) == 1 else "have"
    columns = f"{counted(len(moved), 'column')} {have} moved: {names}" if moved else "no column has moved"
    return f"{rows}; {columns}"


def support(found: Drift) -> str:
    """Say whether the share of novel rows is more than chance, and what is known about calibration."""
    novel = found.novelty
    low, high = (percent(end) for end in novel.expected)
    verdict = "more than chance explains" if novel.are_many else "no more than chance explains"
    text = f"This is {verdict}: rows like the training rows have {low} to {high}."
    if found.calibration is not None:
        verdict = calibration_verdict(found.calibration)
        text += f" On {counted(found.n_labeled, 'row')} with labels: {verdict}."
    return text
