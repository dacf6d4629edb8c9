"""`cavity drift`: how the rows of a file differ from the training rows of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from cavity.cli.holdout import recognize
from cavity.cli.options import DATA, FILE, JSON, MODEL, QUIET, TARGET
from cavity.cli.output import Output, check_writable, plural, save_anywhere
from cavity.cli.rows import (
    CellCounts,
    LoadedModel,
    as_levels,
    decimal_point,
    frame,
    is_large,
    joined,
    missing_cells,
    note_counts,
    open_table,
    read_rows,
)
from cavity.data.csv import CSVFiles
from cavity.data.labels import label_text
from cavity.data.tables import arrow, contents, label_array
from cavity.runtime.launcher import is_main_process

MOST_LISTED = 10  # columns that are printed


@click.command()
@MODEL
@DATA
@TARGET
@click.option("-o", "--out", type=FILE, metavar="FILE", help="File for a page, such as drift.html.")
@click.option("--title", help="Title of the page.")
@JSON
@QUIET
def drift(
    model: Path,
    data: tuple[str, ...],
    target: str | None,
    out: Path | None,
    title: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare the rows of DATA (CSV or Parquet) with the rows that MODEL was trained on.

    It tells how many rows are novel beside how many are expected, and which columns have moved. Labels are not needed;
    where DATA has the label column, the model is scored too.

    \b
    Example:
      cavity drift digits.cavity digits-test.csv -o drift.html
    """
    if not is_main_process():
        return
    if out is not None:
        check_writable(out)
    output, loaded, table = Output(as_json, quiet), LoadedModel(model), open_table(data)
    if is_large(table):
        raise ValueError(f"{table.name} is too large for the memory of this machine; use a sample of its rows")
    label = target or (loaded.target if loaded.target in table.schema().names else None)
    columns = loaded.columns(table, label)
    inputs = loaded.inputs(columns.features)
    read = table.read(columns.names, label, inputs.text)
    X, strays = inputs.read(table, read)
    y = None if label is None else _labels(read.column(label), loaded.model.classes_, table)
    kept = np.arange(len(X))
    if label is not None and y is not None and "" not in y.tolist():
        rows = read_rows(table.name, X, label, read.column(label), drop_missing=False)
        kept = _new_rows(recognize(rows.cells(), rows.y, loaded.metrics), kept, table, output)
    X, y = X.take(arrow().array(kept)), None if y is None else y[kept]
    counts = CellCounts(loaded.model.columns_)
    counts.add(X, strays, table.name)
    note_counts(table, counts, output)
    output.status(f"Examining {plural(len(X), 'row')}")

    from cavity.report import DriftReport, examine_drift
    from cavity.report.drift import headline, support

    found = examine_drift(
        loaded.model, frame(X, loaded.names), y, title=title or f"{model.stem} on {table.name}",
        row_names=kept + 1,
    )  # fmt: skip
    problem = None
    if out is not None:
        out, problem = save_anywhere(DriftReport(found).save, out)
    novel, moved = found.novelty, found.moved
    output.print(f"{headline(found)}.\n{support(found)}")
    if moved:
        output.print()
    for column in moved[:MOST_LISTED]:
        output.print(f"  {column.name}: distance {column.distance:.3f}, {column.what}")
    if len(moved) > MOST_LISTED:
        output.print(f"  and {len(moved) - MOST_LISTED} more")
    if out is not None:
        output.print(f"\n{out}: a page about this")
    scores = found.scores
    output.result(
        model=model, data=table.name, rows=novel.n_rows, page=out,
        novel={
            "share": novel.share.value, "low": novel.share.low, "high": novel.share.high,
            "expected": [*novel.expected], "level": novel.level, "p": novel.p_value,
        },
        columns=[
            {"name": column.name, "distance": column.distance, "p": column.p_value, "moved": column in moved,
             "gaps_training": column.gaps, "gaps": column.gaps_here, "difference": column.what}
            for column in found.columns
        ],
        labeled=found.n_labeled,
        unknown_labels=dict(found.unknown_labels),
        scores=scores and {
            name: dict(zip(("value", "low", "high"), getattr(scores, name), strict=True))
            for name in ("error", "nll", "brier", "ece")
        },
    )  # fmt: skip
    if problem is not None:
        raise ValueError(f"{problem}. The page is in {out}") from problem


def _new_rows(held: Any, rows: Any, table: Any, output: Output) -> Any:
    """Return the rows that the model has not learned from, if this is the file that it was trained on."""
    if held is None:
        return rows
    if not held.any():
        output.note(f"{table.name}: the model was trained on these rows, so they look less strange than new ones")
        return rows
    output.note(f"{table.name}: the model was trained on this file; only the {plural(int(held.sum()), 'row')} "
                "held out from training are used")  # fmt: skip
    return rows[held]


def _labels(column: Any, classes: Any, table: Any) -> Any:
    """Return the labels as those of the model; others as text, and "" where there is none."""
    values = joined(column)
    texts = list(map(label_text, classes.tolist()))
    if isinstance(table, CSVFiles) and contents(values.type) == "text":
        values = as_levels(values, texts, decimal_point(table))
    gaps, found = missing_cells(column), label_array(values)
    places = {text: k for k, text in enumerate(texts)}
    named = ["" if gap else label_text(label) for label, gap in zip(found.tolist(), gaps, strict=True)]
    labels = np.empty(len(named), dtype=object)
    labels[:] = [classes[places[text]] if text in places else text for text in named]
    return labels
