"""Rows read from files: numbers, labels, and what to do about gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from cavity.cli.columns import Columns, check_there, choose, held_by
from cavity.cli.files import Data, schema
from cavity.cli.labels import read_labels
from cavity.data.arrow import arrow, field, numbers
from cavity.data.csv_stream import Stream
from cavity.data.row_groups import opened
from cavity.data.source import block_rows

Array = NDArray[np.float64]

REMEDY = "fill it in, or leave such rows out with --drop-missing"


class Rows(NamedTuple):
    """Rows in memory.

    Attributes:
        X: inputs, (N, D), all finite.
        y: labels; None where there are none.
        features: the names of the columns of X.
        numbers: of each row in its files, from 1.
        dropped: how many rows were left out for their gaps.
    """

    X: Array
    y: NDArray[Any] | None
    features: list[str]
    numbers: NDArray[np.int64]
    dropped: int = 0

    def take(self, where: NDArray[Any]) -> Rows:
        """Some of them."""
        y = None if self.y is None else self.y[where]
        return self._replace(X=self.X[where], y=y, numbers=self.numbers[where])


class Batch(NamedTuple):
    """Some rows to predict for: their inputs, the columns to copy, how many were left out for their gaps."""

    X: Array
    kept: dict[str, Any]
    dropped: int


def read_rows(data: Data, table: Any, columns: Columns, drop_missing: bool) -> Rows:
    """Inputs and labels of a whole table; a gap is refused and named, unless such rows are to be left out."""
    X = _inputs(table, columns.features)
    has_gap = np.isnan(X).any(1)
    if columns.target is not None:
        has_gap |= _is_missing(table.column(columns.target))
    places = np.arange(1, len(X) + 1)
    if has_gap.any() and not drop_missing:
        _refuse_gap(X, int(has_gap.argmax()), columns, data.name, places, int(has_gap.sum()))
    kept = np.flatnonzero(~has_gap)
    if not len(kept):
        raise ValueError(f"{data.name}: no row is left" if len(X) else f"{data.name} has no rows")
    y = None if columns.target is None else _labels(data, table, columns.target, kept)
    return checked_finite(Rows(X[kept], y, columns.features, places[kept], int(has_gap.sum())), data.name)


def checked_finite(rows: Rows, name: str) -> Rows:
    """The rows themselves; an infinite number is refused and named."""
    finite = np.isfinite(rows.X)
    if not finite.all():
        i, j = (int(k) for k in np.argwhere(~finite)[0])
        raise ValueError(f"{name}: column {rows.features[j]!r} is infinite in row {rows.numbers[i]}; "
                         "put a number in its place or leave the row out")  # fmt: skip
    return rows


def frame(X: Array, features: Sequence[str] | None) -> Any:
    """Inputs with their names, as the classifier wants them; a plain array where it has none."""
    if features is None:
        return X
    return arrow().table({name: X[:, j] for j, name in enumerate(features)})


def batches(data: Data, features: Sequence[str], keep: Sequence[str], drop_missing: bool) -> Iterator[Batch]:
    """The rows of all files, some at a time; memory does not grow with the files."""
    done = 0
    for table in _arrow_batches(data, features, keep):
        X, places = numbers(table, features), np.arange(done + 1, done + table.num_rows + 1)
        has_gap = np.isnan(X).any(1)
        if has_gap.any() and not drop_missing:
            _refuse_gap(X, int(has_gap.argmax()), Columns(list(features), None, {}), data.name, places, 1)
        kept = np.flatnonzero(~has_gap)
        checked_finite(Rows(X[kept], None, list(features), places[kept]), data.name)
        chosen = table.take(arrow().array(kept)) if has_gap.any() else table
        yield Batch(X[kept], {name: chosen.column(name) for name in keep}, int(has_gap.sum()))
        done += table.num_rows


def model_columns(data: Data, found: Any, names: Sequence[str] | None, n_features: int, target: str | None) -> Columns:
    """The columns that a model wants: by their names where it has any, else all of numbers but the target.

    Args:
        data: for messages.
        found: the schema of the files.
        names: of the model's features.
        n_features: how many it has.
        target: the column of labels, which is not among the features.
    """
    if names is not None:
        _check_features_there(data, found, names)
        return choose(found, data.name, target, names)
    is_there = target is not None and target in found.names
    columns = choose(found, data.name, target if is_there else None)
    if len(columns.features) != n_features:
        raise ValueError(f"{data.name}: there are {len(columns.features)} columns of numbers, and the model wants "
                         f"{n_features}, whose names it does not know: give just these, in their order")  # fmt: skip
    return columns


def _check_features_there(data: Data, found: Any, names: Sequence[str]) -> None:
    lacking = [name for name in names if name not in found.names]
    if len(lacking) > 1:
        raise ValueError(f"{data.name}: {len(lacking)} of the {len(names)} columns that the model has learned from are "
                         f"not there, such as {lacking[0]!r} and {lacking[1]!r}")  # fmt: skip
    check_there(found, data.name, lacking)


def _inputs(table: Any, features: Sequence[str]) -> Array:
    parts = [numbers(batch, features) for batch in table.to_batches()]
    return np.concatenate(parts) if parts else np.empty((0, len(features)))


def _labels(data: Data, table: Any, target: str, kept: NDArray[np.int64]) -> NDArray[Any]:
    return read_labels(table.column(target).take(arrow().array(kept)), f"{data.name}: column {target!r}")


def _is_missing(column: Any) -> NDArray[np.bool_]:
    """Null, no number, or an empty cell."""
    compute, is_text = arrow("pyarrow.compute"), held_by(column.type) == "text"
    is_null = np.asarray(compute.is_null(column, nan_is_null=True))
    if not is_text:
        return is_null
    text = column.cast(arrow().string())
    return is_null | np.asarray(compute.fill_null(compute.equal(text, ""), True))


def _refuse_gap(X: Array, i: int, columns: Columns, name: str, places: NDArray[np.int64], count: int) -> NoReturn:
    gaps = np.flatnonzero(np.isnan(X[i]))
    column = columns.features[gaps[0]] if len(gaps) else columns.target
    more = f" ({count} rows have gaps)" if count > 1 else ""
    raise ValueError(f"{name}: column {column!r} has no value in row {places[i]}{more}; {REMEDY}")


def _arrow_batches(data: Data, features: Sequence[str], keep: Sequence[str]) -> Iterator[Any]:
    size = block_rows(len(features), 1)
    types = _csv_types(data, features, keep) if data.is_csv else {}
    for file in data.files:
        if data.is_csv:
            yield from Stream(data.delimiter, types).batches(file)
        else:
            with opened(file) as found:
                check_there(found.schema_arrow, file.name, [*features, *keep])
                yield from found.iter_batches(size, columns=list(dict.fromkeys([*features, *keep])))


def _csv_types(data: Data, features: Sequence[str], keep: Sequence[str]) -> dict[str, Any]:
    """Features as the numbers or truth values they begin with; what is copied stays text, as it stands there."""
    pa, found = arrow(), schema(data)
    truth = [name for name in features if pa.types.is_boolean(field(found, name, data.name).type)]
    return dict.fromkeys(keep, pa.string()) | dict.fromkeys(features, pa.float64()) | dict.fromkeys(truth, pa.bool_())
