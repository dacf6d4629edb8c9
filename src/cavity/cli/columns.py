"""Which columns are features, which are left out and why."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.arrow import arrow, field, is_numeric

SHOWN = 12  # names in a message
LOOKED_AT = 1000  # cells of a column of text that may hold numbers


class Columns(NamedTuple):
    """The columns of X in their order, that of the labels, and those without numbers with what they hold instead."""

    features: list[str]
    target: str | None
    left_out: dict[str, str]

    @property
    def names(self) -> list[str]:
        """All that are read."""
        return self.features if self.target is None else [*self.features, self.target]


def choose(
    schema: Any, name: str, target: str | None, features: Sequence[str] | None = None, drop: Sequence[str] = ()
) -> Columns:
    """The columns asked for; where no features are named, all that hold numbers but the target.

    Args:
        schema: of Arrow.
        name: of the file, for messages.
        target: the column of labels, if they are needed.
        features: the columns of X, in this order; None for all that can be.
        drop: columns that are not looked at.
    """
    check_there(schema, name, [*([] if target is None else [target]), *(features or ()), *drop])
    rest = [column for column in schema.names if column not in (target, *drop)]
    held = {column: held_by(field(schema, column, name).type) for column in rest}
    left_out = {} if features is not None else {column: kind for column, kind in held.items() if kind != "numbers"}
    chosen = [column for column in rest if column not in left_out] if features is None else list(features)
    _check_features(chosen, held, target, name)
    return Columns(chosen, target, left_out)


def check_there(schema: Any, name: str, wanted: Iterable[str]) -> None:
    """Refuse names that no column has, or several have."""
    for column in wanted:
        if column not in schema.names:
            close = difflib.get_close_matches(column, schema.names, n=1)
            meant = f"is {close[0]!r} meant?" if close else f"there are {listed(schema.names)}"
            raise ValueError(f"{name}: there is no column {column!r}; {meant}")
        field(schema, column, name)


def _check_features(chosen: Sequence[str], held: dict[str, str], target: str | None, name: str) -> None:
    if not chosen:
        raise ValueError(f"{name}: no column of numbers is left to learn from{found(held)}")
    for column in chosen:
        if column not in held or chosen.count(column) > 1:
            raise ValueError(f"{name}: column {column!r} is named as a feature and again, as the target or otherwise; "
                             "each may be named once")  # fmt: skip
        if held[column] != "numbers":
            raise ValueError(f"{name}: column {column!r} holds {held[column]}; a feature must hold numbers: "
                             "turn it into numbers or leave it out")  # fmt: skip


def held_by(kind: Any) -> str:
    """What a column of this type holds, in a word; only numbers and truth values can be features."""
    types = arrow().types
    if is_numeric(kind):
        return "numbers"
    kind = kind.value_type if types.is_dictionary(kind) else kind
    words = {"nothing": types.is_null, "text": _is_text, "dates": _is_date, "times": types.is_temporal,
             "lists": types.is_nested, "bytes": _is_binary}  # fmt: skip
    return next((word for word, belongs in words.items() if belongs(kind)), str(kind))


def explained(columns: Columns, table: Any) -> dict[str, str]:
    """What is left out and why; of text that is mostly numbers the first cell that is none."""
    texts = [name for name, held in columns.left_out.items() if held == "text" and name in table.column_names]
    return columns.left_out | {name: _text(table.column(name)) for name in texts}


def counters(X: NDArray[np.float64], features: Sequence[str]) -> list[str]:
    """Features that only count the rows up."""
    if len(X) < 3:
        return []
    return [name for name, column in zip(features, X.T, strict=True) if (np.diff(column) == 1.0).all()]


def found(held: dict[str, str]) -> str:
    """The columns in parentheses, where there are any."""
    return f" ({', '.join(f'{name} holds {kind}' for name, kind in list(held.items())[:SHOWN])})" if held else ""


def listed(names: Sequence[Any]) -> str:
    """The first of them, and how many more there are.

    >>> listed(["a", "b"])
    'a, b'
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(str(name) for name in names[:SHOWN]) + more


def _text(column: Any) -> str:
    cells = [(row, cell) for row, cell in enumerate(column.slice(0, LOOKED_AT).to_pylist(), start=1) if cell]
    others = [(row, cell) for row, cell in cells if not _is_number(cell)]
    if 2 * len(others) >= len(cells):
        return "text"
    if not others:
        return "text that looks like numbers"
    return "text: row {} has {!r}".format(*others[0])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_text(kind: Any) -> bool:
    types = arrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_date(kind: Any) -> bool:
    types = arrow().types
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def _is_binary(kind: Any) -> bool:
    types = arrow().types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))
