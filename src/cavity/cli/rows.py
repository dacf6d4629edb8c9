"""Rows and models from files: tables in memory, batches to predict, and the rows that a model is scored on."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from cavity.cli.holdout import recognize
from cavity.cli.options import join_names
from cavity.cli.output import Output, plural
from cavity.data.csv import CSVFiles
from cavity.data.labels import encode, label_text
from cavity.data.parquet import ParquetFiles
from cavity.data.schema import CATEGORY, DATE, LEFT_OUT, NUMBER, TIME, Column, Schema, find_schema
from cavity.data.tables import (
    Columns,
    File,
    TableFiles,
    arrow,
    choose_columns,
    column_type,
    contents,
    find_files,
    label_array,
)

STDIN = "-"
MEMORY_PARTS = 4  # a table and its copy as an array may take one part of the free memory
REMEDY = "fill it in, or ignore rows with missing values with --drop-missing"
NUMBER_TEXT = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)
BOOLEANS = {"true": "True", "false": "False", "1": "True", "0": "False"}  # in CSV files
SHOWN_COLUMNS, SHOWN_LEVELS = 3, 3  # in a note
MAX_TEXT = 40  # characters of a cell in a message
MAX_DIGITS = 30  # of a whole number that is read exactly


def open_table(given: Sequence[str]) -> TableFiles:
    """Open the files that names, folders and patterns stand for; all must be CSV or all Parquet.

    The name `-` is standard input, which is copied to a temporary file until the command ends.
    """
    kinds, found = (ParquetFiles, CSVFiles), set[type[TableFiles]]()
    if STDIN in given:
        if len(given) > 1:
            raise ValueError(f"- is standard input, which must be the only file, got {' '.join(given)}")
        folder = click.get_current_context().with_resource(tempfile.TemporaryDirectory(prefix="cavity-"))
        path = Path(folder) / "input"
        with open(path, "wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        with open(path, "rb") as copy:
            start = copy.read(4)
        kind = ParquetFiles if start == b"PAR1" else CSVFiles
        path = path.rename(path.with_suffix(".csv.gz" if start[:2] == b"\x1f\x8b" else kind.endings[0]))
        return kind([File(path, STDIN, "standard input")], "standard input")
    files = find_files(given, *(kind.endings for kind in kinds))
    for file in files:
        own = [kind for kind in kinds if file.path.name.lower().endswith(kind.endings)]
        if not own:
            raise ValueError(f"{file.path}: the name must end in .csv, .csv.gz, .tsv or .parquet; convert the file")
        found.update(own)
    if len(found) > 1:
        raise ValueError(f"{' '.join(given)}: the files must be all CSV or all Parquet, got both")
    return found.pop()(files, given[0] if len(given) == 1 else f"{given[0]} and {len(given) - 1} more")


def is_large(table: TableFiles, n_processes: int = 1) -> bool:
    """Whether reading all rows would take too much of the free memory."""
    import torch

    from cavity.runtime.memory import available_bytes

    free = available_bytes(torch.device("cpu"))
    return free is not None and 2 * table.n_bytes() > free // (MEMORY_PARTS * n_processes)


# --- Columns ---


class Strays(NamedTuple):
    """Text in a column of numbers, which counts as a gap."""

    cells: int
    row: int  # of the first, from 1
    text: str


class Inputs(NamedTuple):
    """The columns that a classifier takes, and how tables are converted to them."""

    columns: tuple[Column, ...]
    numeric: frozenset[str] = frozenset()  # columns of numbers whose other text counts as gaps

    @property
    def text(self) -> list[str]:
        """The columns that are read from CSV files as text."""
        return [*(str(column.name) for column in self.columns if column.kind == CATEGORY), *self.numeric]

    def read(self, table: TableFiles, data: Any, first: int = 1) -> tuple[Any, dict[str, Strays]]:
        """Convert columns to what the classifier takes: numbers as float64, categories as dictionaries, dates as dates.

        Args:
            table: the files that the rows come from.
            data: an Arrow table or batch.
            first: the number of its first row.

        Returns:
            An Arrow table, and the text that is no number in columns where it counts as a gap.
        """
        is_csv, decimal, strays = isinstance(table, CSVFiles), decimal_point(table), dict[str, Strays]()
        found = dict[str, Any]()
        for column in self.columns:
            name = str(column.name)
            if column.kind == LEFT_OUT and name not in data.schema.names:
                found[name] = arrow().nulls(data.num_rows)
                continue
            values = joined(data.column(name))
            if column.kind == CATEGORY:
                is_text = is_csv and contents(values.type) == "text"
                values = as_levels(values, column.levels or (), decimal) if is_text else values
                values = values if arrow().types.is_dictionary(values.type) else values.dictionary_encode()
            if column.kind == NUMBER:
                values, text = parse_numbers(values, decimal, first)
                if text is not None and name not in self.numeric:
                    raise ValueError(f"{table.name}: column {name!r} must hold numbers, as in training, got "
                                     f"{shortened(text.text)} in row {text.row}; correct it or leave it empty, or fit "
                                     f"with --numeric {join_names(name)}")  # fmt: skip
                strays |= {name: text} if text is not None else {}
            if column.kind in (NUMBER, DATE, TIME):
                cells = Schema((column,)).read(arrow().table({name: values}), table.name, first)
                values = arrow().array(cells[:, 0]) if column.kind == NUMBER else values
            found[name] = values
        return arrow().table(found), strays


def joined(column: Any) -> Any:
    """Return a column as one Arrow array."""
    return column.combine_chunks() if isinstance(column, arrow().ChunkedArray) else column


def decimal_point(table: TableFiles) -> str:
    """Return what separates the decimals of numbers in text."""
    return table.format(table.files[0]).decimal if isinstance(table, CSVFiles) else "."


def shortened(text: str) -> str:
    """Quote text for a message."""
    return repr(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")


def text_values(values: Any) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct texts of an Arrow array, and the index of each cell among them; -1 where it is missing."""
    values = values.dictionary_decode() if arrow().types.is_dictionary(values.type) else values
    encoded = values.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(int)


def parse_numbers(values: Any, decimal: str, first: int = 1) -> tuple[Any, Strays | None]:
    """Convert text to numbers, and other text to gaps; numbers stay as they are."""
    if contents(values.type) != "text":
        return values, None
    texts, index = text_values(values)
    numbers = [text_number(text, decimal) for text in texts]
    is_stray = np.array([number is None for number in numbers] + [False])[index]
    found = np.array([np.nan if number is None else number for number in numbers] + [np.nan], dtype=np.float64)[index]
    if not is_stray.any():
        return arrow().array(found), None
    i = int(is_stray.argmax())
    return arrow().array(found), Strays(int(is_stray.sum()), first + i, texts[index[i]])


def text_number(text: str, decimal: str = ".") -> float | int | None:
    """Return the number that a text is, if it is one."""
    text = text if decimal == "." else text.replace(decimal, ".")
    if NUMBER_TEXT.fullmatch(text) is None:
        return None
    return int(text) if len(text) < MAX_DIGITS and text.strip().lstrip("+-").isdigit() else float(text)


def as_levels(values: Any, levels: Sequence[str], decimal: str) -> Any:
    """Return cells of a CSV file as levels: "1.0" is the level 1, and "true" is True, where the levels are such."""
    texts, index = text_values(values)
    if not levels:
        return values
    if all(level in BOOLEANS.values() for level in levels):
        texts = [BOOLEANS.get(text.lower(), text) for text in texts]
    elif all(_number_level(level, ".") == level and text_number(level) is not None for level in levels):
        texts = [_number_level(text, decimal) for text in texts]
    pa = arrow()
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), pa.array(texts, pa.string()))


def _number_level(text: str, decimal: str) -> str:
    number = text_number(text, decimal)
    return text if number is None else label_text(number)


def find_columns(X: Any, categorical: Sequence[str] = ()) -> tuple[Column, ...]:
    """Find what the columns of an Arrow table hold by their types; those in `categorical` are categories."""
    names = [name for name in X.column_names if name in categorical]
    rest = [name for name in X.column_names if name not in categorical]
    found = {column.name: column for column in find_schema(X.select(rest)).columns if rest}
    found |= {column.name: column for column in find_schema(X.select(names), names).columns if names}
    return tuple(found[name] for name in X.column_names)


def missing_cells(values: Any) -> NDArray[np.bool_]:
    """Return which cells of a column are missing."""
    compute = arrow("pyarrow.compute")
    return np.asarray(compute.is_null(values, nan_is_null=contents(values.type) == "numbers"))


class CellCounts:
    """Missing cells of a model's columns, and levels that it was not trained on."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._schema = Schema(tuple(columns))
        self.missing, self.unseen = Counter[str](), Counter[str]()
        self.levels: dict[str, list[str]] = {}  # examples
        self.strays: dict[str, Strays] = {}

    def add(self, X: Any, strays: Mapping[str, Strays], name: str, first: int = 1) -> None:
        """Count the cells of some rows; `first` is the number of the first in the table `name`."""
        _, unknown = self._schema.read_counted(X, name, first)
        for column, label in zip(self._schema.columns, X.column_names, strict=True):
            gaps = 0 if column.kind == LEFT_OUT else int(missing_cells(X.column(label)).sum())
            self.missing.update({label: gaps} if gaps else {})
        for label, counts in unknown.items():
            self.unseen[label] += counts.total()
            examples = self.levels.setdefault(label, [])
            examples += [level for level in counts if level not in examples][: SHOWN_LEVELS - len(examples)]
        for label, found in strays.items():
            known = self.strays.get(label, found._replace(cells=0))
            self.strays[label] = known._replace(cells=known.cells + found.cells)

    def describe(self) -> str:
        """Describe the counts in one sentence; "" where there is nothing to say."""
        parts = []
        if self.unseen:
            such = {name: ", ".join(map(shortened, self.levels[name])) for name in self.unseen}
            found = _most_frequent(self.unseen, lambda name, n: f"{name!r} ({plural(n, 'cell')}, such as {such[name]})")
            have = "cell has a level" if self.unseen.total() == 1 else "cells have levels"
            parts.append(f"{self.unseen.total():,} {have} that the model does not know and takes as missing: {found}")
        if self.missing:
            found = _most_frequent(self.missing, lambda name, n: f"{name!r} ({n:,})")
            are = "cell is" if self.missing.total() == 1 else "cells are"
            strays = ", ".join(describe_strays(name, text) for name, text in self.strays.items())
            also = f", also text that is no number: {strays}" if strays else ""
            parts.append(f"{self.missing.total():,} {are} missing: {found}{also}")
        return "; ".join(parts)

    def facts(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        unseen = {name: {"cells": n, "levels": self.levels[name]} for name, n in self.unseen.items()}
        return {"missing": dict(self.missing), "unseen": unseen}


def describe_strays(name: str, found: Strays) -> str:
    """Say how many cells of a column are no numbers, and which is the first."""
    return f"{name!r} ({plural(found.cells, 'cell')}, such as {shortened(found.text)} in row {found.row:,})"


def _most_frequent(counts: Counter[str], describe: Callable[[str, int], str]) -> str:
    more = f" and {plural(len(counts) - SHOWN_COLUMNS, 'more column')}" if len(counts) > SHOWN_COLUMNS else ""
    return ", ".join(describe(name, n) for name, n in counts.most_common(SHOWN_COLUMNS)) + more


# --- Rows ---


class TableRows(NamedTuple):
    """Labeled rows in memory."""

    X: Any  # inputs, an Arrow table of N rows
    y: NDArray[Any]  # labels, (N,)
    numbers: NDArray[np.int64]  # of each row in its files, from 1
    dropped: int = 0  # how many rows with missing values were ignored

    def take(self, where: NDArray[Any]) -> TableRows:
        index = np.arange(len(self.y))[where]
        return self._replace(X=self.X.take(arrow().array(index)), y=self.y[index], numbers=self.numbers[index])

    def cells(self) -> NDArray[Any]:
        """Return a number for each cell that identifies its value, (N, D): a level by the hash of its text."""
        schema = find_schema(self.X)
        cells = schema.read(self.X)
        if schema.is_numeric:
            return cells
        codes = (np.where(np.isnan(cells), np.nan, cells) + 0.0).view(np.uint64)
        for j, column in enumerate(schema.columns):
            if column.kind == CATEGORY:
                texts = (level.encode("utf-8", "surrogatepass") for level in column.levels or ())
                hashes = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
                known = ~np.isnan(cells[:, j])
                codes[known, j] = np.frombuffer(hashes, "<u8")[cells[known, j].astype(int)]
        return codes


class TableBatch(NamedTuple):
    """Rows to predict: their inputs, the columns to copy, and how many rows with missing values were ignored."""

    X: Any
    kept: dict[str, Any]
    dropped: int


def read_rows(name: str, X: Any, target: str, labels: Any, drop_missing: bool, first: int = 1) -> TableRows:
    """Return rows with their labels (whole numbers, booleans or text), and check them.

    Args:
        name: of the table.
        X: the inputs, an Arrow table.
        target: the name of the label column.
        labels: the label column.
        drop_missing: whether to ignore rows with missing values; otherwise a label must not be missing.
        first: the number of the first row.
    """
    held, compute = contents(labels.type), arrow("pyarrow.compute")
    has_gap = np.asarray(compute.is_null(labels, nan_is_null=True))
    if held == "text":  # an empty cell is no label
        has_gap = has_gap | np.asarray(compute.fill_null(compute.equal(labels.cast(arrow().string()), ""), True))
    if has_gap.any() and not drop_missing:
        more = f" ({plural(int(has_gap.sum()), 'row')} have no label)" if has_gap.sum() > 1 else ""
        raise ValueError(f"{name}: column {target!r} has no value in row {has_gap.argmax() + first}{more}; {REMEDY}")
    kept = complete_rows(X, has_gap) if drop_missing else np.arange(len(X))
    if not len(kept):
        raise ValueError(f"{name}: every row has missing values" if len(X) else f"{name} has no rows")
    if held in ("bytes", "lists"):
        raise ValueError(f"{name}: column {target!r} must hold one label a row, as text or numbers, got {held}")
    y = label_array(joined(labels.take(arrow().array(kept))))
    if y.dtype.kind == "f" and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    elif y.dtype.kind not in "biuf":
        y = np.array([str(label) for label in y.tolist()], dtype=str)
    rows = X if len(kept) == len(X) else X.take(arrow().array(kept))
    return TableRows(rows, y, kept + first, len(X) - len(kept))


def complete_rows(X: Any, has_gap: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the indices of the rows without missing values."""
    for column in X.columns:
        if not arrow().types.is_null(column.type):  # left out
            has_gap = has_gap | missing_cells(column)
    return np.flatnonzero(~has_gap)


def batches(
    table: TableFiles, inputs: Inputs, keep: Sequence[str], drop_missing: bool, counts: CellCounts
) -> Iterator[TableBatch]:
    """Read all rows in batches, so memory does not grow with the files."""
    first, features = 1, [str(column.name) for column in inputs.columns if column.kind != LEFT_OUT]
    for batch in table.batches(features, keep, inputs.text):
        n_rows, (X, strays) = batch.num_rows, inputs.read(table, batch, first)
        kept = complete_rows(X, np.zeros(len(X), dtype=bool)) if drop_missing else np.arange(len(X))
        if len(kept) < len(X):
            batch, X = batch.take(arrow().array(kept)), X.take(arrow().array(kept))
        counts.add(X, strays, table.name, first)
        yield TableBatch(X, {name: batch.column(name) for name in keep}, n_rows - len(kept))
        first += n_rows


def frame(X: Any, names: Sequence[str] | None) -> Any:
    """Return inputs with the feature names that the classifier expects; a plain array where it has none."""
    if names is not None:
        return X
    is_numeric = all(arrow().types.is_floating(kind) for kind in X.schema.types)
    columns = [np.array(column.to_pylist(), dtype=np.float64 if is_numeric else object) for column in X.columns]
    return np.stack(columns, axis=1)


# --- Models ---


class LoadedModel:
    """A fitted classifier from a file, with what was saved beside it, and its feature names, where known."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; `cavity fit` creates a model")
        from cavity.classifier import load

        self.model: Any = load(path)
        self.metrics: dict[str, Any] = self.model.metrics_ or {}
        self.target: str | None = self.metrics.get("target")
        names = getattr(self.model, "feature_names_in_", None)
        self.names = None if names is None else [str(name) for name in names]

    def target_or(self, given: str | None) -> str:
        """Return the label column: the one given, else the one that the model was trained on."""
        target = given or self.target
        if target is None:
            raise ValueError("The model does not know its label column; name it with --target.")
        return target

    def columns(self, table: TableFiles, target: str | None) -> Columns:
        """Choose the columns that the model needs: by name where it knows them, else by their order."""
        schema, own = table.schema(), self.model.columns_
        if self.names is not None:
            there = [name for name, column in zip(self.names, own, strict=True)
                     if name in schema.names or column.kind != LEFT_OUT]  # fmt: skip
            missing = [name for name in there if name not in schema.names]
            if len(missing) > 1:
                raise ValueError(f"{table.name}: {len(missing)} of the {len(self.names)} feature columns of the model "
                                 f"are missing, such as {missing[0]!r} and {missing[1]!r}")  # fmt: skip
            return choose_columns(schema, table.name, target, there)
        columns, wanted = choose_columns(schema, table.name, target), "columns"
        if all(column.kind == NUMBER for column in own):
            wanted = "numeric columns"
            numeric = [
                name for name in columns.features if contents(column_type(schema, name, table.name)) == "numbers"
            ]
            columns = columns._replace(features=numeric)
        if len(columns.features) != len(own):
            raise ValueError(f"{table.name} must have {len(own)} {wanted}, as the model does not know their "
                             f"names, got {len(columns.features)}")  # fmt: skip
        return columns

    def inputs(self, features: Sequence[str]) -> Inputs:
        """Return how columns of a table, which `columns` has chosen, are read."""
        names = features if self.names is None else self.names
        own = tuple(replace(column, name=name) for column, name in zip(self.model.columns_, names, strict=True))
        return Inputs(own, frozenset(self.metrics.get("numeric", ())))

    def read(self, table: TableFiles, target: str, drop_missing: bool) -> TableRows:
        """Read all rows with the features of the model and their labels."""
        columns = self.columns(table, target)
        inputs = self.inputs(columns.features)
        data = table.read(columns.names, target, inputs.text)
        return read_rows(table.name, inputs.read(table, data)[0], target, data.column(target), drop_missing)


class ScoredRows(NamedTuple):
    """Rows that a model is scored on."""

    rows: TableRows
    class_index: NDArray[np.int64]  # of each label among the classes
    learned: TableRows | None  # the rows that the model has learned from, where known
    which: str  # "new", "held out" or "learned from"


def rows_to_score(table: TableFiles, loaded: LoadedModel, target: str, drop_missing: bool, out: Output) -> ScoredRows:
    """Read the rows to score on; of the file that the model was trained on, only those held out."""
    rows = loaded.read(table, target, drop_missing)
    note_dropped(rows.dropped, out)
    index = encode(rows.y, loaded.model.classes_, lambda i: f"{table.name}, row {rows.numbers[i]}", as_text=True)
    held = recognize(rows.cells(), rows.y, loaded.metrics)
    if held is None:
        found = ScoredRows(rows, index, None, "new")
    elif not held.any():
        note_learned(table, out)
        found = ScoredRows(rows, index, rows, "learned from")
    else:
        out.note(f"{table.name}: the model was trained on this file; only the {plural(int(held.sum()), 'row')} "
                 "held out from training are used")  # fmt: skip
        found = ScoredRows(rows.take(held), index[held], rows.take(~held), "held out")
    counts = CellCounts(loaded.model.columns_)
    counts.add(found.rows.X, {}, table.name)
    note_counts(table, counts, out)
    return found


def note_learned(table: TableFiles, output: Output) -> None:
    """Warn that scores on training rows are too good."""
    output.note(f"{table.name}: the model was trained on these rows, so its scores look better than they are; "
                "use other rows, or fit with --holdout")  # fmt: skip


def note_counts(table: TableFiles, counts: CellCounts, output: Output) -> None:
    """Print how many cells are missing or have unknown levels."""
    if text := counts.describe():
        output.note(f"{table.name}: {text}")


def note_dropped(count: int, output: Output) -> None:
    """Print how many rows were ignored."""
    if count:
        output.note(f"ignored {plural(count, 'row')} with missing values")
