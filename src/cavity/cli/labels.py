"""Labels as they stand in files: one type for all of them, and their places among the classes of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.cli.columns import held_by, listed
from cavity.data.arrow import arrow, labels

FEW = 20  # labels that are never too many


def read_labels(column: Any, name: str) -> NDArray[Any]:
    """A column without gaps as labels: whole numbers, truth values or text, whatever it holds.

    Args:
        column: of Arrow.
        name: of the file and the column, for messages.
    """
    pa, held = arrow(), held_by(column.type)
    if held in ("bytes", "lists"):
        raise ValueError(f"{name} holds {held}; one label a row is needed, text in UTF-8")
    column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column
    y = labels(column)
    if y.dtype.kind == "f" and (y == np.floor(y)).all():
        return y.astype(np.int64)
    if y.dtype.kind in "biuf":
        return y
    return np.array([str(label) for label in y.tolist()], dtype=str)


def check_labels(y: NDArray[Any], name: str) -> None:
    """Refuse what cannot be labels: amounts, a single one, one for nearly every row."""
    if y.dtype.kind == "f":
        amount = y[y != np.floor(y)][0]
        raise ValueError(
            f"{name} holds amounts such as {amount:g}; labels are needed: text, whole numbers or true/false"
        )
    distinct = np.unique(y)
    if len(distinct) < 2:
        raise ValueError(f"{name} holds one label only, {word(distinct[0])}; a classifier needs two or more")
    if len(distinct) > max(FEW, len(y) // 2):
        raise ValueError(f"{name} holds {len(distinct)} different labels in {len(y)} rows, such as "
                         f"{listed(distinct[:3].tolist())}; is this the column of labels?")  # fmt: skip


def word(label: Any) -> str:
    """A label as text, the same however a file stores it.

    >>> word(np.float64(3.0)), word(3), word("3"), word(np.True_)
    ('3', '3', '3', 'True')
    """
    label = label.item() if isinstance(label, np.generic) else label
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def places(y: NDArray[Any], classes: NDArray[Any], where: Callable[[int], str]) -> NDArray[np.int64]:
    """Where each label stands among the classes; one that is not there is named with its row.

    Args:
        y: labels.
        classes: those that the model knows.
        where: the place of the i-th row, in words.
    """
    known = {word(label): i for i, label in enumerate(classes)}
    distinct, inverse = np.unique(y, return_inverse=True)
    place = np.array([known.get(word(label), -1) for label in distinct], dtype=np.int64)[inverse.ravel()]
    if (place < 0).any():
        i = int((place < 0).argmax())
        raise ValueError(f"{where(i)}: the model does not know the label {word(y[i])!r}, but "
                         f"{listed(classes.tolist())}; leave such rows out, or fit anew")  # fmt: skip
    return place
