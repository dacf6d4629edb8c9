"""The rows that a report is about: labels known to the model, and no more rows than can be looked at."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_array

from cavity.fitting.rows import Rows, class_weights, large_sums, merge_equal_rows
from cavity.report.findings import Array

Places = NDArray[np.int64]

MOST_COMPARED = 50_000


class Labeled(NamedTuple):
    """Rows as they were given, their labels as 0 … C−1, and their places in the data given."""

    given: Any
    y: Places
    place: Places

    def some(self, most: int) -> Labeled:
        """All of them, or a random sample of so many, always the same."""
        which = draw(len(self.y), most)
        return self if len(which) == len(self.y) else self.take(which)

    def take(self, which: Places) -> Labeled:
        """Those at these places."""
        return Labeled(_safe_indexing(self.given, which), self.y[which], self.place[which])

    def numbers(self) -> Array:
        """The features as an array, (N, D)."""
        with large_sums():
            return np.asarray(check_array(self.given, dtype=np.float64, order="C"))


def draw(n: int, most: int, seed: int = 0) -> Places:
    """Places of at most so many of n rows, in order."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def labeled(X: Any, y: Any, classes: NDArray[Any], names: tuple[str, str] = ("X", "y")) -> Labeled:
    """Rows with labels that are among `classes`; an error that names the argument otherwise."""
    X = X if hasattr(X, "columns") else np.asarray(X)
    labels = np.asarray(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or len(X.shape) != 2 or len(X) != len(labels):
        raise ValueError(f"{names[0]} has the shape {X.shape} and {names[1]} {labels.shape}; "
                         "(N, D) and (N,) are needed: one label a row")  # fmt: skip
    return Labeled(X, _encoded(labels, classes, names[1]), np.arange(len(labels)))


def _encoded(labels: NDArray[Any], classes: NDArray[Any], name: str) -> Places:
    """Labels as places in `classes`, whatever numbers or text they are."""
    known = {label: i for i, label in enumerate(classes.tolist())}
    found = np.array([known.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    if (found < 0).any():
        label, first = labels[found < 0].tolist()[0], classes.tolist()[0]
        raise ValueError(
            f"{name} holds the label {label!r} ({type(label).__name__}), in {(found < 0).sum()} of {len(found)} rows, "
            f"which the model does not know: it learned {len(known)} labels such as {first!r} "
            f"({type(first).__name__}); leave such rows out, or fit again with that class"
        )
    return found


def is_training_data(clf: Any, rows: Labeled) -> bool:
    """Whether the model has learned from exactly these rows; False also where that cannot be known.

    A `sample_weight` changes the digest of the training rows, and so does their order where they are many.
    """
    known = getattr(clf, "training_", None) or {}
    if "digest" not in known or known.get("rows") != len(rows.y):
        return False
    weight = class_weights(getattr(clf, "class_weight", None), clf.classes_[rows.y])
    found = merge_equal_rows(Rows(rows.numbers(), rows.y, weight)).fingerprint()
    return bool(found["digest"] == known["digest"])


def count_known(X: Array, y: Places, X_train: Array, y_train: Places) -> int:
    """How many rows are also, label and all, among the training rows, of which 50,000 at most are looked through."""
    use = draw(len(y_train), MOST_COMPARED)
    X_train, y_train = X_train[use], y_train[use]
    tables = [np.column_stack([features, labels]) + 0.0 for features, labels in ((X, y), (X_train, y_train))]  # no −0
    whole_row = np.dtype((np.void, tables[0].itemsize * tables[0].shape[1]))
    new, old = (np.ascontiguousarray(table).view(whole_row)[:, 0] for table in tables)
    return int(np.isin(new, old).sum())
