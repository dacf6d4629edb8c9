"""`cavity evaluate`: scores of a model on labeled rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from cavity.cli.holdout import files_digest
from cavity.cli.options import DATA, DROP_MISSING, JSON, MODEL, TARGET
from cavity.cli.output import Output, plural, row_progress
from cavity.cli.rows import (
    CellCounts,
    LoadedModel,
    as_levels,
    batches,
    decimal_point,
    frame,
    is_large,
    note_counts,
    note_learned,
    open_table,
    read_rows,
    rows_to_score,
)
from cavity.data.csv import CSVFiles
from cavity.data.labels import encode, label_text, plain
from cavity.data.source import Array
from cavity.runtime.launcher import is_main_process

if TYPE_CHECKING:
    from cavity.metrics import CalibrationCheck, Scores

ROWS = 8192  # predicted at a time


@click.command()
@MODEL
@DATA
@TARGET
@DROP_MISSING
@JSON
def evaluate(model: Path, data: tuple[str, ...], target: str | None, drop_missing: bool, as_json: bool) -> None:
    """Score MODEL on the labeled rows of DATA (CSV or Parquet).

    Of the file that the model was trained on, only the rows held out are used.

    \b
    Example:
      cavity evaluate digits.cavity digits-test.csv
    """
    if not is_main_process():
        return
    output, loaded, table = Output(as_json), LoadedModel(model), open_table(data)
    target = loaded.target_or(target)
    if not is_large(table) or drop_missing:
        found = rows_to_score(table, loaded, target, drop_missing, output)
        tally, which = score(loaded.model, found.rows.X, found.class_index, loaded.names), found.which
    else:
        output.note(f"{table.name} is large: it is read from disk in parts")
        features, tally = loaded.columns(table, target).features, Tally(loaded.model.classes_)
        kept = loaded.metrics.get("holdout") or {}
        is_known = kept.get("rows") == 0 and files_digest(table.source(target, features)) == kept["digest"]
        which, first = "learned from" if is_known else "new", 1
        if is_known:
            note_learned(table, output)
        inputs, counts = loaded.inputs(features), CellCounts(loaded.model.columns_)
        texts, decimal = list(map(label_text, tally.classes)), decimal_point(table)
        with row_progress("evaluate", table.count_rows(), output.quiet) as done:
            for part in batches(table, inputs, [target], False, counts):
                labels = part.kept[target]
                labels = as_levels(labels, texts, decimal) if isinstance(table, CSVFiles) else labels
                rows = read_rows(table.name, part.X, target, labels, False, first)
                where = [f"{table.name}, row {number}" for number in rows.numbers].__getitem__
                index = encode(rows.y, tally.classes, where, as_text=True)
                tally.add(index, loaded.model.predict_log_proba(frame(part.X, loaded.names)))
                done(len(index))
                first += len(index)
        note_counts(table, counts, output)
    heading = {"held out": " held out from training", "learned from": " that it was trained on"}.get(which, "")
    output.print(f"{model} on {plural(tally.n_rows, 'row')} of {table.name}{heading}:\n")
    output.print(describe_scores(tally, which) + "\n\n" + class_table(tally))
    check, is_known = tally.calibration(), which == "learned from"
    interval = {"ece": check.ece.value, "low": check.ece.low, "high": check.ece.high, "fault": check.fault}
    output.result(
        model=model, data=table.name, rows=tally.n_rows, which=which, scores=tally.scores()._asdict(),
        calibration=None if is_known else interval, classes=tally.by_class(),
    )  # fmt: skip


class Tally:
    """Scores and confusion counts, block by block; `classes` are the labels of the columns of the probabilities."""

    def __init__(self, classes: NDArray[Any]) -> None:
        self.classes = classes
        self.confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
        self._nll = self._brier = 0.0
        self._confidence: list[Array] = []
        self._is_right: list[NDArray[np.bool_]] = []

    def add(self, index: NDArray[np.int64], log_p: Array) -> None:
        """Add rows with these indices of their labels and these log-probabilities."""
        p, rows, predicted = np.exp(log_p), np.arange(len(index)), log_p.argmax(1)
        np.add.at(self.confusion, (index, predicted), 1)
        self._nll -= float(log_p[rows, index].sum())
        self._brier += float((p**2).sum() - 2.0 * p[rows, index].sum() + len(index))
        self._confidence.append(p.max(1))
        self._is_right.append(predicted == index)

    @property
    def n_rows(self) -> int:
        return int(self.confusion.sum())

    def scores(self) -> Scores:
        """Return averages over all rows."""
        from cavity.metrics import Scores

        if not self.n_rows:
            raise ValueError("At least one row is required to compute scores, got none.")
        brier = max(self._brier / self.n_rows, 0.0)  # a difference of large sums can be slightly negative
        check = self.calibration()
        return Scores(1.0 - check.accuracy, self._nll / self.n_rows, brier, check.ece.value)

    def calibration(self) -> CalibrationCheck:
        """Return the calibration error of all rows with its interval."""
        from cavity.metrics import calibration_check

        return calibration_check(np.concatenate(self._confidence), np.concatenate(self._is_right))

    def most_frequent(self) -> tuple[str, float]:
        """Return the most frequent label, and the error of always predicting it."""
        counts = self.confusion.sum(1)
        return label_text(self.classes[counts.argmax()]), float(1.0 - counts.max() / counts.sum())

    def by_class(self) -> list[dict[str, Any]]:
        """Return for each label its rows, its recall, how often it was predicted, and its precision."""
        right, rows, predicted = self.confusion.diagonal(), self.confusion.sum(1), self.confusion.sum(0)
        return [
            {
                "label": plain(label),
                "rows": int(n),
                "recall": float(hits / n) if n else None,
                "predicted": int(k),
                "precision": float(hits / k) if k else None,
            }
            for label, hits, n, k in zip(self.classes, right, rows, predicted, strict=True)
        ]


def score(
    model: Any,
    X: Any,
    index: NDArray[np.int64],
    names: Sequence[str] | None,
    done: Callable[[int], None] = lambda count: None,
) -> Tally:
    """Score a model on an Arrow table; `done` is called with the number of rows after each part."""
    tally = Tally(model.classes_)
    for start in range(0, len(X), ROWS):
        part = index[start : start + ROWS]
        tally.add(part, model.predict_log_proba(frame(X.slice(start, ROWS), names)))
        done(len(part))
    return tally


def describe_scores(tally: Tally, which: str = "new") -> str:
    """Return the scores as lines of a table, each with its meaning, and what is known about calibration."""
    from cavity.report.text import calibration_verdict

    found, (label, error), check = tally.scores(), tally.most_frequent(), tally.calibration()
    verdict = calibration_verdict(check, "the model was trained on these rows" if which == "learned from" else "")
    guess = math.log(len(tally.classes))
    rows = [
        ("error", percent(found.error), f"wrong labels; always predicting {label!r} gives {percent(error)}"),
        ("NLL", f"{found.nll:.3f}", f"negative log-likelihood in nats; uniform guessing gives {guess:.3f}"),
        ("Brier", f"{found.brier:.3f}", "squared distance of the probabilities from the truth, 0 to 2"),
        ("calibration error", f"{found.ece:.3f}", "mean difference between confidence and accuracy"),
    ]
    wide, long = (max(len(row[k]) for row in rows) for k in (0, 1))
    lines = [f"  {name:<{wide}}  {value:>{long}}  {meaning}" for name, value, meaning in rows]
    return "\n".join([*lines, "", f"  {verdict[0].upper()}{verdict[1:]}."])


def class_table(tally: Tally) -> str:
    """Return a table with a line for each label."""
    from cavity.report.text import table

    def cells(one: dict[str, Any]) -> list[str]:
        recall, precision = ("-" if one[name] is None else percent(one[name]) for name in ("recall", "precision"))
        return [label_text(one["label"]), str(one["rows"]), recall, str(one["predicted"]), precision]

    return table(["label", "rows", "recall", "predicted", "precision"], list(map(cells, tally.by_class())))


def percent(fraction: float) -> str:
    """Format a fraction as a percentage.

    >>> percent(0.0214)
    '2.1 %'
    """
    return f"{100 * fraction:.1f} %"
