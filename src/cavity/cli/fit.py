"""`cavity fit`: train a classifier on the labeled rows of a file, score it on rows held out, and save it."""

from __future__ import annotations

import math
import os
import re
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
from cavity.cli.options import DATA, DISTRIBUTED, DROP_MISSING, FILE, JSON, QUIET, join_names, split_names
from cavity.cli.output import Output, check_writable, plural, row_progress, save_anywhere, told_if_written
from cavity.cli.rows import (
    Inputs,
    TableRows,
    decimal_point,
    describe_strays,
    find_columns,
    is_large,
    joined,
    missing_cells,
    note_dropped,
    open_table,
    parse_numbers,
    read_rows,
    shortened,
    text_number,
    text_values,
)
from cavity.data.csv import WITH_COMMA, CSVFiles
from cavity.data.labels import encode, label_text, listed
from cavity.data.schema import CATEGORY, DATE, IDENTIFIER_LEVELS, LEFT_OUT, NUMBER, TIME, Column, Schema
from cavity.data.source import Array
from cavity.data.tables import Columns, TableFiles, arrow, choose_columns, column_type, contents, feature_array
from cavity.runtime.progress import command_clock

METHODS = ("auto", "ep", "sep", "gfitc", "vi")  # named here, because importing them would import torch
KERNELS = ("rbf", "matern12", "matern32", "matern52", "laplace", "linear")
SCALINGS = {**{name: name for name in ("default", "standard", "common", "quantile", "power", "auto")}, "none": None}
POSITIVE = click.FloatRange(0.0, min_open=True)
FRACTION = click.FloatRange(0.0, 1.0, max_open=True)
HOLDOUT = 0.2  # of the rows, by default
MAX_LABELS = 20  # that are never too many
CHANCE = 1e-3
MIN_IDENTIFIERS = 10  # rows
IDENTIFIER = re.compile(
    r"(?i:(.*[ _.-])?id|ids|idx|index|key|uuid|guid|row|row[ _]?(number|no|nr)|unnamed.*)|.*[a-z]I[dD]"
)
LIKE_NUMBERS = "text that looks like numbers"
FEW_LEVELS = IDENTIFIER_LEVELS  # of text that is mostly numbers, to be a category
FEW_MARKS = 3  # different texts that stand for missing values among numbers, at most
LINE, MAX_NAME, MAX_LEFT_OUT = 130, 30, 12  # characters of a line about columns, of a name; columns of a note
LAST_RECORDS = 2  # of a stopped training, one of which says so
STOPPING = b"\nstopping after this step; press Ctrl-C again to quit now\n"
STDERR = 2


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
@click.option("--features", metavar="A,B", help="Columns to learn from; by default all.")
@click.option("--drop", metavar="A,B", help="Columns to ignore.")
@click.option(
    "--categorical", multiple=True, metavar="A,B", help="Columns to read as categories, such as numbers that are codes."
)
@click.option(
    "--numeric", multiple=True, metavar="A,B", help="Columns to read as numbers; other text in them counts as missing."
)
@DROP_MISSING
@click.option(
    "--holdout", type=FRACTION, metavar="FRACTION",
    help="Fraction of the rows to score on instead of learning from them.  [default: 0.2]",
)  # fmt: skip
@click.option("--method", type=click.Choice(METHODS), default="auto", show_default=True)
@click.option(
    "--inducing", "n_inducing", type=Count({"auto": "auto"}, fractions=True), default="auto", show_default=True,
    help="Inducing points of each class, or a fraction of the rows: more are slower and more accurate. auto: all of up "
    "to about 1,500 rows, 200 to 600 up to 2,000 rows, 200 above.",
)  # fmt: skip
@click.option(
    "--kernel",
    type=click.Choice(KERNELS),
    help="[default: rbf + matern12 or matern12 + laplace, by a search; rbf without one]",
)
@click.option("--scaling", type=click.Choice(list(SCALINGS)), default="default", show_default=True, help="Of numbers.")
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
    categorical: tuple[str, ...],
    numeric: tuple[str, ...],
    drop_missing: bool,
    holdout: float | None,
    as_json: bool,
    quiet: bool,
    resume: bool,
    distributed: bool | None,
    **parameters: Any,
) -> None:
    """Train a classifier on the rows of DATA (CSV or Parquet files, folders, patterns, or - for stdin) and save it.

    Numbers, text, true/false and dates are features, and cells may be missing. The first lines of the output say how
    each column was read. Some rows are held out and scored at the end. Ctrl-C stops training and keeps the best model
    so far; a second Ctrl-C quits at once.

    \b
    Examples:
      cavity fit digits-train.csv --target digit -o digits.cavity
      cavity fit flights/ --target delay -o flights.cavity --drop id --seconds 600
      cavity fit visits.csv --target outcome -o visits.cavity --categorical ward,code --numeric age
    """
    if resume and parameters["checkpoint"] is None:
        raise click.UsageError("--resume needs the folder of the checkpoints: --checkpoint FOLDER")
    check_writable(out)
    output = Output(as_json, quiet, distributed)
    with told_if_written(out), command_clock():
        output.status(f"Reading {' '.join(data)}")  # before torch is imported, which takes a while
        table, chosen = open_table(data), None if features is None else split_names(features)
        kinds = Kinds(*([name for names in given for name in split_names(names)] for given in (categorical, numeric)))
        training = _read_training_rows(
            table, target, chosen, split_names(drop), kinds, drop_missing, holdout, parameters["random_state"], output
        )

        from cavity.classifier import GPClassifier
        from cavity.runtime.warnings import CavityWarning
        from cavity.training import Event, describe
        from cavity.training.history import NUMERICAL_EVENTS

        parameters["scaling"] = SCALINGS[parameters["scaling"]]
        parameters["max_epochs"] = parameters["max_epochs"] or "auto"
        parameters["categorical_features"] = training.categorical
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
                    tally = score(model, held.X, index, training.features, done)
            scores = {} if tally is None else tally.scores()._asdict()
            if output.is_main:
                kept = {"target": target, "data": table.name, "holdout": training.about}
                kept |= {"numeric": training.numeric} if training.numeric else {}
                out, problem = save_anywhere(lambda path: model.save(path, metrics=kept | scores), out)
        noted = (Event.CONSTANT_FEATURES, *NUMERICAL_EVENTS)
        last = {record["event"]: record for record in model.history_ if record["event"] in noted}
        output.notes.extend(map(describe, last.values()))
        columns, left_out = training.columns, training.left_out
        if training.is_streamed:  # only now all rows have been read
            columns = column_facts(model)
            if found := {str(one.name): one.reason for one in model.columns_ if one.kind == LEFT_OUT}:
                _note_left_out(found, output)
                left_out = left_out | found
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
            features=[name for name in training.features if name not in left_out],
            columns=columns,
            left_out=left_out,
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


class Kinds(NamedTuple):
    """The columns that options name as categories and as numbers."""

    categorical: list[str]
    numeric: list[str]

    def check(self, schema: Any, name: str, features: Sequence[str]) -> None:
        """Raise ValueError for names that are no features, and for columns that cannot be read so."""
        for option, names in (("--categorical", self.categorical), ("--numeric", self.numeric)):
            for column in names:
                held = contents(column_type(schema, column, name))
                if column not in features:
                    raise ValueError(f"{name}: column {column!r} must be a feature, because {option} names it")
                if option == "--numeric" and held not in ("numbers", "text", "no values"):
                    raise ValueError(f"{name}: column {column!r} must hold numbers or text, because {option} names it, "
                                     f"got {held}")  # fmt: skip
        if both := [column for column in self.categorical if column in self.numeric]:
            raise ValueError(f"{name}: column {both[0]!r} must be in --categorical or in --numeric, not in both")


class TrainingSet(NamedTuple):
    """The rows to learn from and those held out."""

    arguments: tuple[Any, ...]  # of `GPClassifier.fit`
    n_rows: int | None  # to learn from; None where they are not counted yet
    held: TableRows | None  # the rows to score on, where there are any
    features: list[str]
    columns: list[dict[str, Any]]  # what each feature holds
    left_out: dict[str, str]  # columns that are no features, and why
    categorical: list[str] | str  # as for `GPClassifier`
    about: dict[str, Any]  # what is saved with the model about the rows held out
    numeric: list[str]  # columns whose text is read as numbers
    dropped: int = 0  # how many rows with missing values were ignored
    is_streamed: bool = False


def _read_training_rows(
    table: TableFiles,
    target: str,
    features: list[str] | None,
    drop: list[str],
    kinds: Kinds,
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
                         "keep some rows in another file to score")  # fmt: skip
    # Only all rows of a CSV file tell its types.
    data = table.read(target=target) if isinstance(table, CSVFiles) and not is_streamed else None
    schema = table.schema() if data is None else data.schema
    columns = choose_columns(schema, table.name, target, features, drop)
    kinds.check(schema, table.name, columns.features)
    if decimal_point(table) == ",":
        output.note(f"{table.name}: numbers are read with decimal commas")
    if is_streamed:
        return _stream_training_rows(table, schema, columns, kinds, seed, output)
    data = table.read(columns.names) if data is None else data
    marked = [name for name in columns.features if name not in (*kinds.categorical, *kinds.numeric)]
    kinds = kinds._replace(numeric=[*kinds.numeric, *_marked_numbers(data.select(marked), decimal_point(table))])
    X, found, left_out = _read_features(table, data, columns, kinds, output)
    rows = read_rows(table.name, X, target, data.column(target), drop_missing)
    note_dropped(rows.dropped, output)
    numbers = [str(column.name) for column in found if column.kind == NUMBER]
    _note_row_counters(np.array([rows.X.column(name).to_numpy() for name in numbers]).T, numbers, output)
    check_labels(rows.y, f"{table.name}: column {target!r}")
    categorical = [str(column.name) for column in found if column.kind == CATEGORY]
    fraction, keys = HOLDOUT if holdout is None else holdout, row_keys(rows.cells(), rows.y)
    held = hold_out(keys, rows.y, fraction, seed)
    if fraction and not held.any():
        output.note("too few rows to hold any out: there will be no scores")
    learned, n_labels = rows.take(~held), plural(len(np.unique(rows.y)), "label")
    facts = [_fact(column, rows.X, learned.X) for column in found]
    output.print(f"{table.name}: {plural(len(rows.y), 'row')}, {plural(len(found), 'feature')}, "
                 f"{n_labels} in {target!r}")  # fmt: skip
    output.print("\n".join(f"  {line}" for line in describe_columns(facts)))
    if held.any():
        output.print(f"{plural(len(learned.y), 'row')} to learn from, {held.sum():,} held out to score on")
    about = {"share": fraction, "seed": seed, "rows": int(held.sum()), "digest": digest(keys)}
    return TrainingSet(
        (learned.X, learned.y), len(learned.y), rows.take(held) if held.any() else None, X.column_names, facts,
        left_out, categorical or "from_dtype", about, kinds.numeric, rows.dropped,
    )  # fmt: skip


def _stream_training_rows(
    table: TableFiles, schema: Any, columns: Columns, kinds: Kinds, seed: int, output: Output
) -> TrainingSet:
    types = {name: column_type(schema, name, table.name) for name in columns.features}
    held = {name: "categories" if arrow().types.is_boolean(kind) else contents(kind) for name, kind in types.items()}
    if text := [name for name in kinds.numeric if held[name] == "text"]:
        raise ValueError(f"{table.name} is too large for memory, so --numeric does not read text, as in {text[0]!r}; "
                         "leave cells that are no numbers empty")  # fmt: skip
    held |= dict.fromkeys(kinds.numeric, "numbers") | dict.fromkeys(kinds.categorical, "categories")
    categories = [name for name, what in held.items() if what in ("text", "categories")]
    categorical: list[str] | str = categories if kinds.numeric or kinds.categorical else "from_dtype"
    if columns.left_out:
        _note_left_out(columns.left_out, output)
    output.note(f"{table.name} is large: it is read from disk in every epoch, and no rows are held out; score the "
                "model on another file with `cavity evaluate`")  # fmt: skip
    numbers = [name for name, what in held.items() if what == "numbers"]
    if numbers and (batch := next(table.batches(numbers, []), None)) is not None:
        _note_row_counters(feature_array(batch, numbers), numbers, output)
    words = {"numbers": NUMBER, "no values": NUMBER, "dates": DATE, "times": TIME}
    facts = [{"name": name, "kind": words.get(what, CATEGORY)} for name, what in held.items()]
    output.print(f"{table.name}: {plural(len(facts), 'feature')}")
    output.print("\n".join(f"  {line}" for line in describe_columns(facts)))
    source = table.source(columns.target, columns.features, categorical_features=categorical)
    about = {"share": 0.0, "seed": seed, "rows": 0, "digest": files_digest(source)}
    return TrainingSet(
        (source,),
        None,
        None,
        columns.features,
        facts,
        columns.left_out,
        categorical,
        about,
        kinds.numeric,
        is_streamed=True,
    )


def _read_features(
    table: TableFiles, data: Any, columns: Columns, kinds: Kinds, output: Output
) -> tuple[Any, list[Column], dict[str, str]]:
    """Return the features as the classifier takes them, what they hold, and why other columns are left out."""
    X, decimal, left_out = data.select(columns.features), decimal_point(table), dict(columns.left_out)
    used, mixed = list[Column](), dict[str, str]()
    for name in kinds.numeric:
        values, strays = parse_numbers(joined(X.column(name)), decimal)
        if strays is not None and np.isnan(values.to_numpy()).all():
            raise ValueError(f"{table.name}: column {name!r} must hold numbers, because --numeric names it, got "
                             f"{shortened(strays.text)} in row {strays.row} and no number")  # fmt: skip
        if strays is not None:
            output.note(f"text that is no number counts as missing: {describe_strays(name, strays)}")
        X = X.set_column(X.column_names.index(name), name, values.cast(arrow().float64(), safe=False))
    for column in find_columns(X, kinds.categorical):
        name, kind = str(column.name), X.schema.field(column.name).type
        is_text = contents(kind) == "text" and not arrow().types.is_dictionary(kind)
        why = explain_text(joined(X.column(name)), decimal) if is_text and name not in kinds.categorical else ""
        has_many = len(column.levels or ()) > FEW_LEVELS
        is_left_out = column.kind == LEFT_OUT or (has_many and why not in ("", LIKE_NUMBERS))
        if is_left_out:
            left_out[name] = why or column.reason
        else:
            used.append(column)
        if why and (has_many or why != LIKE_NUMBERS):  # few levels of numbers in text are meant so
            mixed[name] = why
    for how, is_used in (("left out", False), ("read as categories", True)):
        if found := {name: why for name, why in mixed.items() if is_used == (name not in left_out)}:
            output.note(f"{how}, though most cells are numbers: {_listed(found)}; --numeric {join_names(*found)} reads "
                        "numbers, and other text as missing")  # fmt: skip
    if rest := {name: why for name, why in left_out.items() if name not in mixed}:
        _note_left_out(rest, output)
    if not used:
        raise ValueError(f"{table.name}: at least one feature is required, got none but those left out")
    return Inputs(tuple(used)).read(table, X)[0], used, left_out


def _marked_numbers(X: Any, decimal: str) -> list[str]:
    """Find columns of text that hold numbers, but for a few marks of missing values, such as "?"."""
    found = []
    for name in X.column_names:
        values = joined(X.column(name))
        if contents(values.type) == "text" and not arrow().types.is_dictionary(values.type):
            texts, index = text_values(values)
            is_number = np.array([text_number(text, decimal) is not None for text in texts], dtype=bool)
            is_mostly = 2 * is_number[index[index >= 0]].sum() > (index >= 0).sum()
            if is_mostly and is_number.sum() > FEW_LEVELS and 0 < (~is_number).sum() <= FEW_MARKS:
                found.append(name)
    return found


def explain_text(values: Any, decimal: str = ".") -> str:
    """Explain why an Arrow array is text though most cells are numbers: the first that is none; "" for other text."""
    texts, index = text_values(values)
    rows = np.flatnonzero(np.array([*map(bool, texts), False])[index])  # an empty text is a gap
    is_other = np.array([text_number(text, decimal) is None for text in texts], dtype=bool)[index[rows]]
    if 2 * is_other.sum() < len(rows):
        i = rows[is_other.argmax()]
        return f"text: row {i + 1:,} has {shortened(texts[index[i]])}" if is_other.any() else LIKE_NUMBERS
    if len(rows) and all(WITH_COMMA.fullmatch(text) for text in texts):
        first = shortened(texts[index[rows[0]]])
        return f"text: row {rows[0] + 1:,} has {first}, where the comma can separate thousands or decimals"
    return ""


def _note_left_out(left_out: dict[str, str], output: Output) -> None:
    output.note(f"left out: {_listed(left_out)}; --categorical uses text all the same, --drop ignores a column")


def _listed(reasons: dict[str, str]) -> str:
    found = [f"{name} ({why})" for name, why in reasons.items()]
    return ", ".join(found[:MAX_LEFT_OUT]) + (f" and {len(found) - MAX_LEFT_OUT} more" * (len(found) > MAX_LEFT_OUT))


# --- What columns hold ---


def _fact(column: Column, X: Any, learned: Any) -> dict[str, Any]:
    """Return what a feature holds, for JSON: its kind, levels and gaps, and the features that a date gives."""
    name = str(column.name)
    found = {"name": name, "kind": column.kind, "gaps": int(missing_cells(X.column(name)).sum())}
    if column.kind == CATEGORY:
        found["levels"] = len(column.levels or ())
    if column.kind in (DATE, TIME):
        from cavity.fitting.encoding import TableEncoding, fit_encoding

        schema = Schema((column,))
        cells, n = schema.read(learned.select([name])), len(learned)
        encoding = fit_encoding(schema, None, cells, np.zeros(n, dtype=np.int64), np.ones(n), 1)
        groups = encoding.groups if isinstance(encoding, TableEncoding) else ()
        found["features"] = [_time_feature(group.what) for group in groups if group.what != "missing"]
    return found


def column_facts(model: Any) -> list[dict[str, Any]]:
    """Return what the features of a fitted classifier hold, for JSON."""
    facts = []
    for column in (column for column in model.columns_ if column.kind != LEFT_OUT):
        facts.append({"name": str(column.name), "kind": column.kind})
        if column.kind == CATEGORY:
            facts[-1]["levels"] = len(column.levels or ())
        if column.kind in (DATE, TIME):
            own = [what for name, what in model.groups_ if name == column.name and what != "missing"]
            facts[-1]["features"] = list(map(_time_feature, own))
    return facts


def _time_feature(what: str) -> str:
    return "time" if what == "value" else what


def describe_columns(facts: Sequence[dict[str, Any]]) -> list[str]:
    """Describe columns in a line for each kind, and the gaps in another.

    >>> age, town = {"name": "age", "kind": "number", "gaps": 3}, {"name": "town", "kind": "category", "levels": 7}
    >>> describe_columns([age, town])
    ['1 number: age', '1 category: town (7 levels)', '3 gaps in 1 column: age (3)']
    """
    words = {NUMBER: "numbers", CATEGORY: "categories", DATE: "dates", TIME: "times of day"}
    by_kind = {kind: [one for one in facts if one["kind"] == kind] for kind in words}
    lines = [f"{plural(len(own), kind, words[kind])}: {_columns_line(own)}" for kind, own in by_kind.items() if own]
    gaps = {one["name"]: one["gaps"] for one in facts if one.get("gaps")}
    if gaps:
        most = [{"name": name, "details": f"{n:,}"} for name, n in sorted(gaps.items(), key=lambda item: -item[1])]
        where = f"{plural(sum(gaps.values()), 'gap')} in {plural(len(gaps), 'column')}"
        lines.append(f"{where}: {_columns_line(most)}")
    return lines


def _columns_line(facts: Sequence[dict[str, Any]]) -> str:
    """List as many columns as a line has space for."""
    shown = list[str]()
    for one in facts:
        details = one.get("details") or ", ".join(one.get("features", ()))
        if "levels" in one:
            details = f"{one['levels']:,}" if shown else plural(one["levels"], "level")
        name = one["name"] if len(one["name"]) <= MAX_NAME else one["name"][: MAX_NAME - 1] + "…"
        text = name + (f" ({details})" if details else "")
        if shown and len(", ".join([*shown, text])) > LINE:
            return f"{', '.join(shown)} and {len(facts) - len(shown):,} more"
        shown.append(text)
    return ", ".join(shown)


def row_counters(X: Array, features: Sequence[str]) -> list[str]:
    """Find features that only count or identify the rows, in any order and with gaps.

    They have a different whole number in every row, although numbers drawn at random from their range would hardly ever
    all differ; or they count up by one; or they are named like an identifier.
    """
    return [name for name, column in zip(features, X.T, strict=True) if _is_row_counter(column, name)]


def _is_row_counter(column: Array, name: str) -> bool:
    column = column[~np.isnan(column)]
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
        what = (
            "only counts the rows"
            if np.nanmax(column) - np.nanmin(column) < len(column)
            else "has a different whole number in every row"
        )
        output.note(
            f"{name!r} {what}; ignore it with --drop {join_names(name)}, because such a column can leak the labels"
        )


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
