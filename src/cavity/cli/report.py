"""`cavity report`: an HTML page about a model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from cavity.cli.holdout import recognize
from cavity.cli.options import DATA, DROP_MISSING, FILE, JSON, MODEL, QUIET, TARGET
from cavity.cli.output import Output, check_writable, is_main_process, plural
from cavity.cli.rows import LoadedModel, TableRows, frame, is_large, load_model, open_table, rows_to_score
from cavity.data.labels import encode


@click.command()
@MODEL
@DATA
@click.option("-o", "--out", type=FILE, required=True, metavar="FILE", help="File for the page, such as report.html.")
@TARGET
@click.option("--train", metavar="TRAIN", help="File that the model was trained on; baselines are trained on it too.")
@click.option("--title", help="Title of the page.")
@click.option("--open", "is_opened", is_flag=True, help="Open the page in the browser.")
@DROP_MISSING
@JSON
@QUIET
def report(
    model: Path,
    data: tuple[str, ...],
    out: Path,
    target: str | None,
    train: str | None,
    title: str | None,
    is_opened: bool,
    drop_missing: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a page about MODEL, scored on the labeled rows of DATA (CSV or Parquet).

    It shows scores beside those of baselines, calibration, confusions, feature relevance and the most uncertain rows.
    Of the file that the model was trained on, only the rows held out are used.

    \b
    Example:
      cavity report digits.cavity digits-test.csv -o report.html --train digits-train.csv
    """
    if not is_main_process():
        return
    check_writable(out)
    output, began = Output(as_json, quiet), time.perf_counter()
    loaded, table = load_model(model), open_table(data)
    target = loaded.target_or(target)
    if is_large(table):
        raise ValueError(f"{table.name} is too large for the memory of this machine; use a sample of its rows")
    found = rows_to_score(table, loaded, target, drop_missing, output)
    learned = found.learned if train is None else _training_rows(train, loaded, target, drop_missing)
    output.status(f"Examining {plural(len(found.class_index), 'row')}")
    page = loaded.model.report(
        frame(found.rows.X, loaded.names),
        loaded.model.classes_[found.class_index],
        train=_encoded(loaded, learned),
        title=title or f"{model.stem} on {table.name}",
        row_names=found.rows.numbers.tolist(),
    )
    page.save(out)
    output.print(f"{out}: a report on {plural(len(found.class_index), 'row')}")
    output.result(
        model=model, data=table.name, report=out, rows=len(found.class_index), which=found.which,
        seconds=time.perf_counter() - began,
    )  # fmt: skip
    if is_opened:
        click.launch(str(out.resolve()))


def _training_rows(train: str, loaded: LoadedModel, target: str, drop_missing: bool) -> TableRows:
    """Read the rows of a file, without those held out from training."""
    rows = loaded.read(open_table([train]), target, drop_missing)
    held = recognize(rows.X, rows.y, loaded.metrics)
    return rows if held is None else rows.take(~held)


def _encoded(loaded: LoadedModel, learned: TableRows | None) -> Any:
    """Return the training rows in the form that the report expects."""
    if learned is None:
        return None
    classes = loaded.model.classes_
    index = encode(learned.y, classes, lambda i: f"training rows, row {learned.numbers[i]}", as_text=True)
    return learned.X, classes[index]
