"""Rows of CSV files, read as streams."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from cavity.data.source import Block, permuted
from cavity.data.tables import (
    NO_ROWS,
    File,
    Given,
    Names,
    TableFiles,
    TableSource,
    arrow,
    column_type,
    contents,
    split_evenly,
)

DELIMITERS = (",", ";", "\t", "|")
MAX_LANES = 8
STREAM_BYTES = 2**20  # of text read at a time
COUNT_BYTES = 2**22
COMPRESSION = 5  # of a gzip file, about
SNIFFED_ROWS = 1000
WITH_COMMA = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")
THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*")  # or a decimal: nobody can tell
WITH_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")
MAX_SHOWN = 60  # characters of a line in a message
RAGGED = re.compile(r"Expected (\d+) columns, got (\d+)")


class Format(NamedTuple):
    """How a file separates columns, and the whole part of a number from its decimals."""

    delimiter: str
    decimal: str


class CSVFiles(TableFiles):
    """CSV files with a header line.

    pyarrow's datasets are not used: they take the types of a column from the first block of the first file, and their
    errors do not name the row. The default delimiter is the most frequent of `,`, `;`, tab and `|` in the header.
    Numbers have decimal commas if some in the first rows have, and none there has a decimal point.
    """

    endings = (".csv", ".csv.gz", ".tsv")

    def __init__(self, given: Given, name: str | None = None, delimiter: str | None = None) -> None:
        super().__init__(given, name)
        self._delimiter = delimiter
        self._schema: Any = None
        self._formats: dict[File, Format] = {}

    def schema(self) -> Any:
        if self._schema is None:
            self._schema = next((batch.schema for file in self.files for batch in self.stream(file, {})), None)
        if self._schema is None:
            raise ValueError(NO_ROWS.format(self.name))
        return self._schema

    def types(self, features: Sequence[str]) -> dict[str, Any]:
        """Return the Arrow types to read features as: numbers are float64, and dates can have fractions of a second."""
        pa, found = arrow(), dict[str, Any]()
        for name in features:
            kind = column_type(self.schema(), name, self.name)
            found[name] = pa.timestamp("us") if pa.types.is_date(kind) else kind
            if contents(kind) in ("numbers", "no values") and not pa.types.is_boolean(kind):
                found[name] = pa.float64()
        return found

    def batches(self, features: Sequence[str], others: Sequence[str], categories: Sequence[str] = ()) -> Iterator[Any]:
        text = arrow().string()
        types = dict.fromkeys(others, text) | self.types(features) | dict.fromkeys(categories, text)
        return (with_gaps(batch, features) for file in self.files for batch in self.stream(file, types))

    def stream(self, file: File, types: Mapping[str, Any]) -> Iterator[Any]:
        """Read columns of a file as record batches; without types all columns, of guessed types."""
        if file.path.stat().st_size == 0:
            return
        try:
            with self._open(file, types) as stream:
                yield from (batch for batch in stream if batch.num_rows)
        except arrow().ArrowKeyError:
            missing = [name for name in types if name not in self._header(file)]
            raise ValueError(f"{file.name} has no column {missing[0]!r}") from None
        except arrow().ArrowInvalid as error:
            if "Empty CSV file" not in str(error):  # a header line alone
                raise self._explained(file, error) from None

    def count_rows(self) -> int | None:
        if any(file.path.suffix.lower() == ".gz" for file in self.files):
            return None
        count = 0
        for file in self.files:
            with open(file.path, "rb") as lines:
                count += sum(part.count(b"\n") for part in iter(lambda: lines.read(COUNT_BYTES), b"")) - 1
        return count

    def n_bytes(self) -> int:
        return sum(
            file.path.stat().st_size * (COMPRESSION if file.path.suffix.lower() == ".gz" else 1) for file in self.files
        )

    def source(self, target: str | None, features: Sequence[str], categorical_features: Any = "from_dtype") -> CSV:
        return CSV(self.files, target, features, delimiter=self._delimiter)

    def _read_file(self, file: File, names: Names, target: str | None, categories: Sequence[str]) -> Any:
        pa_csv, types = arrow("pyarrow.csv"), dict.fromkeys(categories, arrow().string())
        decimal = self.format(file).decimal
        converting = pa_csv.ConvertOptions(column_types=types, include_columns=names, decimal_point=decimal)
        try:
            found = pa_csv.read_csv(file.path, None, self._parsing(file), converting)
            return with_gaps(found, [name for name in found.column_names if name != target])
        except arrow().ArrowKeyError as error:
            raise ValueError(f"{file.name}: {error.args[0]}") from None
        except arrow().ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                raise ValueError(NO_ROWS.format(file.name)) from None
            raise self._explained(file, error) from None

    def _open(self, file: File, types: Mapping[str, Any]) -> Any:
        pa_csv = arrow("pyarrow.csv")
        reading = pa_csv.ReadOptions(use_threads=False, block_size=STREAM_BYTES)
        decimal = self.format(file).decimal
        converting = pa_csv.ConvertOptions(column_types=types, include_columns=list(types), decimal_point=decimal)
        return pa_csv.open_csv(file.path, reading, self._parsing(file), converting)

    def format(self, file: File) -> Format:
        """Return the format of a file, by its header and its first rows."""
        if file not in self._formats:
            with self._open_text(file) as lines:
                delimiter = self._delimiter or max(DELIMITERS, key=lines.readline().count)
                rows = islice(csv.reader(lines, delimiter=delimiter), SNIFFED_ROWS)
                try:
                    cells = [cell for row in rows for cell in row]
                except csv.Error:  # a cell of more than 100,000 characters, say
                    cells = []
            decimals = [cell for cell in cells if WITH_COMMA.fullmatch(cell)]
            has_commas = any(not THOUSANDS.fullmatch(cell) for cell in decimals)
            is_comma = has_commas and not any(WITH_POINT.fullmatch(cell) for cell in cells)
            self._formats[file] = Format(delimiter, "," if is_comma else ".")
        return self._formats[file]

    def _open_text(self, file: File) -> Any:
        open_text = gzip.open if file.path.suffix.lower() == ".gz" else open
        return open_text(file.path, "rt", encoding="utf-8", errors="replace", newline="")

    def _parsing(self, file: File) -> Any:
        return arrow("pyarrow.csv").ParseOptions(delimiter=self.format(file).delimiter)

    def _explained(self, file: File, error: Exception) -> ValueError:
        """Return an error with the name of the column, or the line of a row with too many or too few values."""
        ragged = RAGGED.search(str(error))
        if ragged is None:
            message = re.sub(r"column #(\d+)", lambda k: f"column {self._header(file)[int(k[1])]!r}", str(error))
            return ValueError(f"{file.name}: {message}")
        delimiter, wanted = self.format(file).delimiter, int(ragged[1])
        with self._open_text(file) as lines:
            rows = csv.reader(lines, delimiter=delimiter)
            found = next(((rows.line_num, row) for row in rows if row and len(row) != wanted), None)
        if found is None:
            return ValueError(f"{file.name}: {ragged[0]} in a row; check for line breaks inside quotes")
        line, row = found
        remedy = f"quote values that contain {delimiter!r}" if len(row) > wanted else "add what is missing"
        return ValueError(f"{file.name}, line {line}: Expected {wanted} columns, as in the header, got {len(row)}: "
                          f"{delimiter.join(row)[:MAX_SHOWN]}; {remedy}, or remove the line")  # fmt: skip

    def _header(self, file: File) -> list[str]:
        with self._open(file, {}) as stream:
            return stream.schema.names


def with_gaps(table: Any, names: Sequence[str]) -> Any:
    """Return a table or batch with null in these columns, where text stands for a missing value."""
    pa, compute = arrow(), arrow("pyarrow.compute")
    missing = pa.array(arrow("pyarrow.csv").ConvertOptions().null_values)
    for place, field in enumerate(table.schema):
        if field.name in names and pa.types.is_string(field.type):
            cells = table.column(place)
            table = table.set_column(place, field, compute.if_else(compute.is_in(cells, missing), None, cells))
    return table


class CSV(TableSource):
    """Rows of CSV files with a header line, also compressed by gzip.

    The first megabyte decides which columns hold numbers and the type of the labels. Decimal commas are recognized.
    There are at most 8 lanes, of one file or several. A single large file is shuffled one buffer at a time, and several
    workers cannot share it; Parquet files can be shared, and reading them is many times faster.

    Args:
        path: a file, a folder of `.csv`, `.csv.gz` and `.tsv` files, a pattern, or a list of these.
        target: the label column; None for prediction.
        features: the columns of X, in order; by default all numeric columns but the target. The attribute `ignored`
            lists the columns that were left out.
        delimiter: between two columns; by default found in the header.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "flights.csv"
    >>> _ = path.write_text("distance,carrier,delay\\n300,X,none\\n1200,Y,short\\n")
    >>> source = CSV(path, target="delay")
    >>> next(source.blocks(0)).X.tolist(), source.ignored
    ([[300.0], [1200.0]], ['carrier'])
    """

    def __init__(
        self, path: Given, target: str | None = None, features: Names = None, *, delimiter: str | None = None
    ) -> None:
        self._table = CSVFiles(path, delimiter=delimiter)
        super().__init__("csv", self._table, target, features)
        self._types = self._table.types(self.feature_names)
        if target is not None:
            self._types[target] = column_type(self._table.schema(), target, self._table.name)
        self._lane_files = split_evenly([file.path.stat().st_size for file in self._files], MAX_LANES)
        self._counts: dict[int, int] = {}  # rows of the files that were read to the end
        self.lanes = len(self._lane_files)

    def blocks(self, lane: int, seed: int | None = None) -> Iterator[Block]:
        files, target, pc = self._lane_files[lane], self._columns.target, arrow("pyarrow.compute")
        for i in permuted(files, seed):
            file, first, done = self._files[i], sum(self._count(k) for k in files if k < i), 0
            for batch in self._table.stream(file, self._types):
                if target is not None and arrow().types.is_string(self._types[target]):  # an empty cell is no label
                    place, cells = batch.schema.get_field_index(target), batch.column(target)
                    batch = batch.set_column(place, target, pc.if_else(pc.equal(cells, ""), None, cells))
                yield self._columns.block(batch, first + done, file, done)
                done += batch.num_rows
            self._counts[i] = done

    def _count(self, i: int) -> int:
        if i not in self._counts:
            self._counts[i] = sum(batch.num_rows for batch in self._table.stream(self._files[i], self._types))
        return self._counts[i]
