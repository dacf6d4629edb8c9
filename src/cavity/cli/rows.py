"""Rows and models from files: tables in memory, batches to predict, and the rows that a model is scored on."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from cavity.cli.holdout import recognize
from cavity.cli.output import Output, plural
from cavity.data.csv import CSVFiles
from cavity.data.labels import encode
from cavity.data.parquet import ParquetFiles
from cavity.data.source import Array
from cavity.data.tables import (
    Columns,
    File,
    TableFiles,
    arrow,
    choose_columns,
    contents,
    feature_array,
    find_files,
    label_array,
)

STDIN = "-"
MEMORY_PARTS = 4  # a table and its copy as an array may take one part of the free memory
REMEDY = "fill it in, or ignore such rows with --drop-missing"


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


# --- Rows ---


class TableRows(NamedTuple):
    """Labeled rows in memory."""

    X: Array  # inputs, (N, D), all finite
    y: NDArray[Any]  # labels, (N,)
    numbers: NDArray[np.int64]  # of each row in its files, from 1
    dropped: int = 0  # how many rows with missing values were ignored

    def take(self, where: NDArray[Any]) -> TableRows:
        return self._replace(X=self.X[where], y=self.y[where], numbers=self.numbers[where])


class TableBatch(NamedTuple):
    """Rows to predict: their inputs, the columns to copy, and how many rows with missing values were ignored."""

    X: Array
    kept: dict[str, Any]
    dropped: int


def read_rows(name: str, data: Any, columns: Columns, drop_missing: bool) -> TableRows:
    """Convert an Arrow table to inputs and labels (whole numbers, booleans or text), and check them."""
    X, target, compute = feature_array(data, columns.features), data.column(columns.target), arrow("pyarrow.compute")
    held, no_label = contents(target.type), np.asarray(compute.is_null(target, nan_is_null=True))
    if held == "text":  # an empty cell is no label
        no_label = no_label | np.asarray(compute.fill_null(compute.equal(target.cast(arrow().string()), ""), True))
    kept = _complete_rows(X, columns, name, 1, drop_missing, no_label)
    if not len(kept):
        raise ValueError(f"{name}: every row has missing values" if len(X) else f"{name} has no rows")
    if held in ("bytes", "lists"):
        raise ValueError(f"{name}: column {columns.target!r} must hold one label a row, as text or numbers, got {held}")
    y = label_array(target.take(arrow().array(kept)).combine_chunks())
    if y.dtype.kind == "f" and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    elif y.dtype.kind not in "biuf":
        y = np.array([str(label) for label in y.tolist()], dtype=str)
    return TableRows(X[kept], y, kept + 1, len(X) - len(kept))


def batches(table: TableFiles, features: list[str], keep: Sequence[str], drop_missing: bool) -> Iterator[TableBatch]:
    """Read all rows in batches, so memory does not grow with the files."""
    done = 0
    for batch in table.batches(features, keep):
        X = feature_array(batch, features)
        kept = _complete_rows(X, Columns(features, None, {}), table.name, done + 1, drop_missing)
        chosen = batch.take(arrow().array(kept)) if len(kept) < len(X) else batch
        yield TableBatch(X[kept], {name: chosen.column(name) for name in keep}, len(X) - len(kept))
        done += batch.num_rows


def _complete_rows(
    X: Array, columns: Columns, name: str, first: int, drop_missing: bool, no_label: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return the indices of the rows without missing values, which must be all rows unless they may be dropped."""
    is_missing = np.asarray(np.isnan(X).any(1))
    has_gap = is_missing if no_label is None else is_missing | no_label
    if has_gap.any() and not drop_missing:
        i = int(has_gap.argmax())
        column = columns.features[int(np.isnan(X[i]).argmax())] if is_missing[i] else columns.target
        count = int(has_gap.sum())
        more = f" ({count} rows have missing values)" if count > 1 and no_label is not None else ""
        raise ValueError(f"{name}: column {column!r} has no value in row {first + i}{more}; {REMEDY}")
    infinite = np.argwhere(np.isinf(X) & ~has_gap[:, None])
    if len(infinite):
        i, j = (int(k) for k in infinite[0])
        raise ValueError(f"{name}: column {columns.features[j]!r} must be finite, got {X[i, j]} in row {first + i}; "
                         "replace the value or remove the row")  # fmt: skip
    return np.flatnonzero(~has_gap)


def frame(X: Array, names: Sequence[str] | None) -> Any:
    """Return inputs with the feature names that the classifier expects; a plain array where it has none."""
    return X if names is None else arrow().table({name: X[:, j] for j, name in enumerate(names)})


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
        """Choose the columns that the model needs: by name where it knows them, else all numeric ones."""
        schema = table.schema()
        if self.names is not None:
            missing = [name for name in self.names if name not in schema.names]
            if len(missing) > 1:
                raise ValueError(f"{table.name}: {len(missing)} of the {len(self.names)} feature columns of the model "
                                 f"are missing, such as {missing[0]!r} and {missing[1]!r}")  # fmt: skip
            return choose_columns(schema, table.name, target, self.names)
        columns = choose_columns(schema, table.name, target)
        n_features = self.model.n_features_in_
        if len(columns.features) != n_features:
            raise ValueError(f"{table.name} must have {n_features} numeric columns, as the model does not know their "
                             f"names, got {len(columns.features)}")  # fmt: skip
        return columns

    def read(self, table: TableFiles, target: str, drop_missing: bool) -> TableRows:
        """Read all rows with the features of the model and their labels."""
        columns = self.columns(table, target)
        return read_rows(table.name, table.read(columns.names), columns, drop_missing)


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
    held = recognize(rows.X, rows.y, loaded.metrics)
    if held is None:
        return ScoredRows(rows, index, None, "new")
    if not held.any():
        note_learned(table, out)
        return ScoredRows(rows, index, rows, "learned from")
    out.note(f"{table.name}: the model was trained on this file; only the {plural(int(held.sum()), 'row')} "
                "held out from training are used")  # fmt: skip
    return ScoredRows(rows.take(held), index[held], rows.take(~held), "held out")


def note_learned(table: TableFiles, output: Output) -> None:
    """Warn that scores on training rows are too good."""
    output.note(f"{table.name}: the model was trained on these rows, so its scores look better than they are; "
                "use other rows, or fit with --holdout")  # fmt: skip


def note_dropped(count: int, output: Output) -> None:
    """Print how many rows were ignored."""
    if count:
        output.note(f"ignored {plural(count, 'row')} with missing values")
