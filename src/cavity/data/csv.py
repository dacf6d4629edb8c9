"""Rows of CSV files, read as streams."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from cavity.data.schema import (
    CATEGORY,
    DATE,
    NUMBER,
    TIME,
    CategoricalFeatures,
    Column,
    chosen_places,
    column_kinds,
    table_columns,
)
from cavity.data.source import permuted
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
COLUMN = re.compile(r"column #(\d+)")
NO_FIT = "correct the cell, leave it empty, or name the column in categorical_features to read it as text"
TRUTH = frozenset(("True", "False"))
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

    def types(self, columns: Sequence[Column], categories: Collection[str]) -> dict[str, Any]:
        """Return the Arrow types to read features as.

        Numbers are float64 and categories text; columns of true and false in the first rows are booleans, unless the
        user named them or they have other levels. Dates and times can have fractions of a second in later rows.
        """
        pa, found = arrow(), dict[str, Any]()
        plain = {NUMBER: pa.float64(), DATE: pa.timestamp("us"), TIME: pa.time64("us")}
        for column in columns:
            name, seen = column.name, column_type(self.schema(), column.name, self.name)
            found[name] = plain.get(column.kind, pa.string())
            if column.kind in (DATE, TIME) and (contents(seen) == "text" or pa.types.is_timestamp(seen)):
                is_fine = contents(seen) == "text" or seen.unit == "ns"
                found[name] = seen if is_fine else pa.timestamp("us", seen.tz)
            elif pa.types.is_boolean(seen) and column.kind in (NUMBER, CATEGORY):
                is_named = column.name in categories and column.levels is None
                found[name] = pa.string() if is_named or not TRUTH.issuperset(column.levels or ()) else seen
        return found

    def batches(self, features: Sequence[str], others: Sequence[str], categories: Sequence[str] = ()) -> Iterator[Any]:
        kinds, _ = column_kinds(table_columns(self.schema().empty_table().select(features), self.name), "from_dtype")
        columns = [replace(one, kind=CATEGORY) if one.name in categories else one for one in kinds.columns]
        types = dict.fromkeys(others, arrow().string()) | self.types(columns, categories)
        return (batch for file in self.files for batch in self.stream(file, types, features))

    def stream(self, file: File, types: dict[str, Any], features: Sequence[str] = ()) -> Iterator[Any]:
        """Read columns of a file as record batches; without types all columns, of guessed types.

        Features that hold text have gaps where those of numbers have them: in empty cells, "NA", "null" and the like.
        """
        if file.path.stat().st_size == 0:
            return
        try:
            with self._open(file, types) as stream:
                yield from (with_gaps(batch, features) for batch in stream if batch.num_rows)
        except arrow().ArrowKeyError:
            missing = [name for name in types if name not in self._header(file)]
            raise ValueError(f"{file.name} has no column {missing[0]!r}") from None
        except arrow().ArrowInvalid as error:
            if "Empty CSV file" not in str(error):  # a header line alone
                raise self._explained(file, error, features) from None

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

    def source(
        self,
        target: str | None,
        features: Sequence[str],
        categorical_features: CategoricalFeatures = "from_dtype",
    ) -> CSV:
        return CSV(self.files, target, features, delimiter=self._delimiter, categorical_features=categorical_features)

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

    def _open(self, file: File, types: dict[str, Any]) -> Any:
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

    def _explained(self, file: File, error: Exception, features: Sequence[str] = ()) -> ValueError:
        """Return an error with the name of the column, or the line of a row with too many or too few values."""
        ragged = RAGGED.search(str(error))
        if ragged is None:
            place = COLUMN.search(str(error))
            name = None if place is None else self._header(file)[int(place[1])]
            message = COLUMN.sub(lambda _: f"column {name!r}", str(error))
            return ValueError(f"{file.name}: {message}" + (f"; {NO_FIT}" if name in features else ""))
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
    """Return a table or batch with null in these columns, where they hold text that stands for a missing value."""
    pa, compute = arrow(), arrow("pyarrow.compute")
    missing = pa.array(arrow("pyarrow.csv").ConvertOptions().null_values)
    for place, field in enumerate(table.schema):
        if field.name in names and pa.types.is_string(field.type):
            cells = table.column(place)
            table = table.set_column(place, field, compute.if_else(compute.is_in(cells, missing), None, cells))
    return table


class CSV(TableSource):
    """Rows of CSV files with a header line, also compressed by gzip.

    The first megabyte decides which columns hold numbers, true and false, dates (ISO 8601), times or text, and the type
    of the labels. Decimal commas are recognized. A cell is missing where it is empty or one of pyarrow's null values,
    such as "NA", "N/A", "null" and "nan"; a label only where it is empty or, among numbers, a null value. There are at
    most 8 lanes, of one file or several. A single large file is shuffled one buffer at a time, and several workers
    cannot share it; Parquet files can be shared, and reading them is many times faster.

    Args:
        path: a file, a folder of `.csv`, `.csv.gz` and `.tsv` files, a pattern, or a list of these.
        target: the label column; None for prediction.
        features: the columns of X, in order; by default all but the target.
        delimiter: between two columns; by default found in the header.
        categorical_features: which columns are categories: "from_dtype" (text, true and false), None, or a mask, places
            or names; the levels of those are the text as it is written. `survey` finds the levels; until then their
            cells are NaN.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "flights.csv"
    >>> _ = path.write_text("distance,carrier,delay\\n300,X,none\\n1200,,short\\n")
    >>> from cavity.data import read_all
    >>> X, y = read_all(CSV(path, target="delay"))
    >>> X.tolist(), y.tolist()
    ([[300.0, 0.0], [1200.0, nan]], ['none', 'short'])
    """

    def __init__(
        self,
        path: Given,
        target: str | None = None,
        features: Names = None,
        *,
        delimiter: str | None = None,
        categorical_features: CategoricalFeatures = "from_dtype",
    ) -> None:
        table = CSVFiles(path, delimiter=delimiter)
        super().__init__("csv", table, target, features, categorical_features)
        self._csv = table
        self._lane_files = split_evenly([file.path.stat().st_size for file in self._files], MAX_LANES)
        self._counts: dict[int, int] = {}  # rows of the files that were read to the end
        self.lanes = len(self._lane_files)

    def batches(self, lane: int, seed: int | None, names: list[str]) -> Iterator[tuple[Any, int, File, int]]:
        files, target, pc = self._lane_files[lane], self._columns.target, arrow("pyarrow.compute")
        types = self._types(names)
        for i in permuted(files, seed):
            file, first, done = self._files[i], sum(self._count(k) for k in files if k < i), 0
            for batch in self._csv.stream(file, types, self.feature_names):
                if target is not None and arrow().types.is_string(types[target]):  # an empty cell is no label
                    place, cells = batch.schema.get_field_index(target), batch.column(target)
                    batch = batch.set_column(place, target, pc.if_else(pc.equal(cells, ""), None, cells))
                yield batch, first + done, file, done
                done += batch.num_rows
            self._counts[i] = done

    def _types(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the Arrow types to read these columns as, in their order."""
        columns = [Column(name) for name in self.feature_names] if self.schema is None else self.schema.columns
        chosen = chosen_places(self.categorical_features, self.feature_names) or ()
        found = self._csv.types(
            [replace(column, name=name) for column, name in zip(columns, self.feature_names, strict=True)],
            [self.feature_names[j] for j in chosen],
        )
        if self._columns.target is not None:
            found[self._columns.target] = column_type(self._table.schema(), self._columns.target, self._table.name)
        return {name: found[name] for name in names}

    def _count(self, i: int) -> int:
        if i not in self._counts:
            name = self._columns.names[-1]
            types = {name: arrow().string()}
            self._counts[i] = sum(batch.num_rows for batch in self._csv.stream(self._files[i], types))
        return self._counts[i]
