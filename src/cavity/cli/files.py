"""Where the rows are: a CSV or Parquet file, a folder of them, a pattern or several names."""

from __future__ import annotations

import difflib
import glob
import gzip
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cavity.data import CSV, Parquet
from cavity.data.arrow import arrow
from cavity.data.csv_stream import Stream
from cavity.data.files import File, find_files
from cavity.data.row_groups import facts, opened
from cavity.data.source import Source
from cavity.runtime.memory import available_bytes

CSV_ENDINGS, PARQUET_ENDINGS = (".csv", ".csv.gz", ".tsv"), (".parquet", ".pq")
SEPARATORS = (",", ";", "\t", "|")  # the first of those that are most frequent in the line of names
FIRST_ROWS = 1000
UNPACKED = 5  # times as many bytes as a packed CSV file has
PART_OF_MEMORY = 4  # a table may take one part in so many, beside its copy as an array


class Data(NamedTuple):
    """Files with the same columns.

    Attributes:
        name: what they are called in messages.
        is_csv: else they are Parquet.
        files: all of them, in the order of their names.
        path: the one file or folder that holds them all; None where there is no such.
        delimiter: what stands between two columns of a CSV file.
    """

    name: str
    is_csv: bool
    files: list[File]
    path: Path | None
    delimiter: str = ","


def find(given: Sequence[str]) -> Data:
    """The files that are meant by names, folders and patterns; all CSV or all Parquet."""
    paths = [path for name in given for path in _expanded(name)]
    files = [file for path in paths for file in _files_in(path)]
    kinds = {_is_csv(file.path) for file in files}
    if len(kinds) > 1:
        raise ValueError(f"{' '.join(given)}: CSV and Parquet files together; give either the ones or the others")
    name = given[0] if len(given) == 1 else f"{given[0]} and {len(given) - 1} more"
    delimiter = _separator(files[0]) if kinds == {True} else ","
    return Data(name, kinds == {True}, files, paths[0] if len(paths) == 1 else None, delimiter)


def schema(data: Data) -> Any:
    """The columns and their types: of a CSV file as its first rows have them."""
    if not data.is_csv:
        return facts(data.files[0]).schema
    stream = Stream(data.delimiter, {})
    found = next((batch.schema for file in data.files for batch in stream.batches(file)), None)
    if found is None:
        raise ValueError(f"{data.name} has no rows; a line of names and rows below it are needed")
    return found


def is_large(data: Data, n_processes: int = 1) -> bool:
    """Whether the rows would take too much of the memory that there is to read them all."""
    free = available_bytes(torch.device("cpu"))
    return free is not None and 2 * _table_bytes(data) > free // (PART_OF_MEMORY * n_processes)


def source(data: Data, target: str | None, features: Sequence[str]) -> Source:
    """The rows as they are read from disk, some at a time."""
    if data.path is None:
        raise ValueError(f"{data.name}: several files, too large together for memory, are read from disk; "
                         "put them into a folder of their own and give that")  # fmt: skip
    if data.is_csv:
        return CSV(data.path, target, features, delimiter=data.delimiter)
    return Parquet(data.path, target, features)


def _expanded(name: str) -> list[Path]:
    if os.path.exists(name):
        return [Path(name)]
    if found := sorted(glob.glob(name, recursive=True)):
        return [Path(path) for path in found]
    raise FileNotFoundError(f"{name}: there is no such file or folder{_alike(Path(name))}")


def _alike(path: Path) -> str:
    """A file beside it whose name is much the same."""
    there = [found.name for found in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, there, n=1)
    return f"; is {path.parent / close[0]} meant?" if close else ""


def _files_in(path: Path) -> list[File]:
    if path.is_dir():
        has_parquet = any(path.rglob(f"*{PARQUET_ENDINGS[0]}"))
        return find_files(path, PARQUET_ENDINGS[:1] if has_parquet else CSV_ENDINGS[:2])
    if not path.name.endswith(CSV_ENDINGS + PARQUET_ENDINGS):
        raise ValueError(f"{path}: the name must end in .csv, .csv.gz, .tsv or .parquet; save the rows as one of these")
    return find_files(path, ())


def _is_csv(path: Path) -> bool:
    return path.name.endswith(CSV_ENDINGS)


def _separator(file: File) -> str:
    opened = gzip.open if file.path.name.endswith(".gz") else open
    with opened(file.path, "rt", encoding="utf-8", errors="replace") as lines:
        names = lines.readline()
    return max(SEPARATORS, key=names.count)


def _table_bytes(data: Data) -> int:
    """About what all columns take in memory."""
    if data.is_csv:
        sizes = [(file.path.stat().st_size, file.path.name.endswith(".gz")) for file in data.files]
        return sum(size * (UNPACKED if is_packed else 1) for size, is_packed in sizes)
    found = [facts(file) for file in data.files]
    return sum(8 * sum(one.counts) * len(one.schema.names) for one in found)


def columns_of(data: Data, names: Sequence[str] | None) -> Any:
    """All rows as an Arrow table, with these columns or all; types are those that fit every row."""
    pa = arrow()
    read = _read_csv if data.is_csv else _read_parquet
    tables = [read(data, file, names) for file in data.files]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"{data.name}: the files have different columns ({error})") from None


def first_rows(data: Data, names: Sequence[str]) -> Any:
    """Some rows of a Parquet file, with these columns."""
    with opened(data.files[0]) as found:
        batches = list(islice(found.iter_batches(FIRST_ROWS, columns=list(names)), 1))
    return arrow().Table.from_batches(batches, None if batches else arrow().schema([]))


def _read_csv(data: Data, file: File, names: Sequence[str] | None) -> Any:
    csv = arrow("pyarrow.csv")
    try:
        return csv.read_csv(
            file.path,
            parse_options=csv.ParseOptions(delimiter=data.delimiter),
            convert_options=csv.ConvertOptions(include_columns=names),
        )
    except (arrow().ArrowInvalid, arrow().ArrowKeyError) as error:
        raise ValueError(f"{file.name}: {error.args[0]}") from None


def _read_parquet(data: Data, file: File, names: Sequence[str] | None) -> Any:
    with opened(file) as found:
        return found.read(names)
