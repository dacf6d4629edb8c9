"""What CSV and Parquet files share: how files are found, which columns are read, and their values as NumPy arrays."""

from __future__ import annotations

import difflib
import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import listed
from cavity.data.schema import CategoricalFeatures, Schema, column_kinds, table_columns
from cavity.data.source import Array, Block, CategoryBlock, Source, check_block, check_labels, row_name

Names = Sequence[str] | None  # of columns

SHOWN = 12  # columns in a message
NO_ROWS = "{} has no rows; a header line and at least one row are required"


def arrow(module: str = "pyarrow") -> Any:
    """Import a module of pyarrow; it is slow to import, so this is done where a file is read, and not before."""
    return import_module(module)


# --- Files ---


class File(NamedTuple):
    """A file of a source."""

    path: Path
    key: str  # its path relative to the folder given, which stays the same when the folder is moved
    name: str  # in messages


Given = str | os.PathLike[str] | Sequence[str | os.PathLike[str] | File]


def find_files(given: Given, *endings: tuple[str, ...]) -> list[File]:
    """Find files by name, folder or pattern, or by several of these.

    Args:
        given: the names. A folder stands for the files in it and in its subfolders, sorted by path, without hidden ones
            (`.` or `_`).
        endings: which files of a folder count. Of several groups of endings, the first that has files is used.
    """
    files = list[File]()
    for name in [given] if isinstance(given, str | os.PathLike) else given:
        if isinstance(name, File):
            files.append(name)
            continue
        text, folder = os.fspath(name), Path(name).parent
        paths = [text] if os.path.exists(text) else sorted(glob.glob(text, recursive=True))
        if not paths:
            near = [path.name for path in folder.iterdir()] if folder.is_dir() else []
            close = difflib.get_close_matches(Path(name).name, near, n=1)
            raise FileNotFoundError(
                f"{text} does not exist" + (f"; did you mean {folder / close[0]}?" if close else "")
            )
        files += [file for path in paths for file in _files_in(path, endings)]
    return files


def _files_in(path: str, endings: Sequence[tuple[str, ...]]) -> list[File]:
    root = Path(os.path.abspath(path))
    if root.is_file():
        return [File(root, root.name, root.name)]
    for group in endings:
        found = [file for file in root.rglob("*") if file.name.lower().endswith(group) and file.is_file()]
        keys = sorted(file.relative_to(root) for file in found)
        shown = [key.as_posix() for key in keys if not any(part.startswith((".", "_")) for part in key.parts)]
        if shown:
            return [File(root / key, key, f"{root.name}/{key}") for key in shown]
    raise ValueError(f"{path}: the folder has no {' or '.join(ending for group in endings for ending in group)} file")


def split_evenly(sizes: Sequence[int], lanes: int) -> list[range]:
    """Split items into consecutive parts of nearly equal total size, none of them empty.

    >>> split_evenly([10, 10, 10, 10, 10], 2)
    [range(0, 2), range(2, 5)]
    """
    if lanes < 1:
        raise ValueError(f"`lanes` must be 1 or more, got {lanes}.")
    lanes = max(1, min(lanes, len(sizes)))
    after = np.cumsum([0, *sizes])
    cuts = [0]
    for lane in range(1, lanes):
        nearest = int(np.abs(after - after[-1] * lane / lanes).argmin())
        cuts.append(min(max(nearest, cuts[-1] + 1), len(sizes) - lanes + lane))
    return [range(start, end) for start, end in pairwise([*cuts, len(sizes)])]


class TableFiles(ABC):
    """Files with the same columns, all CSV or all Parquet; messages call them `name`, by default that of the first."""

    endings: tuple[str, ...]

    def __init__(self, given: Given, name: str | None = None) -> None:
        self.files = find_files(given, self.endings)
        self.name = self.files[0].name if name is None else name

    @abstractmethod
    def schema(self) -> Any:
        """Return the Arrow schema; for CSV as the first rows have it."""

    @abstractmethod
    def batches(self, features: Sequence[str], others: Sequence[str], categories: Sequence[str] = ()) -> Iterator[Any]:
        """Read all rows as Arrow record batches in constant memory.

        Args:
            features: the columns of X.
            others: more columns, which CSV gives as text.
            categories: features that CSV reads as text, whatever they look like.
        """

    @abstractmethod
    def count_rows(self) -> int | None:
        """Count the rows, about; None where that would take as long as reading them."""

    @abstractmethod
    def n_bytes(self) -> int:
        """Estimate the memory that all columns take."""

    @abstractmethod
    def source(
        self,
        target: str | None,
        features: Sequence[str],
        categorical_features: CategoricalFeatures = "from_dtype",
    ) -> Source:
        """Return a source that reads the files in blocks."""

    @abstractmethod
    def _read_file(self, file: File, names: Names, target: str | None, categories: Sequence[str]) -> Any:
        """Read columns of a file into memory."""

    def read(self, names: Names = None, target: str | None = None, categories: Sequence[str] = ()) -> Any:
        """Read these columns, or all, of all rows as one Arrow table; a type fits every row.

        Args:
            names: the columns.
            target: the label column; CSV reads "NA" there as a label, and elsewhere as a gap.
            categories: the columns that CSV reads as text, whatever they look like.
        """
        pa = arrow()
        tables = [self._read_file(file, names, target, categories) for file in self.files]
        if not any(table.num_rows for table in tables):
            raise ValueError(NO_ROWS.format(self.name))
        if len(tables) == 1:
            return tables[0]
        for file, table in zip(self.files, tables, strict=True):
            for column in table.column_names:
                column_type(table.schema, column, file.name)  # raises for a name that occurs twice
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"{self.name}: the files have different columns ({error})") from None


# --- Columns ---


FEATURES = ("numbers", "text", "dates", "times", "no values")  # what columns of X can hold
USABLE = "numbers, text, dates or times"


class Columns(NamedTuple):
    """The columns to read."""

    features: list[str]  # the columns of X, in order
    target: str | None  # the label column; None for prediction
    left_out: dict[str, str]  # columns that can be no features, and what they hold: lists, bytes and the like
    schema: Schema | None = None  # what the features hold; None where all hold numbers

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return self.features if self.target is None else [*self.features, self.target]

    def labels(self, batch: Any) -> NDArray[Any] | None:
        """Return the labels of a record batch."""
        return None if self.target is None else label_array(batch.column(self.target))

    def block(self, batch: Any, first: int, file: File, start: int) -> Block:
        """Convert a record batch to a block; its first row has the number `first` in the lane, `start` in the file."""
        if self.schema is None:
            X = feature_array(batch, self.features)
        else:
            X = self.schema.read(batch.select(self.features), file.name, start)
        rows, where = np.arange(first, first + batch.num_rows), partial(row_name, file.name, start)
        return check_block(Block(X, self.labels(batch), rows, where), self.features)


def choose_columns(
    schema: Any,
    name: str,
    target: str | None = None,
    features: Names = None,
    drop: Sequence[str] = (),
    categorical: CategoricalFeatures = "from_dtype",
) -> Columns:
    """Check the features and the target, and find what the features hold.

    Args:
        schema: the Arrow schema of the table.
        name: of the table in messages.
        target: the label column.
        features: by default all columns but the target, those to drop, and those that hold lists, bytes and the like.
        drop: columns to ignore.
        categorical: which features are categories, as `categorical_features` of the classifier.
    """
    if isinstance(features, str):
        raise TypeError(f"`features` must be a list of column names, got {features!r}.")
    for column in (*([] if target is None else [target]), *(features or ()), *drop):
        if column not in drop or column not in schema.names:  # several columns of a name can be dropped together
            column_type(schema, column, name)
    rest = [column for column in schema.names if column not in (target, *drop)]
    held = {column: contents(column_type(schema, column, name)) for column in rest}
    left_out = {} if features is not None else {column: what for column, what in held.items() if what not in FEATURES}
    chosen = [column for column in rest if column not in left_out] if features is None else list(features)
    if not chosen:
        found = ", ".join(f"{column!r} holds {what}" for column, what in list(held.items())[:SHOWN])
        raise ValueError(f"{name}: at least one feature is required, of {USABLE}" + (f"; {found}" if found else ""))
    for column in chosen:
        if column not in held or chosen.count(column) > 1:
            raise ValueError(f"{name}: column {column!r} must be used once, as a feature or as the target")
        if held[column] not in FEATURES:
            raise ValueError(f"{name}: feature {column!r} must hold {USABLE}, got {held[column]}; convert it or leave "
                             "it out")  # fmt: skip
    if target is not None and contents(column_type(schema, target, name)) == "lists":
        raise ValueError(f"{name}: the target {target!r} must hold one label a row, got lists")
    kinds, _ = column_kinds(table_columns(schema.empty_table().select(chosen), name), categorical, name)
    return Columns(chosen, target, left_out, None if kinds.is_numeric else kinds)


def column_type(schema: Any, column: str, name: str) -> Any:
    """Return the Arrow type of the column, which must exist once."""
    places = schema.get_all_field_indices(column)
    if not places:
        close = difflib.get_close_matches(column, schema.names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {listed(schema.names)}"
        raise ValueError(f"{name} has no column {column!r}; {hint}")
    if len(places) > 1:
        raise ValueError(f"{name} has {len(places)} columns {column!r}; column names must be unique: rename them, or "
                         "leave them out")  # fmt: skip
    return schema.field(places[0]).type


def contents(kind: Any) -> str:
    """Describe in a word what a column of this type holds."""
    types = arrow().types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    words = {
        "numbers": (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean),
        "no values": (types.is_null,),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "dates": (types.is_date, types.is_timestamp),
        "times": (types.is_temporal,),
        "lists": (types.is_nested,),
        "bytes": (types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
    }
    return next((word for word, tests in words.items() if any(test(kind) for test in tests)), str(kind))


class TableSource(ABC):
    """What CSV and Parquet sources share: the columns in use, their cells, and the fingerprint."""

    def __init__(
        self, kind: str, table: TableFiles, target: str | None, features: Names, categorical: CategoricalFeatures
    ) -> None:
        self._kind, self._table, self._files = kind, table, table.files
        self.categorical_features = categorical
        self._columns = choose_columns(table.schema(), table.name, target, features, categorical=categorical)
        self.lanes = 1

    @property
    def feature_names(self) -> list[str]:
        return self._columns.features

    @property
    def n_features(self) -> int:
        return len(self._columns.features)

    @property
    def ignored(self) -> list[str]:
        """The columns that can be no features."""
        return list(self._columns.left_out)

    @property
    def schema(self) -> Schema | None:
        """What the features hold; None where all hold numbers. Levels that are not found yet are None."""
        return self._columns.schema

    def with_schema(self, schema: Schema) -> TableSource:
        """Return a copy with the columns that the schema names, in its order, and cells coded by it."""
        names = [column.name for column in schema.columns]
        if not all(isinstance(name, str) for name in names):
            names = self.feature_names
        columns = choose_columns(self._table.schema(), self._table.name, self._columns.target, names)
        is_plain = schema.is_numeric and columns.schema is None
        found = copy(self)
        found.categorical_features = "from_dtype"  # the schema says all
        found._columns = columns._replace(schema=None if is_plain else schema)
        return found

    @abstractmethod
    def batches(self, lane: int, seed: int | None, names: list[str]) -> Iterator[tuple[Any, int, File, int]]:
        """Read columns as record batches, each with the number of its first row in the lane, its file, and there."""

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        return (self._columns.block(*batch) for batch in self.batches(lane, seed, self._columns.names))

    def categories(self, lane: int) -> Iterator[CategoryBlock]:
        """Read the categories and labels of a lane in stored order."""
        places = [] if self.schema is None else self.schema.categories
        used = self._columns._replace(features=[self.feature_names[j] for j in places])
        for batch, _, file, start in self.batches(lane, None, used.names):
            y, where = used.labels(batch), partial(row_name, file.name, start)
            check_labels(y, where)
            columns = table_columns(batch.select(used.features), file.name)
            yield CategoryBlock(dict(zip(places, (values for _, values in columns), strict=True)), y, where)

    def fingerprint(self) -> dict[str, Any]:
        columns = {"features": self._columns.features, "target": self._columns.target}
        files = [{"name": file.key, "bytes": file.path.stat().st_size} for file in self._files]
        return {"kind": self._kind, **columns, "lanes": self.lanes, "files": files}


# --- Values ---


def feature_array(batch: Any, features: Sequence[str]) -> Array:
    """Convert columns of a batch or table to numbers, (n, D); null becomes NaN."""
    pa, X = arrow(), np.empty((batch.num_rows, len(features)))
    for j, name in enumerate(features):
        column = batch.column(name)
        kind = column.type
        if pa.types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        if column.null_count or pa.types.is_decimal(kind):
            column = column.cast(pa.float64(), safe=False)
        X[:, j] = column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    return X


def label_array(column: Any) -> NDArray[Any]:
    """Convert a column of a batch to labels; null becomes None."""
    pa = arrow()
    column = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    if column.null_count:
        return np.array(column.to_pylist(), dtype=object)
    if contents(column.type) not in ("text", "bytes") and not pa.types.is_decimal(column.type):
        return column.to_numpy(zero_copy_only=False)
    encoded = column.dictionary_encode()  # one object for each distinct label, not one for each row
    return np.array(encoded.dictionary.to_pylist(), dtype=object)[encoded.indices.to_numpy()]
