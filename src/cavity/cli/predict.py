"""`cavity predict`: labels and probabilities for the rows of a file, written as they are made."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from cavity.cli.columns import check_there
from cavity.cli.files import Data, find, schema, source
from cavity.cli.models import Loaded, load_model, note_dropped
from cavity.cli.options import DATA, DROP_MISSING, JSON, MODEL, QUIET
from cavity.cli.output import Output, check_place, is_first, names, plural
from cavity.cli.progress import through_rows
from cavity.cli.tables import Batch, batches, frame, model_columns
from cavity.cli.writing import STDOUT, write
from cavity.data.arrow import arrow
from cavity.runtime.distributed import current_workers

LABEL, PROBABILITY = "prediction", "p_"
PARTS = ("total", "aleatoric", "epistemic")


@click.command()
@MODEL
@DATA
@click.option(
    "-o", "--out", required=True, metavar="OUT",
    help="CSV or Parquet by its ending; - writes CSV to stdout; a folder gets Parquet files, for large data.",
)  # fmt: skip
@click.option("--uncertainty", is_flag=True, help="Add total, aleatoric and epistemic uncertainty, in nats.")
@click.option("--keep", metavar="A,B", help="Columns of DATA to copy, such as an id.")
@DROP_MISSING
@JSON
@QUIET
def predict(
    model: Path,
    data: tuple[str, ...],
    out: str,
    uncertainty: bool,
    keep: str | None,
    drop_missing: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Predict the rows of DATA (CSV or Parquet) with MODEL: the label and the probability of each class.

    Features are found by their names, in whatever order they stand; other columns are not looked at.

    \b
    Examples:
      cavity predict digits.cavity digits-test.csv -o predictions.csv --uncertainty
      cavity predict flights.cavity flights/ -o predictions/
    """
    if as_json and out == STDOUT:
        raise click.UsageError("--json and -o - would both print on stdout; name a file with -o")
    is_folder = _is_folder(out)
    if is_folder and (uncertainty or keep or drop_missing):
        raise click.UsageError("--uncertainty, --keep and --drop-missing need a file for -o, not a folder")
    if not (is_folder or is_first()):
        return
    output, began = Output(as_json, quiet), time.perf_counter()
    loaded, found = load_model(model), find(data)
    if is_folder:
        rows = _to_folder(loaded, found, out)
    else:
        _check_out(out, found)
        rows = _to_file(loaded, found, out, uncertainty, names(keep), drop_missing, output)
    if out != STDOUT:
        output.tell(f"{out}: predictions for {plural(rows, 'row')}")
    output.result(model=model, data=found.name, out=out, rows=rows, seconds=time.perf_counter() - began)


def _to_folder(loaded: Loaded, data: Data, out: str) -> int:
    mine = int(loaded.model.predict_to(source(data, None, _features(loaded, data)), out))
    return sum(current_workers().gather(mine))


def _to_file(
    loaded: Loaded, data: Data, out: str, uncertainty: bool, keep: list[str], drop_missing: bool, output: Output
) -> int:
    check_there(schema(data), data.name, keep)
    _check_names(loaded, keep, uncertainty)
    parts, dropped = batches(data, _features(loaded, data), keep, drop_missing), list[int]()
    with through_rows("predict", data, output.quiet) as done:

        def tables() -> Iterator[Any]:
            for part in parts:
                dropped.append(part.dropped)
                yield _table(loaded, part, uncertainty)
                done(len(part.X) + part.dropped)

        rows = write(out, tables(), _empty(loaded, keep, uncertainty))
    note_dropped(sum(dropped), output)
    return rows


def _features(loaded: Loaded, data: Data) -> list[str]:
    target = None if loaded.names is not None else loaded.target
    return model_columns(data, schema(data), loaded.names, loaded.model.n_features_in_, target).features


def _table(loaded: Loaded, part: Batch, uncertainty: bool) -> Any:
    """What is copied, then the label, the probabilities and, where it is asked for, how unsure they are."""
    model, rows = loaded.model, frame(part.X, loaded.names)
    log_p = model.predict_log_proba(rows) if len(part.X) else np.empty((0, len(model.classes_)))
    columns = dict(part.kept) | {LABEL: arrow().array(model.classes_[log_p.argmax(1)].tolist(), _label_type(model))}
    columns |= dict(zip(_probability_names(loaded), np.exp(log_p).T, strict=True))
    if uncertainty:
        found = model.uncertainty(rows) if len(part.X) else np.empty((3, 0))
        columns |= dict(zip(PARTS, found, strict=True))
    return arrow().table(columns)


def _empty(loaded: Loaded, keep: Sequence[str], uncertainty: bool) -> Any:
    """What a file of no rows has."""
    nothing = np.empty((0, loaded.model.n_features_in_))
    return _table(loaded, Batch(nothing, {name: arrow().array([], arrow().string()) for name in keep}, 0), uncertainty)


def _label_type(model: Any) -> Any:
    return arrow().array(model.classes_.tolist()).type


def _probability_names(loaded: Loaded) -> list[str]:
    return [f"{PROBABILITY}{label}" for label in loaded.model.classes_.tolist()]


def _check_names(loaded: Loaded, keep: list[str], uncertainty: bool) -> None:
    taken = [LABEL, *_probability_names(loaded), *(PARTS if uncertainty else ())]
    for name in keep:
        if name in taken or keep.count(name) > 1:
            raise ValueError(
                f"--keep {name}: a column of this name is written already; give it another name in the data"
            )


def _is_folder(out: str) -> bool:
    return out != STDOUT and (out.endswith(("/", "\\")) or Path(out).is_dir() or not Path(out).suffix)


def _check_out(out: str, data: Data) -> None:
    if out == STDOUT:
        return
    path = Path(out)
    check_place(path)
    if path.exists() and any(path.samefile(file.path) for file in data.files):
        raise ValueError(f"-o {out} is where the data is; give another name")
