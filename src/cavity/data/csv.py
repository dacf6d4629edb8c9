"""Rows of CSV files, read as streams."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.arrow import Columns, arrow, choose, labels, numbers
from cavity.data.csv_stream import Stream
from cavity.data.files import File, deal, find_files
from cavity.data.source import Block, arranged, checked, spot

LANES = 8  # at most


class CSV:
    """Rows of a CSV file with a line of names at its top, or of all `.csv` and `.csv.gz` files in a folder.

    The first megabyte with rows in it decides which columns hold numbers and what the labels are. One file or several
    make a lane, of which there are 8 at most. A single large file is shuffled a buffer at a time and cannot be shared
    by processes; Parquet can, and is read many times faster.

    Args:
        path: the file or the folder.
        target: the column of labels; None for prediction.
        features: the columns of X, in this order; by default all that hold numbers but the target. Those that are
            passed over are listed in `ignored`.
        delimiter: what stands between two columns.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "flights.csv"
    >>> _ = path.write_text("distance,carrier,delay\\n300,X,none\\n1200,Y,short\\n")
    >>> source = CSV(path, target="delay")
    >>> next(source.blocks(0)).X.tolist(), source.ignored
    ([[300.0], [1200.0]], ['carrier'])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        target: str | None = None,
        features: Sequence[str] | None = None,
        *,
        delimiter: str = ",",
    ) -> None:
        self._files = find_files(path, (".csv", ".csv.gz"))
        self._columns, types = _chosen(self._files, target, features, delimiter)
        self._stream = Stream(delimiter, types)
        self._dealt = deal([file.path.stat().st_size for file in self._files], LANES)
        self._counts: dict[int, int] = {}  # rows of the files that were read to their end
        self.lanes, self.n_features = len(self._dealt), len(self._columns.features)
        self.feature_names, self.ignored = self._columns.features, self._columns.ignored

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        files = self._dealt[lane]
        for i in arranged(files, seed):
            yield from self._of_file(i, sum(self._count(k) for k in files if k < i))

    def fingerprint(self) -> dict[str, Any]:
        columns = {"features": self._columns.features, "target": self._columns.target}
        return {"kind": "csv", **columns, "lanes": self.lanes, "files": [file.facts() for file in self._files]}

    def _of_file(self, i: int, first: int) -> Iterator[Block]:
        file, done, target = self._files[i], 0, self._columns.target
        for batch in self._stream.batches(file):
            y = None if target is None else _labels(batch.column(target))
            rows = np.arange(first + done, first + done + batch.num_rows)
            block = Block(numbers(batch, self._columns.features), y, rows, partial(spot, file.name, done))
            yield checked(block, self._columns.features)
            done += batch.num_rows
        self._counts[i] = done

    def _count(self, i: int) -> int:
        """Rows of a file, which is read for it unless it has been before."""
        if i not in self._counts:
            self._counts[i] = sum(batch.num_rows for batch in self._stream.batches(self._files[i]))
        return self._counts[i]


def _chosen(
    files: list[File], target: str | None, features: Sequence[str] | None, delimiter: str
) -> tuple[Columns, dict[str, Any]]:
    """The columns to read, and their types as the first rows have them."""
    pa, stream = arrow(), Stream(delimiter, {})
    found = next(((file, batch.schema) for file in files for batch in stream.batches(file)), None)
    if found is None:
        raise ValueError(f"{files[0].name} has no rows, nor has any other file; a line of names and rows are needed")
    file, schema = found
    asked = set() if features is None else set(features)
    empty = [pa.field(f.name, pa.float64() if f.name in asked else pa.string()) if pa.types.is_null(f.type) else f
             for f in schema]  # fmt: skip
    columns = choose(pa.schema(empty), target, features, file.name)
    types = {f.name: f.type for f in empty if f.name in columns.names}
    whole = [name for name in columns.features if pa.types.is_integer(types[name])]
    return columns, types | dict.fromkeys(whole, pa.float64())  # a fraction may follow


def _labels(column: Any) -> NDArray[Any]:
    """An empty cell is no label."""
    y = labels(column)
    if y.dtype.kind == "O":
        y[y == ""] = None
    return y
