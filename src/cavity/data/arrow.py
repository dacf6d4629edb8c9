"""Columns of Arrow tables: which of them are features, and their values as NumPy arrays."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Columns(NamedTuple):
    """Which columns are read, and which are not because they hold no numbers."""

    features: list[str]
    target: str | None
    ignored: list[str]

    @property
    def names(self) -> list[str]:
        """All that are read."""
        return self.features if self.target is None else [*self.features, self.target]


def arrow(module: str = "pyarrow") -> Any:
    """A module of pyarrow, which takes a while to import: where a file is read, and not before."""
    return importlib.import_module(module)


def choose(schema: Any, target: str | None, features: Sequence[str] | None, file: str) -> Columns:
    """The columns asked for; where no features are named, all that hold numbers but the target."""
    if isinstance(features, str):
        raise TypeError(f"features={features!r} is a single name; a list of names is needed")
    others = [name for name in schema.names if name != target]
    numeric = [name for name in others if is_numeric(field(schema, name, file).type)]
    chosen = numeric if features is None else list(features)
    if not chosen or target in chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"features={features!r} leaves {chosen} for X; at least one column that holds numbers is "
                         f"needed, each once, and the target {target!r} not among them")  # fmt: skip
    columns = Columns(chosen, target, [name for name in others if name not in numeric])
    check(schema, columns, file)
    return columns


def check(schema: Any, columns: Columns, file: str) -> None:
    """Refuse a file that lacks a column, or has something else in it than numbers, or than one label a row."""
    for name in columns.features:
        if not is_numeric(found := field(schema, name, file).type):
            raise ValueError(f"{file}: feature {name!r} is of type {found}; numbers are needed: leave it out of "
                             "features or turn it into numbers")  # fmt: skip
    if columns.target is not None and arrow().types.is_nested(found := field(schema, columns.target, file).type):
        raise ValueError(f"{file}: the target {columns.target!r} is of type {found}; one label a row is needed")


def field(schema: Any, name: str, file: str) -> Any:
    """The column of this name."""
    places = schema.get_all_field_indices(name)
    if len(places) != 1:
        count = "no column" if not places else f"{len(places)} columns"
        raise ValueError(f"{file}: there is {count} {name!r}; one is needed, and there are {schema.names}")
    return schema.field(places[0])


def is_numeric(kind: Any) -> bool:
    """Whether a column of this type can be a feature: numbers, decimals and booleans; a category is what it holds."""
    types = arrow().types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def label_kind(kind: Any) -> str:
    """What labels are, in a word: those of two files must be the same."""
    types = arrow().types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    families = {"integer": types.is_integer, "floating": types.is_floating, "string": _is_text}
    return next((name for name, belongs in families.items() if belongs(kind)), str(kind))


def numbers(batch: Any, features: Sequence[str]) -> Array:
    """Columns of a batch side by side, (n, D); what is null becomes NaN."""
    X = np.empty((batch.num_rows, len(features)))
    for j, name in enumerate(features):
        X[:, j] = _number_column(batch.column(name))
    return X


def labels(column: Any) -> NDArray[Any]:
    """A column as labels; what is null becomes None."""
    types = arrow().types
    column = column.dictionary_decode() if types.is_dictionary(column.type) else column
    if column.null_count:
        return _objects(column.to_pylist())
    if not (_is_text(column.type) or types.is_decimal(column.type) or types.is_fixed_size_binary(column.type)):
        return column.to_numpy(zero_copy_only=False)
    coded = column.dictionary_encode()  # an object for each label there is, not for each row
    return _objects(coded.dictionary.to_pylist())[coded.indices.to_numpy()]


def _number_column(column: Any) -> NDArray[Any]:
    types = arrow().types
    column = column.dictionary_decode() if types.is_dictionary(column.type) else column
    if column.null_count or types.is_decimal(column.type):
        column = column.cast(arrow().float64(), safe=False)
    return column.to_numpy(zero_copy_only=False)


def _objects(values: list[Any]) -> NDArray[Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _is_text(kind: Any) -> bool:
    types = arrow().types
    belongs = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
    return any(is_one(kind) for is_one in belongs)
