"""What the columns of a table hold, and their cells as numbers.

All rows travel through the package as one matrix of cells in float64: a number as it is, a level of a category as its
index among the levels, a date as seconds since 1970, a time as seconds since midnight. A missing cell is NaN, and so is
a level that the schema does not know. Only the encoding (`cavity.fitting.encoding`) turns cells into features.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import SHOWN, label_text, listed

Array = NDArray[np.float64]

NUMBER, CATEGORY, DATE, TIME, LEFT_OUT = "number", "category", "date", "time", "left out"
KINDS = (NUMBER, CATEGORY, DATE, TIME, LEFT_OUT)
UNKNOWN = -1.0  # the cell of an unknown level, where it must differ from a gap
MAX_LEVELS, MAX_LEVEL_TEXT = 100_000, 2**26  # of a category, and characters in all of them
IDENTIFIER_LEVELS, IDENTIFIER_SHARE = 20, 0.7  # more levels, and more per cell, mark an identifier or free text
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # in a second; dividing by them is exact for whole seconds
DAY = 86_400.0
MAX_NAME = 60  # characters of a cell in a message

NUMERIC = int | float | Decimal | np.number

CategoricalFeatures = Any  # "from_dtype", None, a mask, places or names


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its name, or its place where the table has no names.
        kind: "number", "category", "date", "time" or "left out".
        levels: of a category, sorted; None until they are found.
        reason: why the column is left out.
    """

    name: Any
    kind: str = NUMBER
    levels: tuple[str, ...] | None = None
    reason: str = ""

    @cached_property
    def places(self) -> dict[str, int]:
        """The index of each level."""
        return {level: k for k, level in enumerate(self.levels or ())}

    def describe(self) -> str:
        """Say what the column holds, in a few words."""
        if self.kind == CATEGORY:
            return f"category of {len(self.levels or ())} level{'s' * (len(self.levels or ()) != 1)}"
        return f"left out ({self.reason})" if self.kind == LEFT_OUT else self.kind


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in order."""

    columns: tuple[Column, ...]

    @property
    def is_numeric(self) -> bool:
        """Whether every column holds numbers."""
        return all(column.kind == NUMBER for column in self.columns)

    @property
    def has_unknown_levels(self) -> bool:
        """Whether levels have yet to be found."""
        return any(column.kind == CATEGORY and column.levels is None for column in self.columns)

    @property
    def categories(self) -> list[int]:
        """The places of the categories."""
        return [j for j, column in enumerate(self.columns) if column.kind == CATEGORY]

    def fingerprint(self) -> dict[str, Any]:
        """Identify the columns, as JSON values; the levels by a digest."""
        digest = hashlib.blake2b(digest_size=16)
        for column in self.columns:
            for text in (repr(column.name), column.kind, *(column.levels or ())):
                digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))
        return {"columns": [column.kind for column in self.columns], "levels": digest.hexdigest()}

    def read(self, table: Any, name: str = "X", first: int = 0, unknown: float = np.nan) -> Array:
        """Return the cells of a table, (N, D).

        Args:
            table: a frame of any library, an Arrow table or batch, an array or a list of rows, with these columns.
            name: of the table in messages.
            first: the number of its first row.
            unknown: the cell of a level that the schema does not know.
        """
        return self.read_counted(table, name, first, unknown)[0]

    def read_counted(
        self, table: Any, name: str = "X", first: int = 0, unknown: float = np.nan
    ) -> tuple[Array, dict[Any, Counter[str]]]:
        """Return the cells, and how often each unknown level occurs in a column that has some."""
        columns = table_columns(table, name)
        if len(columns) != len(self.columns):
            raise ValueError(f"{name} must have {len(self.columns)} columns, got {len(columns)}")
        n_rows = len(columns[0][1]) if columns else 0
        X, new = np.zeros((n_rows, len(columns))), dict[Any, Counter[str]]()
        for j, (column, (label, values)) in enumerate(zip(self.columns, columns, strict=True)):
            where = f"{name}: column {label!r}"
            if column.kind == CATEGORY:
                X[:, j], found = _level_indices(values, column.places, where, unknown)
                if found:
                    new[label] = found
            elif column.kind != LEFT_OUT:
                X[:, j] = _numbers(values, column.kind, where, first)
        return X, new

    def decode(self, cells: Array) -> NDArray[Any]:
        """Return the cells as the table has them: levels as text, dates as `datetime`, None where a cell is missing."""
        found = np.array(cells, dtype=object).reshape(-1, len(self.columns))
        for j, column in enumerate(self.columns):
            found[:, j] = [None if x != x else _value(column, x) for x in cells[..., j].ravel().tolist()]
        return found.reshape(cells.shape)


def _value(column: Column, x: float) -> Any:
    if column.kind == CATEGORY:
        return (column.levels or ())[int(x)]
    if column.kind == DATE:
        try:
            return datetime(1970, 1, 1) + timedelta(seconds=x)
        except OverflowError:
            return None
    if column.kind == TIME:
        return (datetime(1970, 1, 1) + timedelta(seconds=x % DAY)).time()
    return None if column.kind == LEFT_OUT else x


# --- Finding the columns ---


def needs_schema(table: Any, categorical: CategoricalFeatures = "from_dtype") -> bool:
    """Whether a table can hold anything but numbers, by its types or by `categorical`; False for what is no table."""
    if hasattr(table, "tocsr") or len(getattr(table, "shape", (0, 0))) != 2:
        return False
    if categorical is not None and not _is_from_dtype(categorical):
        return True
    if hasattr(table, "detach"):
        return False
    if hasattr(table, "iloc"):
        return any(not isinstance(dtype, np.dtype) or dtype.kind not in "iuf" for dtype in table.dtypes)
    if hasattr(table, "to_arrow") or hasattr(table, "schema"):
        return any(not _is_plain(values) for _, values in table_columns(table, "X"))
    try:
        found = np.asarray(table)
    except ValueError:  # rows of different lengths
        return False
    return found.ndim == 2 and found.dtype.kind in "OUSMm"


def number_schema(names: Iterable[Any]) -> Schema:
    """Return the schema of a table of numbers."""
    return Schema(tuple(map(Column, names)))


def find_schema(table: Any, categorical: CategoricalFeatures = "from_dtype", name: str = "X") -> Schema:
    """Find what each column of a table holds, with the levels of its categories.

    Args:
        table: a frame of any library, an Arrow table, an array or a list of rows.
        categorical: which columns are categories: "from_dtype" (text, categories and booleans), None, a mask, places or
            names.
        name: of the table in messages.
    """
    columns = table_columns(table, name)
    schema, named = column_kinds(columns, categorical, name)
    found = list(schema.columns)
    for j, ((label, values), column) in enumerate(zip(columns, schema.columns, strict=True)):
        if column.kind == CATEGORY:
            counts = count_levels(values, f"{name}: column {label!r}")
            found[j] = with_levels(column, counts, sum(counts.values()), j in named)
        elif _null_count(values) == len(values) and len(values):
            found[j] = replace(column, kind=LEFT_OUT, reason="every value is missing")
    return Schema(tuple(found))


def kinds_of(table: Any, categorical: CategoricalFeatures, name: str = "X") -> Schema | None:
    """Return what the columns of a table hold, levels not found yet; None where all hold numbers."""
    table = as_array(table) if hasattr(table, "detach") else table
    if not needs_schema(table, categorical):
        return None
    kinds, _ = column_kinds(table_columns(table, name), categorical, name)
    return None if kinds.is_numeric else kinds


def joint_kinds(one: Schema | None, other: Schema | None) -> Schema | None:
    """Return what the columns of both parts of a table hold: categories if any part has text."""
    if one is None or other is None:
        return one or other
    order = (NUMBER, TIME, DATE, CATEGORY)
    pairs = zip(one.columns, other.columns, strict=True)
    return Schema(tuple(max(pair, key=lambda column: order.index(column.kind)) for pair in pairs))


def column_kinds(
    columns: Sequence[tuple[Any, Any]], categorical: CategoricalFeatures, name: str = "X"
) -> tuple[Schema, set[Any]]:
    """Return what columns hold by their types, levels not found yet, and the places that the user named."""
    chosen = chosen_places(categorical, [label for label, _ in columns])
    kinds = []
    for j, (label, values) in enumerate(columns):
        kind = _kind_of(values)
        where = f"{name}: column {label!r}"
        if chosen is None:
            kind = kind if kind != CATEGORY or _is_from_dtype(categorical) else NUMBER
        elif j in chosen:
            kind = CATEGORY
        elif kind == CATEGORY and _is_text(values):
            raise ValueError(
                f"{where} holds text; name it in categorical_features, or use categorical_features='from_dtype'"
            )
        else:
            kind = NUMBER if kind == CATEGORY else kind
        kinds.append(Column(label, kind))
    return Schema(tuple(kinds)), chosen or set()


def with_levels(column: Column, counts: Counter[str], n_cells: int, is_named: bool = False) -> Column:
    """Return the column with its levels.

    Where the levels are nearly as many as the cells, they are numbers written as text, or they identify the rows: such
    a column is left out, unless the user named it.
    """
    levels = tuple(sorted(counts))
    if not levels:
        return replace(column, kind=LEFT_OUT, reason="every value is missing")
    if has_too_many_levels(counts):
        return too_many_levels(column)
    if not is_named and len(levels) > max(IDENTIFIER_LEVELS, IDENTIFIER_SHARE * n_cells):
        if all(map(_is_number, levels)):
            return replace(column, kind=NUMBER)
        return replace(column, kind=LEFT_OUT, reason=f"text with {len(levels):,} different values in {n_cells:,} rows")
    return replace(column, levels=levels)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def has_too_many_levels(counts: Counter[str]) -> bool:
    """Whether a column has more levels, or longer ones, than a category can have."""
    return len(counts) > MAX_LEVELS or sum(map(len, counts)) > MAX_LEVEL_TEXT


def too_many_levels(column: Column) -> Column:
    """Return the column as one that is left out because of its levels."""
    reason = f"text with more than {MAX_LEVELS:,} different values, or {MAX_LEVEL_TEXT:,} characters in them"
    return replace(column, kind=LEFT_OUT, levels=None, reason=reason)


def chosen_places(categorical: CategoricalFeatures, names: Sequence[Any]) -> set[int] | None:
    """Return the places of the columns that `categorical_features` names; None for "from_dtype" and None."""
    if categorical is None or _is_from_dtype(categorical):
        return None
    accepted = "categorical_features must be 'from_dtype', None, a mask, or places or names of columns"
    given = np.asarray(categorical)
    if given.ndim != 1:
        raise ValueError(f"{accepted}, got {categorical!r}")
    if not given.size:
        return set()
    if given.dtype.kind == "b":
        if len(given) != len(names):
            raise ValueError(f"{accepted}; the mask must have {len(names)} entries, got {len(given)}")
        return set(np.flatnonzero(given).tolist())
    if given.dtype.kind in "iu":
        if bad := [int(k) for k in given if not -len(names) <= k < len(names)]:
            raise ValueError(f"{accepted}; places must be below {len(names)}, the number of columns, got {bad[0]}")
        return {int(k) % len(names) for k in given}
    places = {label: j for j, label in enumerate(names)}
    if unknown := [one for one in given.tolist() if one not in places]:
        raise ValueError(f"{accepted}; X has no column {unknown[0]!r}, its columns are {listed(list(places))}")
    return {places[one] for one in given.tolist()}


def _is_from_dtype(categorical: Any) -> bool:
    return isinstance(categorical, str) and categorical == "from_dtype"


# --- Columns of any table ---


class Cells(NamedTuple):
    """A column of Python objects of several types, which no Arrow type fits."""

    values: list[Any]

    def __len__(self) -> int:
        return len(self.values)


def table_columns(table: Any, name: str) -> list[tuple[Any, Any]]:
    """Return the name, or else the place, and the values of each column, as Arrow arrays or `Cells`."""
    pa = import_module("pyarrow")
    if isinstance(table, pa.Table | pa.RecordBatch):
        return [(label, _chunk(table.column(j))) for j, label in enumerate(table.schema.names)]
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        return [(label, _from_pandas(table.iloc[:, j])) for j, label in enumerate(table.columns)]
    if hasattr(table, "to_arrow"):
        return table_columns(table.to_arrow(), name)
    if hasattr(table, "detach"):
        table = as_array(table)
    X = table if isinstance(table, np.ndarray) else object_array(table, name)
    if X.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, got the shape {X.shape}")
    return [(j, _to_arrow(X[:, j])) for j in range(X.shape[1])]


def as_array(values: Any) -> NDArray[Any]:
    """Convert anything array-like to NumPy; tensors on any device too."""
    if hasattr(values, "detach"):  # a tensor; torch itself is not imported here because it is slow to start
        values = values.detach().cpu()
        return np.asarray((values.double() if values.is_floating_point() else values).numpy())
    return np.asarray(values)


def column_names(table: Any) -> list[str] | None:
    """Return the names of the columns; None where a table has none, or some that are not text."""
    names = list(getattr(table, "column_names", getattr(table, "columns", ())))
    return names if names and all(isinstance(name, str) for name in names) else None


def object_array(table: Any, name: str) -> NDArray[Any]:
    """Return a list of rows as an array of objects."""
    rows = [row if isinstance(row, str) or not np.iterable(row) else list(row) for row in table]
    if not all(isinstance(row, list) for row in rows):
        raise ValueError(f"{name} must have two dimensions, got the shape ({len(rows)},)")
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"{name} must have rows of one length")
    found = np.empty((len(rows), len(rows[0]) if rows else 0), dtype=object)
    for i, row in enumerate(rows):
        found[i] = row
    return found


def _from_pandas(series: Any) -> Any:
    pa, kind = import_module("pyarrow"), str(series.dtype)
    if kind.startswith("period"):
        series = series.dt.to_timestamp()
    elif kind == "category":
        codes, texts = series.cat.codes.to_numpy(), [_text(level) for level in series.cat.categories.tolist()]
        try:
            return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(texts, pa.string()))
        except UnicodeEncodeError:  # lone surrogates
            return Cells([None if k < 0 else texts[k] for k in codes.tolist()])
    elif kind.startswith("interval"):
        series = series.astype(str).where(series.notna())
    if series.dtype == object:
        return _to_arrow(series.to_numpy())
    try:
        return _chunk(pa.array(series, from_pandas=True))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError):
        return _to_arrow(np.asarray(series, dtype=object))


def _to_arrow(values: NDArray[Any]) -> Any:
    pa, kind = import_module("pyarrow"), values.dtype.kind
    if kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    if kind in "US":
        return pa.array(values.tolist(), pa.string())
    if kind == "c":
        raise ValueError("Complex data not supported")
    if kind == "f" and values.dtype.itemsize > 8:
        values = values.astype(np.float64)
    if kind in "Mm" and np.datetime_data(values.dtype)[0] not in UNITS:  # days, hours, …
        values = values.astype(f"{kind}8[s]")
    if kind != "O":
        return pa.array(np.ascontiguousarray(values), from_pandas=True)
    cells = [None if is_missing(cell) else cell for cell in values.tolist()]
    families = {_family(type_) for type_ in {type(cell) for cell in cells if cell is not None}}
    try:
        return Cells(cells) if len(families) > 1 else _chunk(pa.array(cells, from_pandas=True))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError):
        return Cells(cells)


def _family(type_: type) -> Any:
    """Return what a type of cells is: Arrow would read the number among dates as a date."""
    families = (str, bool | np.bool_, datetime | np.datetime64, date, timedelta | np.timedelta64, NUMERIC)
    return next((family for family in families if issubclass(type_, family)), type_)


def _chunk(values: Any) -> Any:
    return values.combine_chunks() if hasattr(values, "combine_chunks") else values


def is_missing(cell: Any) -> bool:
    """Whether a cell or label is None, NaN, pandas' NA or NaT."""
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return bool(np.isnat(cell))
    if isinstance(cell, Decimal):
        return cell.is_nan()
    return (
        cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and bool(cell != cell))
    )


def _kind_of(values: Any) -> str:
    """Return the kind of a column by its type."""
    if isinstance(values, Cells):
        known = [cell for cell in values.values if cell is not None]
        return CATEGORY if _is_text(values) else DATE if all(isinstance(cell, date) for cell in known) else NUMBER
    types = import_module("pyarrow").types
    kind = values.type
    if types.is_dictionary(kind) or types.is_boolean(kind) or _is_text(values):
        return CATEGORY
    if types.is_timestamp(kind) or types.is_date(kind):
        return DATE
    return TIME if types.is_time(kind) else NUMBER


def _is_plain(values: Any) -> bool:
    """Whether a column is of a type of numbers."""
    types = import_module("pyarrow").types
    return not isinstance(values, Cells) and (types.is_integer(values.type) or types.is_floating(values.type))


def _is_text(values: Any) -> bool:
    if isinstance(values, Cells):
        return any(isinstance(cell, str) for cell in values.values)
    types, kind = import_module("pyarrow").types, values.type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view))


def _null_count(values: Any) -> int:
    if isinstance(values, Cells):
        return sum(cell is None for cell in values.values)
    compute = import_module("pyarrow.compute")
    return int(compute.sum(compute.is_null(values, nan_is_null=True)).as_py() or 0)


# --- Values ---


def _text(cell: Any) -> str:
    """Return the level of a cell: the same for 3, 3.0 and "3"."""
    return label_text(cell)


def _encoded(values: Any, where: str) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct levels of a column, and the index of each cell among them; -1 where a cell is missing."""
    pa = import_module("pyarrow")
    if isinstance(values, Cells):
        for i, cell in enumerate(values.values):
            if not (cell is None or isinstance(cell, str | NUMERIC | date | time | np.generic)):
                raise TypeError(
                    f"{where} must hold text or numbers, got {type(cell).__name__} in row {i}. Convert it or leave it "
                    "out (float() argument must be a string or a real number)"
                )
        texts = [None if cell is None else _text(cell) for cell in values.values]
        places: dict[str, int] = {}
        index = [-1 if text is None else places.setdefault(text, len(places)) for text in texts]
        return list(places), np.array(index, dtype=np.int64)
    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        raise TypeError(f"{where} must hold text or numbers, got {values.type}. Convert it or leave it out")
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    texts = [None if is_missing(cell) else _text(cell) for cell in encoded.dictionary.to_pylist()]
    places = {}
    index = [-1 if text is None else places.setdefault(text, len(places)) for text in texts]  # 3 and 3.0 are one level
    codes = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return list(places), np.array([*index, -1], dtype=np.int64)[codes]


def count_levels(values: Any, where: str = "X") -> Counter[str]:
    """Count the levels of a column; missing cells do not count."""
    levels, index = _encoded(values, where)
    counts = np.bincount(index[index >= 0], minlength=len(levels))
    return Counter({level: int(n) for level, n in zip(levels, counts, strict=True) if n})


def _level_indices(values: Any, places: dict[str, int], where: str, unknown: float) -> tuple[Array, Counter[str]]:
    """Return the index of each cell among the levels, NaN where it is missing; and the levels that are unknown."""
    found, index = _encoded(values, where)
    known = np.array([*(places.get(level, unknown) for level in found), np.nan])
    new = [k for k, level in enumerate(found) if level not in places]
    counts = np.bincount(index[index >= 0], minlength=len(found)) if new else ()
    return known[index], Counter({found[k]: int(counts[k]) for k in new if counts[k]})


def _numbers(values: Any, kind: str, where: str, first: int) -> Array:
    """Return the cells of a column of numbers, dates or times; NaN where they are missing."""
    pa = import_module("pyarrow")
    if _null_count(values) == len(values):  # their type says nothing
        return np.full(len(values), np.nan)
    if isinstance(values, Cells):
        found = np.array([_cell_number(cell, kind, where, first + i) for i, cell in enumerate(values.values)])
    else:
        found = _arrow_numbers(values, kind, where, first, pa)
    if (bad := np.isinf(found)).any():
        i = int(bad.argmax())
        raise ValueError(f"{where} must be finite, got {found[i]} in row {first + i}. Replace the value or remove the "
                         "row")  # fmt: skip
    return found


def _arrow_numbers(values: Any, kind: str, where: str, first: int, pa: Any) -> Array:
    types, type_ = pa.types, values.type
    if types.is_dictionary(type_):
        values, type_ = values.dictionary_decode(), type_.value_type
    if kind in (DATE, TIME):
        is_right = types.is_timestamp(type_) or types.is_date(type_) if kind == DATE else types.is_time(type_)
        if not is_right and kind == DATE and _is_text(values):
            try:
                values = values.cast(pa.timestamp("us"))
                type_, is_right = values.type, True
            except pa.ArrowInvalid:
                is_right = False
        if not is_right:
            raise TypeError(
                f"{where} must hold {kind}s, as in training, got {type_}, such as {_example(values, first)}"
            )
        wide = pa.int32() if types.is_date32(type_) or types.is_time32(type_) else pa.int64()
        found = _floats(values.view(wide), pa)
        if types.is_date32(type_):
            return found * DAY
        return found / UNITS["ms" if types.is_date64(type_) else type_.unit]
    if types.is_duration(type_):
        return _floats(values.view(pa.int64()), pa) / UNITS[type_.unit]
    if _is_text(values):
        return np.array([_cell_number(cell, kind, where, first + i) for i, cell in enumerate(values.to_pylist())])
    if not (types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_) or types.is_boolean(type_)):
        what = "dates or times" if types.is_temporal(type_) else str(type_)
        raise TypeError(
            f"{where} must hold numbers, got {what}, such as {_example(values, first)}. Convert it to numbers or leave "
            "it out (float() argument must be a string or a real number)"
        )
    return _floats(values, pa)


def _floats(values: Any, pa: Any) -> Array:
    found = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.where(np.isnan(found), np.nan, found)  # one NaN: rows are compared by their bits


def _cell_number(cell: Any, kind: str, where: str, row: int) -> float:
    if cell is None or is_missing(cell):
        return np.nan
    if kind == DATE and isinstance(cell, date):
        moment = cell if isinstance(cell, datetime) else datetime(cell.year, cell.month, cell.day)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if kind == NUMBER and isinstance(cell, str | NUMERIC | np.bool_):
        try:
            return float(cell)
        except (ValueError, OverflowError):
            pass
    shown = repr(cell) if len(repr(cell)) <= MAX_NAME else repr(cell)[: MAX_NAME - 1] + "…"
    kinds = {NUMBER: "numbers", DATE: "dates", TIME: "times"}
    error = ValueError if isinstance(cell, str | NUMERIC) else TypeError
    raise error(
        f"{where} must hold {kinds[kind]}, got {shown} in row {row}. Correct the value, leave it empty, or name the "
        "column in categorical_features (float() argument must be a string or a real number)"
    )


def _example(values: Any, first: int) -> str:
    cells = ((first + i, cell) for i, cell in enumerate(values.to_pylist()) if cell is not None)
    return next((f"{cell!r} in row {row}" for row, cell in cells), "nothing")


def describe_left_out(schema: Schema) -> str:
    """List the columns that are left out, with the reason; "" for none."""
    found = [f"{column.name!r} ({column.reason})" for column in schema.columns if column.kind == LEFT_OUT]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
