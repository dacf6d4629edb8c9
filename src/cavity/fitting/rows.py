"""Training rows: validation, labels, weights, merging of equal rows."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight

from cavity.data.labels import encode as encode

Array = NDArray[np.float64]

MERGE_ROWS = 10_000


class Rows(NamedTuple):
    """Validated training rows: labels encoded as 0 … C−1, weights positive."""

    X: Array
    y: NDArray[np.int64]
    weight: Array

    def take(self, places: NDArray[np.int64]) -> Rows:
        """Some of them."""
        return Rows(self.X[places], self.y[places], self.weight[places])

    def fingerprint(self) -> dict[str, Any]:
        """What tells these rows from others."""
        found = hashlib.blake2b(digest_size=16)
        for part in self:
            found.update(np.ascontiguousarray(part).view(np.uint8).data)
        return {"rows": len(self.X), "features": self.X.shape[1], "digest": found.hexdigest()}


def large_sums() -> np.errstate:
    """scikit-learn tests for NaN and infinity by a sum first, which finite numbers near the largest may overflow."""
    return np.errstate(over="ignore", invalid="ignore")


def draw_seed(random_state: Any) -> int:
    """A seed from anything that scikit-learn takes for `random_state`."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise ValueError(f"random_state={random_state!r} cannot be used; "
                         "None, an int in [0, 2**32) or a numpy RandomState is needed") from None  # fmt: skip


def class_weights(class_weight: Any, y: NDArray[Any]) -> Array:
    """The weight that each row has for its label."""
    if not (class_weight is None or isinstance(class_weight, (str, dict))):
        raise TypeError(f"class_weight={class_weight!r} cannot be used; 'balanced', a dict or None is needed")
    weight = compute_sample_weight(class_weight, y)
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError(f"class_weight={class_weight!r} gives a row the weight {weight.min()}; "
                         "finite numbers at or above 0 are needed")  # fmt: skip
    return weight


def weights_of_classes(class_weight: Any, classes: NDArray[Any], counts: NDArray[np.int64]) -> Array:
    """The weight of a row of each class, where so many rows of each are known of."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        return counts.sum() / (len(classes) * counts.clip(min=1).astype(np.float64))
    return class_weights(class_weight, classes)


def merge_equal_rows(rows: Rows) -> Rows:
    """Equal rows with equal labels become one row of their joint weight, in an order of its own.

    So copies and weights, and rows in any order, give the same fit to the last bit. Large sets are left as they are.
    """
    if len(rows.X) > MERGE_ROWS:
        return rows
    table = np.column_stack([rows.X, rows.y])
    distinct, place = np.unique(table, axis=0, return_inverse=True)
    weight = np.bincount(place.ravel(), weights=rows.weight).astype(np.float64)
    return Rows(distinct[:, :-1], distinct[:, -1].astype(np.int64), weight)
