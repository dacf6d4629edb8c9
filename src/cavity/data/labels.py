"""Labels of any type: their distinct values, their counts, and their indices into the classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CLASSES = 100_000
SHOWN = 12  # values in a message
FAMILIES = {"b": "numbers", "i": "numbers", "u": "numbers", "f": "numbers", "U": "strings"}


def plain(label: Any) -> Any:
    """Convert a label to a value that JSON can store."""
    label = label.item() if isinstance(label, np.generic) else label
    return label if isinstance(label, str | int | float) else str(label)


def label_text(label: Any) -> str:
    """Convert a label to text that does not depend on the type in which a file stores it.

    >>> label_text(np.float64(3.0)), label_text(3), label_text("3"), label_text(np.True_)
    ('3', '3', '3', 'True')
    """
    label = plain(label)
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def listed(values: Sequence[Any] | NDArray[Any]) -> str:
    """Join the first values for a message.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(repr(plain(value)) for value in values[:SHOWN]) + more


def concat_labels(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate labels; numbers and strings do not mix, because NumPy would turn the numbers into strings."""
    if len({part.dtype for part in parts}) > 1:
        families = {FAMILIES.get(part.dtype.kind, str(part.dtype)) for part in parts if part.dtype.kind != "O"}
        if len(families) > 1:
            raise TypeError(f"Labels must all have one type, got {' and '.join(sorted(families))}.")
    return np.concatenate(parts)


def distinct(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Find the distinct labels, sorted, the index of each label among them, and their counts."""
    try:
        classes, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    except TypeError:
        types = sorted({type(label).__name__ for label in labels.tolist()})
        raise TypeError(f"Labels must all have one type, got {' and '.join(types)}.") from None
    return classes, index.ravel(), counts


def find_labels(y: NDArray[Any], classes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Find the index of each label in the sorted classes, and whether it is one of them."""
    if not len(y) or not len(classes):
        return np.zeros(len(y), dtype=np.int64), np.zeros(len(y), dtype=bool)
    concat_labels([y[:1], classes[:1]])  # raises where the types do not mix
    try:
        index = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    except TypeError:  # objects that cannot be compared
        places = {label: i for i, label in enumerate(classes.tolist())}
        index = np.array([places.get(label, 0) for label in y.tolist()], dtype=np.int64)
    return index, np.asarray(classes[index] == y, dtype=bool)


def encode(
    y: NDArray[Any], classes: NDArray[Any], where: Callable[[int], str] = "y, row {}".format, *, as_text: bool = False
) -> NDArray[np.int64]:
    """Return the index of each label in the classes.

    Args:
        y: labels, (n,).
        classes: the labels allowed, sorted, (C,).
        where: names the place of the i-th label in an error message.
        as_text: compare by `label_text`, so that 3, 3.0 and "3" are equal, as the same label in different files may be.

    Raises:
        ValueError: a label is not one of the classes.

    >>> encode(np.array(["b", "a"]), np.array(["a", "b"])).tolist()
    [1, 0]
    """
    if as_text:
        found, position, _ = distinct(y)
        texts = np.array([label_text(label) for label in classes])
        order = np.argsort(texts)
        index, known = find_labels(np.array([label_text(label) for label in found]), texts[order])
        index, known = order[index][position], known[position]
    else:
        index, known = find_labels(y, classes)
    if not known.all():
        i = int(known.argmin())
        raise ValueError(f"{where(i)}: label {plain(y[i])!r} is not one of the classes {listed(classes)}; "
                         "remove the row, or fit with all classes")  # fmt: skip
    return index


class LabelCounts:
    """Counts of each label, block by block; `classes` are the labels allowed, sorted, and None allows any."""

    def __init__(self, classes: NDArray[Any] | None = None) -> None:
        self._is_fixed = classes is not None
        self.classes = np.empty(0, dtype=object) if classes is None else classes
        self.counts = np.zeros(len(self.classes), dtype=np.int64)

    def add(self, y: NDArray[Any], where: Callable[[int], str]) -> None:
        """Count labels; `where` names the place of the i-th in an error message."""
        if self._is_fixed:
            self.counts += np.bincount(encode(y, self.classes, where), minlength=len(self.classes))
        else:
            classes, _, counts = distinct(y)
            self.merge(classes, counts)

    def merge(self, classes: NDArray[Any], counts: NDArray[np.int64]) -> None:
        """Add the counts of other rows."""
        if not len(classes):
            return
        if len(self.classes):
            classes, counts = concat_labels([self.classes, classes]), np.concatenate([self.counts, counts])
        self.classes, index, _ = distinct(classes)
        self.counts = np.zeros(len(self.classes), dtype=np.int64)
        np.add.at(self.counts, index, counts)
        if len(self.classes) > MAX_CLASSES:
            raise ValueError(f"y must have at most {MAX_CLASSES} different labels, got more, such as "
                             f"{listed(self.classes)}; check that this is the label column")  # fmt: skip
