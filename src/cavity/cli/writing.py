"""Tables written as they come: CSV or Parquet by the ending, whole or not at all."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from cavity.data.arrow import arrow
from cavity.files.atomic import atomic_write

STDOUT = "-"
ENDINGS = (".csv", ".parquet", ".pq")


def write(out: str, tables: Iterator[Any], empty: Any) -> int:
    """Write Arrow tables of the same columns one after the other.

    Args:
        out: the file, or "-" for CSV on stdout.
        tables: its parts.
        empty: a table without rows, for where there are no parts.

    Returns:
        How many rows there are.
    """
    if out == STDOUT:
        return _append(_on_stdout, None, tables, empty)
    path = Path(out)
    if path.suffix not in ENDINGS:
        raise ValueError(f"-o {out}: the name must end in .csv or .parquet; - is stdout, and a folder ends in /")
    with atomic_write(path) as temporary:
        return _append(_csv if path.suffix == ".csv" else _parquet, temporary, tables, empty)


def _append(opened: Any, where: Any, tables: Iterator[Any], empty: Any) -> int:
    first = next(tables, empty)
    rows = first.num_rows
    with opened(where, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)
            rows += table.num_rows
    return int(rows)


class _Csv:
    """Writes tables as text, the names first."""

    def __init__(self, file: TextIO, schema: Any) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(schema.names)

    def write_table(self, table: Any) -> None:
        """Its rows."""
        self._writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))


@contextmanager
def _csv(where: Path, schema: Any) -> Iterator[_Csv]:
    with open(where, "w", encoding="utf-8", newline="") as file:
        yield _Csv(file, schema)


@contextmanager
def _on_stdout(where: None, schema: Any) -> Iterator[_Csv]:
    yield _Csv(sys.stdout, schema)
    sys.stdout.flush()


def _parquet(where: Path, schema: Any) -> Any:
    return arrow("pyarrow.parquet").ParquetWriter(where, schema)
