"""Training rows: validation, labels, weights, merging of equal rows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_X_y, validate_data

from cavity.data.labels import encode as encode
from cavity.data.schema import (
    LEFT_OUT,
    CategoricalFeatures,
    Column,
    Schema,
    describe_left_out,
    find_schema,
    is_missing,
    needs_schema,
    number_schema,
    table_columns,
)

Array = NDArray[np.float64]
ClassWeight = str | Mapping[Any, float] | None

MERGE_ROWS = 10_000
MAX_WEIGHT = 2.0**53  # the first float64 that adding one does not change


class TrainingRows(NamedTuple):
    """Validated training rows: labels encoded as 0 … C−1, positive weights."""

    X: Array
    y: NDArray[np.int64]
    weight: Array

    def take(self, indices: NDArray[np.int64]) -> TrainingRows:
        """Return the rows at `indices`."""
        return TrainingRows(self.X[indices], self.y[indices], self.weight[indices])

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies these rows, for JSON."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self:
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)
        return {"rows": len(self.X), "features": self.X.shape[1], "digest": digest.hexdigest()}


class TrainingTable(NamedTuple):
    """Training rows with the labels, feature names and columns they came with."""

    rows: TrainingRows
    classes: NDArray[Any]
    feature_names: NDArray[Any] | None
    schema: Schema | None = None


def validate_training(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    sample_weight: ArrayLike | None,
    class_weight: ClassWeight,
    classes: ArrayLike | None = None,
    is_refit: bool = True,
    categorical_features: CategoricalFeatures = None,
    schema: Schema | None = None,
) -> TrainingTable:
    """Validate features, labels and weights as scikit-learn does; leaves the estimator as it is.

    Args:
        estimator: for its name in messages, and for the features it was fitted with.
        X: a table of features, (N, D).
        y: labels, (N,).
        sample_weight: of each row, at or above 0; rows of weight 0 are dropped.
        class_weight: "balanced" or a weight for each label.
        classes: all labels; None for those in y.
        is_refit: whether a new fit starts; otherwise the features must be those of the last one.
        categorical_features: which columns are categories.
        schema: of the last fit, where no new one starts.
    """
    estimator = copy(estimator)  # scikit-learn stores the number and names of the features in it
    if is_refit and needs_schema(X, categorical_features):
        schema = find_schema(X, categorical_features)
    cells = read_cells(estimator, X, schema, is_refit)
    schema = None if schema is None or schema.is_numeric else schema
    with explained_errors(cells, y), allow_overflow():
        X, y = check_X_y(cells, y, dtype=np.float64, order="C", ensure_all_finite="allow-nan", estimator=estimator)
        check_classification_targets(y)
    if is_refit:
        schema, X = _without_empty(schema, X, getattr(estimator, "feature_names_in_", None))
    with allow_overflow():
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        weight = weight * class_weights(class_weight, y)
        total = float(weight.sum())
    keep = weight > 0
    if not keep.any():
        raise ValueError("sample_weight and class_weight must leave at least one row with a positive weight")
    if not total <= MAX_WEIGHT:
        raise ValueError(
            f"sample_weight times class_weight must sum to at most {MAX_WEIGHT:.3g}, got {total:.3g}: a weight is a "
            "number of copies of a row; divide all weights by a constant"
        )
    found = np.unique(y[keep] if classes is None else np.asarray(classes))
    rows = TrainingRows(X, encode(y[keep], found), weight[keep])
    if not keep.all():
        rows = rows._replace(X=X[keep])
    elif not X.flags.writeable:  # torch warns of an array that it must not write to
        rows = rows._replace(X=X.copy())
    return TrainingTable(rows, found, getattr(estimator, "feature_names_in_", None), schema)


def _without_empty(schema: Schema | None, X: Array, names: NDArray[Any] | None) -> tuple[Schema | None, Array]:
    """Leave out columns without any value; raise ValueError if no column is left."""
    empty = np.asarray(np.isnan(X).all(0))
    if schema is None and empty.any():
        schema = Schema(tuple(map(Column, range(X.shape[1]) if names is None else names)))
    if schema is None:
        return None, X
    columns = [
        replace(column, kind=LEFT_OUT, reason="every value is missing") if is_empty else column
        for column, is_empty in zip(schema.columns, empty, strict=True)
    ]
    schema = Schema(tuple(columns))
    if all(column.kind == LEFT_OUT for column in columns):
        raise ValueError(f"X must have a column to learn from, and all are left out: {describe_left_out(schema)}")
    return schema, np.where(empty, 0.0, X)


def read_cells(
    estimator: BaseEstimator, X: Any, schema: Schema | None, is_refit: bool = False, unknown: float = np.nan
) -> Array:
    """Return the cells of a table, checked as scikit-learn does.

    Args:
        estimator: for its name in messages, and for the features it was fitted with; it learns those of a new fit.
        X: the table, (N, D).
        schema: what its columns hold; None where all hold numbers.
        is_refit: whether a new fit starts.
        unknown: the cell of a level that the schema does not know.
    """
    with explained_errors(X if schema is None else None), allow_overflow():
        if schema is not None or needs_schema(X):
            validate_data(estimator, X, reset=is_refit, skip_check_array=True)
            names = getattr(estimator, "feature_names_in_", range(estimator.n_features_in_))
            X = (number_schema(names) if schema is None else schema).read(X, unknown=unknown)
            return np.asarray(check_array(X, dtype=np.float64, ensure_all_finite="allow-nan", estimator=estimator))
        X = validate_data(estimator, X, dtype=np.float64, order="C", reset=is_refit, ensure_all_finite="allow-nan")
    return np.where(np.isnan(X), np.nan, X) if np.isnan(X).any() else X  # one NaN: rows are compared by their bits


@contextmanager
def explained_errors(X: Any, y: Any = None) -> Iterator[None]:
    """Explain an error of scikit-learn's validation by the column, row and value that caused it, with a remedy."""
    try:
        yield
    except (ValueError, TypeError) as error:
        is_about_names = re.search(r"feature names|features as input|feature\(s\)", str(error))
        found = None
        with suppress(Exception):  # of what is no table at all
            found = None if is_about_names else _describe_columns(X) or _describe_labels(y, error)
        raise error if found is None else found from error


def _describe_columns(X: Any) -> Exception | None:
    """Return an error that names the column that holds anything but finite numbers and gaps."""
    if hasattr(X, "tocsr"):  # scikit-learn's own message says that a sparse matrix is not accepted
        return None
    schema = number_schema(range(len(table_columns(X, "X"))))
    try:
        schema.read(X)
    except (ValueError, TypeError) as error:
        return error
    return None


def _describe_labels(y: Any, error: Exception) -> Exception | None:
    labels = np.asarray(y, dtype=object).ravel().tolist()
    missing = [i for i, label in enumerate(labels) if is_missing(label)]
    if missing and y is not None:
        rows = f"row {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
        return ValueError(f"y has a missing label (NaN or None) in {rows}; fill it in or remove the row")
    if "'<' not supported" in str(error):
        kinds = " and ".join(sorted({type(label).__name__ for label in labels}))
        return TypeError(f"y must hold labels of one type, got {kinds}; convert them, for example with str")
    return None


def check_two_classes(classes: NDArray[Any]) -> None:
    """Raise ValueError for a single class."""
    if len(classes) < 2:
        raise ValueError(f"y must have at least two classes, got one class: {classes[0]!r}")


def allow_overflow() -> np.errstate:
    """Silence overflow: scikit-learn tests for NaN and infinity by a sum, which finite numbers may overflow."""
    return np.errstate(over="ignore", invalid="ignore")


def draw_seed(random_state: Any) -> int:
    """Return a seed from anything that scikit-learn accepts as `random_state`."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise ValueError(
            f"random_state must be None, an int in [0, 2**32) or a numpy RandomState, got {random_state!r}"
        ) from None


def class_weights(class_weight: ClassWeight, y: NDArray[Any]) -> Array:
    """Return the class weight of each row."""
    if not (class_weight is None or isinstance(class_weight, str | dict)):
        raise TypeError(f"class_weight must be 'balanced', a dict or None, got {class_weight!r}")
    weight: Array = compute_sample_weight(class_weight, y)
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError(
            f"class_weight must give finite weights at or above 0, got {class_weight!r}, which gives {weight.min()}"
        )
    return weight


def weights_by_class(class_weight: ClassWeight, classes: NDArray[Any], counts: NDArray[np.int64]) -> Array:
    """Return the weight of a row of each class, given the number of rows of each."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        return np.asarray(counts.sum() / (len(classes) * counts.clip(min=1).astype(np.float64)))
    return class_weights(class_weight, classes)


def merge_equal_rows(rows: TrainingRows) -> TrainingRows:
    """Merge equal rows with equal labels into one row of their total weight, in sorted order.

    So copies and weights, and rows in any order, give the same fit to the last bit. Large sets are left as they are.
    """
    if len(rows.X) > MERGE_ROWS:
        return rows
    table = np.column_stack([rows.X, rows.y])
    table[np.isnan(table)] = np.inf  # no cell is infinite, and gaps must be equal to each other
    distinct, index = np.unique(table, axis=0, return_inverse=True)
    weight = np.bincount(index.ravel(), weights=rows.weight).astype(np.float64)
    distinct[np.isinf(distinct)] = np.nan
    return TrainingRows(distinct[:, :-1], distinct[:, -1].astype(np.int64), weight)
