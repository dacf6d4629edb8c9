"""`cavity predict`: labels and probabilities for the rows of a file, written as they are computed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from cavity.cli.options import DATA, DISTRIBUTED, DROP_MISSING, JSON, MODEL, QUIET, split_names
from cavity.cli.output import Output, check_writable, plural, row_progress
from cavity.cli.rows import CellCounts, LoadedModel, TableBatch, batches, frame, note_counts, note_dropped, open_table
from cavity.data.tables import TableFiles, arrow, column_type

STDOUT = "-"
ENDINGS = (".csv", ".parquet", ".pq")
UNCERTAINTIES = ("total", "aleatoric", "epistemic")


@click.command()
@MODEL
@DATA
@click.option(
    "-o", "--out", required=True, metavar="OUT",
    help="CSV or Parquet file, by its ending; - writes CSV to stdout; a folder gets Parquet files, for large data.",
)  # fmt: skip
@click.option("--uncertainty", is_flag=True, help="Add total, aleatoric and epistemic uncertainty, in nats.")
@click.option(
    "--coverage", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True), metavar="P",
    help="Add prediction sets: whether each label is in a set that has the row's label with this probability.",
)  # fmt: skip
@click.option("--keep", metavar="A,B", help="Columns of DATA to copy, such as an id.")
@DROP_MISSING
@DISTRIBUTED
@JSON
@QUIET
def predict(
    model: Path,
    data: tuple[str, ...],
    out: str,
    uncertainty: bool,
    coverage: float | None,
    keep: str | None,
    drop_missing: bool,
    distributed: bool | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict the rows of DATA (CSV or Parquet) with MODEL: the label and the probability of each class.

    Columns are found by their names, in any order; extra columns are ignored. Cells may be missing, and levels of
    categories may be new: a note counts them.

    \b
    Examples:
      cavity predict digits.cavity digits-test.csv -o predictions.csv --uncertainty
      cavity predict digits.cavity digits-test.csv -o sets.csv --coverage 0.95
      cavity predict flights.cavity flights/ -o predictions/
    """
    if as_json and out == STDOUT:
        raise click.UsageError("--json and -o - would both print on stdout; name a file with -o")
    is_folder = out != STDOUT and (out.endswith(("/", "\\")) or Path(out).is_dir() or not Path(out).suffix)
    if is_folder and (uncertainty or keep or drop_missing):
        raise click.UsageError("--uncertainty, --keep and --drop-missing need a file for -o, not a folder")
    output = Output(as_json, quiet, distributed)
    if not (is_folder or output.is_main):
        return
    began, kept, dropped = time.perf_counter(), split_names(keep), 0
    loaded, table = LoadedModel(model), open_table(data)
    is_labeled = loaded.names is None and loaded.target in table.schema().names
    features = loaded.columns(table, loaded.target if is_labeled else None).features
    counts = CellCounts(loaded.model.columns_)

    from cavity.data.predictions import LABEL, prediction_table, probability_names, set_names, write_tables
    from cavity.runtime.distributed import current_workers

    fitted, classes = loaded.model, loaded.model.classes_
    sets = None if coverage is None else fitted._set_rule(coverage).sets

    def tables() -> Iterator[Any]:
        nonlocal dropped
        nothing = dict.fromkeys(kept, arrow().array([], arrow().string()))
        parts = batches(table, loaded.inputs(features), kept, drop_missing, counts)
        first = next(parts, TableBatch((), nothing, 0))  # no rows have columns all the same
        for part in chain([first], parts):
            n = len(part.X)
            rows = frame(part.X, loaded.names) if n else None
            log_p = fitted.predict_log_proba(rows) if n else np.empty((0, len(classes)))
            spread = () if not uncertainty else fitted.uncertainty(rows) if n else np.empty((3, 0))
            yield prediction_table(classes, log_p, part.kept, dict(zip(UNCERTAINTIES, spread, strict=False)), sets)
            dropped += part.dropped
            done(n + part.dropped)

    if is_folder:
        fitted.set_params(distributed=output.distributed)
        n_own = int(fitted.predict_to(table.source(None, features), out, coverage=coverage))
        count = sum(current_workers(output.distributed).gather(n_own))
    else:
        _check_out(out, table)
        own = [LABEL, *probability_names(classes), *(UNCERTAINTIES if uncertainty else ())]
        own += [] if sets is None else set_names(classes)
        for name in kept:
            column_type(table.schema(), name, table.name)
            if name in own or kept.count(name) > 1:
                raise ValueError(
                    f"--keep {name}: column names must be unique, and the predictions have this one already"
                )
        with row_progress("predict", table.count_rows(), output.quiet) as done:
            count = write_tables(out, tables())
        note_dropped(dropped, output)
        note_counts(table, counts, output)
    if out != STDOUT:
        output.print(f"{out}: predictions for {plural(count, 'row')}")
    facts = dict.fromkeys(counts.facts()) if is_folder else counts.facts()  # a source does not count them
    output.result(model=model, data=table.name, out=out, rows=count, **facts, seconds=time.perf_counter() - began)


def _check_out(out: str, table: TableFiles) -> None:
    if out == STDOUT:
        return
    path = Path(out)
    check_writable(path)
    if path.exists() and any(path.samefile(file.path) for file in table.files):
        raise ValueError(f"-o {out} is one of the data files; give another name")
    if path.suffix not in ENDINGS:
        raise ValueError(f"-o {out}: the name must end in .csv or .parquet; - is stdout, and a folder ends in /")
