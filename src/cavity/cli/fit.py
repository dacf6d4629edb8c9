"""`cavity fit`: train a classifier on the labeled rows of a file, score it on rows held out, and save it."""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from cavity.cli.evaluate import describe_scores, score
from cavity.cli.holdout import digest, files_digest, hold_out, row_keys
from cavity.cli.options import DATA, DISTRIBUTED, DROP_MISSING, FILE, JSON, QUIET, split_names
from cavity.cli.output import Output, check_writable, plural, row_progress, save_anywhere, told_if_written
from cavity.cli.rows import TableRows, frame, is_large, note_dropped, open_table, read_rows
from cavity.data.csv import WITH_COMMA, CSVFiles
from cavity.data.labels import encode, label_text, listed
from cavity.data.source import Array
from cavity.data.tables import Columns, TableFiles, choose_columns
from cavity.runtime.progress import command_clock

METHODS = ("auto", "ep", "sep", "gfitc", "vi")  # named here, because importing them would import torch
KERNELS = ("rbf", "matern12", "matern32", "matern52", "linear")
SCALINGS = {"default": "default", "standard": "standard", "quantile": "quantile", "auto": "auto", "none": None}
POSITIVE = click.FloatRange(0.0, min_open=True)
FRACTION = click.FloatRange(0.0, 1.0, max_open=True)
HOLDOUT = 0.2  # of the rows, by default
MAX_LABELS = 20  # that are never too many
CHANCE = 1e-3
MIN_IDENTIFIERS = 10  # rows
IDENTIFIER = re.compile(
    r"(?i:(.*[ _.-])?id|ids|idx|index|key|uuid|guid|row|row[ _]?(number|no|nr)|unnamed.*)|.*[a-z]I[dD]"
)
EXPLAINED_ROWS = 1000  # of a text column are searched for cells that are not numbers
LAST_RECORDS = 2  # of a stopped training, one of which says so
STOPPING = b"\nstopping after this step; press Ctrl-C again to quit now\n"
STDERR = 2
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)


class Count(click.ParamType):
    """A whole number, a fraction of the rows where `fractions`, or one of some words, which stand for values."""

    name = "number"

    def __init__(self, words: dict[str, Any], fractions: bool = False) -> None:
        self._words, self._fractions = words, fractions

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or value in self._words:
            return self._words.get(value, value) if isinstance(value, str) else value
        try:
            return float(value) if self._fractions and "." in value else int(value)
        except ValueError:
            also = [*(["a fraction such as 0.1"] if self._fractions else []), *self._words]
            self.fail(f"must be {' or '.join(['a whole number', *also])}, got {value!r}", param, ctx)


@click.command()
@DATA
@click.option("--target", required=True, metavar="COL", help="Label column: text, whole numbers or true/false.")
@click.option("-o", "--out", type=FILE, required=True, metavar="MODEL", help="File for the model; it is overwritten.")
@click.option("--features", metavar="A,B", help="Columns to learn from; by default all numeric columns.")
@click.option("--drop", metavar="A,B", help="Columns to ignore.")
@DROP_MISSING
@click.option(
    "--holdout", type=FRACTION, metavar="FRACTION",
    help="Fraction of the rows to score on instead of learning from them.  [default: 0.2]",
)  # fmt: skip
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True)
@click.option(
    "--inducing", "n_inducing", type=Count({}, fractions=True), default=100, show_default=True,
    help="Inducing points of each class, or a fraction of the rows: more are slower and more accurate.",
)  # fmt: skip
@click.option("--kernel", type=click.Choice(KERNELS), default="rbf", show_default=True)
@click.option(
    "--scaling", type=click.Choice(list(SCALINGS)), default="default", show_default=True, help="Of numbers."
)
@click.option("--class-weight", type=click.Choice(["balanced"]), help="balanced: rare classes get larger weights.")
@click.option(
    "--seed", "random_state", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Random seed."
)
@click.option("--seconds", "max_seconds", type=POSITIVE, help="Maximum training time.")
@click.option("--epochs", "max_epochs", type=click.IntRange(1), help="Maximum number of passes over the rows.")
@click.option(
    "--batch-size", type=Count({"auto": "auto", "all": None}), default="auto", show_default=True,
    help="Rows of a mini-batch, or all.",
)  # fmt: skip
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, …")
@click.option(
    "--memory-limit", type=POSITIVE, metavar="BYTES",
    help="Memory that training may need by an estimate, such as 8e9; inf turns the check off.  [default: what is free]",
)  # fmt: skip
@click.option(
    "--checkpoint", type=FILE, metavar="FOLDER", help="Folder for checkpoints; without --resume, it must have none."
)
@click.option("--resume", is_flag=True, help="Resume from the last checkpoint, if there is one.")
@DISTRIBUTED
@JSON
@QUIET
def fit(
    data: tuple[str, ...],
    target: str,
    out: Path,
    features: str | None,
    drop: str | None,
    drop_missing: bool,
    holdout: float | None,
    as_json: bool,
    quiet: bool,
    resume: bool,
    distributed: bool | None,
    **parameters: Any,
) -> None:
    """Train a classifier on the rows of DATA (CSV or Parquet files, folders, patterns, or - for stdin) and save it.

    All numeric columns are features. Some rows are held out and scored at the end. Ctrl-C stops training and keeps the
    best model so far; a second Ctrl-C quits at once.

    \b
    Examples:
      cavity fit digits-train.csv --target digit -o digits.cavity
      cavity fit flights/ --target delay -o flights.cavity --drop id --seconds 600
    """
    if resume and parameters["checkpoint"] is None:
        raise click.UsageError("--resume needs the folder of the checkpoints: --checkpoint FOLDER")
    check_writable(out)
    output = Output(as_json, quiet, distributed)
    with told_if_written(out), command_clock():
        output.status(f"Reading {' '.join(data)}")  # before torch is imported, which takes a while
        table, chosen = open_table(data), None if features is None else split_names(features)
        training = _read_training_rows(
            table, target, chosen, split_names(drop), drop_missing, holdout, parameters["random_state"], output
        )

        from cavity.classifier import GPClassifier
        from cavity.runtime.warnings import CavityWarning
        from cavity.training import Event, describe
        from cavity.training.history import NUMERICAL_EVENTS

        parameters["scaling"] = SCALINGS[parameters["scaling"]]
        parameters["max_epochs"] = parameters["max_epochs"] or "auto"
        began, model, tally = time.perf_counter(), GPClassifier(**parameters, verbose=0 if quiet else 1), None
        model.set_params(distributed=output.distributed)
        problem: Exception | None = None
        with stop_on_interrupt() as stop, warnings.catch_warnings():  # until the model is saved
            warnings.simplefilter("ignore", CavityWarning)  # progress prints the same
            model.fit(*training.arguments, stop=stop, resume=resume)
            seconds = time.perf_counter() - began
            if (held := training.held) is not None:
                index = encode(held.y, model.classes_, lambda i: f"row {held.numbers[i]}", as_text=True)
                with row_progress("score", len(index), quiet) as done:
                    tally = score(model, held.X, index, training.columns.features, done)
            scores = {} if tally is None else tally.scores()._asdict()
            if output.is_main:
                kept = {"target": target, "data": table.name, "holdout": training.about}
                out, problem = save_anywhere(lambda path: model.save(path, metrics=kept | scores), out)
        noted = (Event.CONSTANT_FEATURES, *NUMERICAL_EVENTS)
        last = {record["event"]: record for record in model.history_ if record["event"] in noted}
        output.notes.extend(map(describe, last.values()))
        last_events = [record["event"] for record in model.history_[-LAST_RECORDS:]]
        stopped = Event.STOPPED in last_events or Event.CALIBRATION_STOPPED in last_events
        method = f"{model.method_.upper()}, {plural(model.n_iter_, 'epoch')}, {seconds:.1f} s"
        saved = "stopped early; saved the best model so far" if stopped else "saved the model"
        output.print(f"{saved} to {out}: {method}")
        if tally is not None:
            output.print(f"\nOn the {plural(tally.n_rows, 'row')} held out:\n\n{describe_scores(tally)}")
        output.result(
            model=out,
            data=table.name,
            target=target,
            rows=training.n_rows or model.training_["rows"],
            held_out=training.about["rows"],
            dropped_rows=training.dropped,
            features=training.columns.features,
            left_out=training.columns.left_out,
            classes=model.classes_.tolist(),
            method=model.method_,
            epochs=model.n_iter_,
            seconds=seconds,
            stopped=stopped,
            log_marginal_likelihood=model.log_marginal_likelihood_,
            scores=scores or None,
        )
        if problem is not None:
            raise ValueError(f"{problem} The model is in {out}") from problem


@contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets; the second raises KeyboardInterrupt, as the first does elsewhere."""
    stop = threading.Event()

    def ask(number: int, stack: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        os.write(STDERR, STOPPING)  # directly, because the signal may interrupt a write to the stream

    if threading.current_thread() is not threading.main_thread():  # only that thread gets signals
        yield stop
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


# --- Training rows ---


class TrainingSet(NamedTuple):
    """The rows to learn from and those held out."""

    arguments: tuple[Any, ...]  # of `GPClassifier.fit`
    n_rows: int | None  # to learn from; None where they are not counted yet
    held: TableRows | None  # the rows to score on, where there are any
    columns: Columns
    about: dict[str, Any]  # what is saved with the model about the rows held out
    dropped: int = 0  # how many rows with missing values were ignored


def _read_training_rows(
    table: TableFiles,
    target: str,
    features: list[str] | None,
    drop: list[str],
    drop_missing: bool,
    holdout: float | None,
    seed: int,
    output: Output,
) -> TrainingSet:
    """Read the rows and hold some out; where they are too large for memory, return a source and hold none out."""
    from cavity.runtime.distributed import current_workers

    is_streamed = is_large(table, current_workers(output.distributed).local_size)
    if is_streamed and (drop_missing or holdout):
        raise ValueError(f"{table.name} is too large for memory, so --drop-missing and --holdout are not available; "
                         "use files without missing values, and keep some rows in another file to score")  # fmt: skip
    # Only all rows of a CSV file tell its types.
    data = table.read() if isinstance(table, CSVFiles) and not is_streamed else None
    schema = table.schema() if data is None else data.schema
    columns = choose_columns(schema, table.name, target, features, drop)
    if not is_streamed:
        columns = columns._replace(left_out=explain_left_out(columns, table))
    if isinstance(table, CSVFiles) and table.format(table.files[0]).decimal == ",":
        output.note(f"{table.name}: numbers are read with decimal commas")
    if columns.left_out:
        found = ", ".join(f"{name} ({held})" for name, held in columns.left_out.items())
        output.note(f"left out: {found}; convert them to numbers if they matter, or --drop them")
    if is_streamed:
        source = table.source(target, columns.features)
        output.note(f"{table.name} is large: it is read from disk in every epoch, and no rows are held out; score the "
                    "model on another file with `cavity evaluate`")  # fmt: skip
        _note_row_counters(next(source.blocks(0)).X, columns.features, output)
        about = {"share": 0.0, "seed": seed, "rows": 0, "digest": files_digest(source)}
        return TrainingSet((source,), None, None, columns, about)
    rows = read_rows(table.name, table.read(columns.names) if data is None else data, columns, drop_missing)
    note_dropped(rows.dropped, output)
    _note_row_counters(rows.X, columns.features, output)
    check_labels(rows.y, f"{table.name}: column {target!r}")
    fraction, keys = HOLDOUT if holdout is None else holdout, row_keys(rows.X, rows.y)
    held = hold_out(keys, rows.y, fraction, seed)
    if fraction and not held.any():
        output.note("too few rows to hold any out: there will be no scores")
    learned, n_labels = rows.take(~held), plural(len(np.unique(rows.y)), "label")
    output.print(f"{table.name}: {plural(len(rows.X), 'row')}, {plural(len(columns.features), 'feature')}, "
                 f"{n_labels} in {target!r}")  # fmt: skip
    if held.any():
        output.print(f"{plural(len(learned.X), 'row')} to learn from, {held.sum():,} held out to score on")
    about = {"share": fraction, "seed": seed, "rows": int(held.sum()), "digest": digest(keys)}
    arguments = frame(learned.X, columns.features), learned.y
    return TrainingSet(arguments, len(learned.X), rows.take(held) if held.any() else None, columns, about, rows.dropped)


def explain_left_out(columns: Columns, table: TableFiles) -> dict[str, str]:
    """Explain why columns are left out; for text that is mostly numbers, name the first cell that is not."""
    texts = [name for name, held in columns.left_out.items() if held == "text"]
    batch = next(table.batches([], texts), None) if texts else None
    if batch is None:
        return columns.left_out
    found = dict(columns.left_out)
    for name in texts:
        column = batch.column(name).slice(0, EXPLAINED_ROWS).to_pylist()
        cells = [(row, cell) for row, cell in enumerate(column, start=1) if cell]
        others = [(row, cell) for row, cell in cells if not NUMBER.fullmatch(cell)]
        if cells and all(WITH_COMMA.fullmatch(cell) for _, cell in cells):
            found[name] = "text: row {} has {!r}, where the comma can separate thousands or decimals".format(*cells[0])
        elif 2 * len(others) < len(cells):
            found[name] = "text: row {} has {!r}".format(*others[0]) if others else "text that looks like numbers"
    return found


def row_counters(X: Array, features: Sequence[str]) -> list[str]:
    """Find features that only count or identify the rows, in any order and with gaps.

    They have a different whole number in every row, although numbers drawn at random from their range would hardly ever
    all differ; or they count up by one; or they are named like an identifier.
    """
    return [name for name, column in zip(features, X.T, strict=True) if _is_row_counter(column, name)]


def _is_row_counter(column: Array, name: str) -> bool:
    n = len(column)
    if n < 3 or not (column == np.floor(column)).all() or len(np.unique(column)) < n:
        return False
    span = float(np.ptp(column)) + 1.0
    log_chance = math.lgamma(span + 1.0) - math.lgamma(span - n + 1.0) - n * math.log(span)  # that all n differ
    is_named = n >= MIN_IDENTIFIERS and IDENTIFIER.fullmatch(name) is not None
    return log_chance < math.log(CHANCE) or is_named or bool((np.diff(column) == 1.0).all())


def _note_row_counters(X: Array, features: Sequence[str], output: Output) -> None:
    for name in row_counters(X, features):
        column = X[:, features.index(name)]
        what = "only counts the rows" if np.ptp(column) < len(column) else "has a different whole number in every row"
        option = shlex.quote(f'"{name}"' if "," in name else name)
        output.note(f"{name!r} {what}; ignore it with --drop {option}, because such a column can leak the labels")


def check_labels(y: NDArray[Any], name: str) -> None:
    """Raise ValueError for what are no labels: quantities, a single label, or one for nearly every row."""
    if y.dtype.kind == "f":
        raise ValueError(f"{name} must hold labels (text, whole numbers or true/false), got quantities such as "
                         f"{y[y != np.floor(y)][0]:g}")  # fmt: skip
    distinct = np.unique(y)
    if len(distinct) < 2:
        raise ValueError(f"{name} must hold at least two different labels, got one, {label_text(distinct[0])}")
    if len(distinct) > max(MAX_LABELS, len(y) // 2):
        raise ValueError(f"{name} holds {len(distinct)} different labels in {len(y)} rows, such as "
                         f"{listed(distinct[:3])}; check that this is the label column")  # fmt: skip
