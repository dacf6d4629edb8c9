"""`cavity report`: an HTML page about a model."""

from __future__ import annotations

import time
from pathlib import Path

import click

from cavity.cli.holdout import recognize
from cavity.cli.options import DATA, DROP_MISSING, FILE, JSON, MODEL, QUIET, TARGET
from cavity.cli.output import Output, check_writable, plural, save_anywhere
from cavity.cli.rows import LoadedModel, frame, is_large, open_table, rows_to_score
from cavity.data.labels import encode
from cavity.runtime.launcher import is_main_process


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
    loaded, table = LoadedModel(model), open_table(data)
    target = loaded.target_or(target)
    if is_large(table):
        raise ValueError(f"{table.name} is too large for the memory of this machine; use a sample of its rows")
    found = rows_to_score(table, loaded, target, drop_missing, output)
    learned, classes, training = found.learned, loaded.model.classes_, None
    if train is not None:  # the rows of that file, without those held out from training
        learned = loaded.read(open_table([train]), target, drop_missing)
        held = recognize(learned.cells(), learned.y, loaded.metrics)
        learned = learned if held is None else learned.take(~held)
    if learned is not None:
        numbers = learned.numbers
        index = encode(learned.y, classes, lambda i: f"training rows, row {numbers[i]}", as_text=True)
        training = frame(learned.X, loaded.names), classes[index]
    output.status(f"Examining {plural(len(found.class_index), 'row')}")

    from cavity.report import Report, examine

    findings = examine(
        loaded.model,
        frame(found.rows.X, loaded.names),
        classes[found.class_index],
        train=training,
        title=title or f"{model.stem} on {table.name}",
        row_names=found.rows.numbers.tolist(),
        is_command_line=True,
    )
    out, problem = save_anywhere(Report(findings).save, out)
    output.print(f"{out}: a report on {plural(len(found.class_index), 'row')}")
    output.result(
        model=model, data=table.name, report=out, rows=len(found.class_index), which=found.which,
        seconds=time.perf_counter() - began,
    )  # fmt: skip
    if is_opened:
        click.launch(str(out.resolve()))
    if problem is not None:
        raise ValueError(f"{problem}. The report is in {out}") from problem
