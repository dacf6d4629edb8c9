"""`cavity report`: one page that says how far to trust a model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from cavity.cli.files import find
from cavity.cli.holdout import known_again
from cavity.cli.labels import places
from cavity.cli.models import Loaded, judged, labeled, load_model, read_labeled, refuse_large, target_of
from cavity.cli.options import DATA, DROP_MISSING, FILE, JSON, MODEL, QUIET, TARGET
from cavity.cli.output import Output, check_place, is_first, plural
from cavity.cli.tables import Rows


@click.command()
@MODEL
@DATA
@click.option(
    "-o", "--out", type=FILE, required=True, metavar="FILE", help="Where to write the page, such as report.html."
)
@TARGET
@click.option("--train", metavar="TRAIN", help="File that the model was made from; simple models learn from it too.")
@click.option("--title", help="Of the page.")
@click.option("--open", "is_opened", is_flag=True, help="Show it in the browser.")
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
    """Write a page about MODEL, judged by the labeled rows of DATA (CSV or Parquet).

    Scores beside those of simple models, calibration, confusions, which features matter, the rows it is unsure of. Of
    the file that the model was made from, only the rows that were held out are used.

    \b
    Example:
      cavity report digits.cavity digits-test.csv -o report.html --train digits-train.csv
    """
    if not is_first():
        return
    check_place(out)
    output, began = Output(as_json, quiet), time.perf_counter()
    loaded, found = load_model(model), find(data)
    target = target_of(loaded, target)
    refuse_large(found)
    rows = judged(found, loaded, target, drop_missing, output)
    learned = rows.learned if train is None else _learned(train, loaded, target, drop_missing)
    output.hint(f"examining {plural(len(rows.place), 'row')} …")
    X, y = labeled(rows.rows, loaded, rows.place)
    page = loaded.model.report(
        X, y, train=_training(loaded, learned), title=title or f"{model.stem} on {found.name}",
        row_names=rows.rows.numbers.tolist(),
    )  # fmt: skip
    page.save(out)
    output.tell(f"{out}: a report on {plural(len(rows.place), 'row')}")
    output.result(
        model=model, data=found.name, report=out, rows=len(rows.place), which=rows.which,
        seconds=time.perf_counter() - began,
    )  # fmt: skip
    if is_opened:
        click.launch(str(out.resolve()))


def _learned(train: str, loaded: Loaded, target: str, drop_missing: bool) -> Rows:
    """The rows of a file, without those that the model did not learn from."""
    rows = read_labeled(find([train]), loaded, target, drop_missing)
    held = known_again(rows, loaded.metrics)
    return rows if held is None else rows.take(~held)


def _training(loaded: Loaded, learned: Rows | None) -> Any:
    """The rows that simple models learn from, as the report takes them."""
    if learned is None or learned.y is None:
        return None
    place = places(learned.y, loaded.model.classes_, lambda i: f"row {learned.numbers[i]} of the training rows")
    return learned.X, loaded.model.classes_[place]
