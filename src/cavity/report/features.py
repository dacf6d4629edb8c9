"""Features: their names, their relevance to each class, and projections of rows to two dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple, cast

import numpy as np

from cavity.fitting.encoding import Scaler, TableEncoding, encode_training, fit_scaler
from cavity.kernels import Kernel, Product, Sum
from cavity.metrics import Array, Indices, Mask
from cavity.report.findings import Map, Relevance

ALL_CLASSES = "all classes"
MAP_ROWS, MAP_INDUCING = 1500, 500  # on the page
PROJECTION_ROWS = 5000  # that choose the directions
ROWS_PER_FEATURE = 5  # with fewer, classes would seem separated by chance
RIDGE = 1e-3  # of the mean variance within classes
NAMED = 2  # features in the name of an axis
CONFIDENCE = "confidence (inducing points: at 0)"


class LabeledData(NamedTuple):
    """Features or cells, (N, D), and labels 0 … C−1."""

    X: Array
    y: Indices


def feature_names(clf: Any, n_features: int | None = None, given: Iterable[Any] | None = None) -> list[str]:
    """Return the given names, or those of the training frame, or x0, x1, …"""
    names = getattr(clf, "feature_names_in_", None) if given is None else given
    count = clf.n_features_in_ if n_features is None else n_features
    found = [f"x{i}" for i in range(count)] if names is None else [str(name) for name in names]
    if len(found) != count:
        raise ValueError(f"`feature_names` must have {count} names, one for each feature, got {len(found)}.")
    return found


def sample_indices(n: int, most: int, seed: int = 0) -> Indices:
    """Return the indices of at most `most` of n rows, drawn at random and sorted."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


# --- Relevance ---


def relevance(clf: Any, classes: list[str], is_constant: Mask) -> Relevance | None:
    """Compute how fast the function of each class changes with each feature; None if no kernel has length-scales.

    A feature that is the same in every row changes nothing, whatever its length-scale: its relevance is 0.
    """
    found = column_relevance(clf)
    if found is None:
        return None
    values = np.where(is_constant, 0.0, np.broadcast_to(found, (len(found), clf.n_features_in_)))
    return Relevance(feature_names(clf), classes if len(values) == len(classes) else [ALL_CLASSES], values)


def column_relevance(clf: Any) -> Array | None:
    """Return the relevance of each column of X, (C or 1, D); None if no kernel has length-scales.

    A column with gaps, and a date with its cycles, has several length-scales: its relevance is the root of the sum of
    their squared inverses. That of a column that is left out is 0.
    """
    found, encoding = kernel_relevance(getattr(clf, "kernel_", None)), getattr(clf, "_encoding", None)
    if found is None:
        return None
    if not isinstance(encoding, TableEncoding):
        return found
    squares = np.zeros((encoding.n_columns, len(found)))
    np.add.at(squares, [group.column for group in encoding.groups], found.T**2)
    return np.sqrt(squares.T)


def kernel_relevance(kernel: Kernel | Any) -> Array | None:
    """Return 1/length-scale, (C or 1, D); for sums and products, the root mean square slope of f over its sd."""
    squares = _variance_and_squares(kernel)[1]
    return None if squares is None else np.sqrt(squares)


def _variance_and_squares(kernel: Kernel | Any) -> tuple[Array, Array | None]:
    """The variance of f, (C, 1), and its mean square slope over that variance, (C, D); None if f is constant.

    For a kernel of length-scale ℓ the latter is 1/ℓ². In a sum, the squares average, weighted by variance; in a
    product, they add up.
    """
    if not isinstance(kernel, (Sum, Product)):
        variance, scale = (getattr(kernel, name, None) for name in ("variance", "lengthscale"))
        variance = np.reshape(np.asarray(1.0 if variance is None else variance, dtype=np.float64), (-1, 1))
        return variance, None if scale is None else np.atleast_2d(np.asarray(scale, dtype=np.float64)) ** -2.0
    parts = [_variance_and_squares(part) for part in kernel.parts]
    changing = [(variance, squares) for variance, squares in parts if squares is not None]
    if not changing:
        return parts[0]
    if isinstance(kernel, Product):
        return reduce(np.multiply, [v for v, _ in parts]), reduce(np.add, [s for _, s in changing])
    total = reduce(np.add, [v for v, _ in changing])
    return total, reduce(np.add, [v * s for v, s in changing]) / total


# --- Two dimensions ---


class Projection(NamedTuple):
    """Two directions, (D, 2), their origin, and the names of the axes."""

    center: Array
    directions: Array
    axes: tuple[str, str]

    def transform(self, X: Array) -> Array:
        """Project points, (N, 2)."""
        return np.asarray((X - self.center) @ self.directions)

    def explained_variance(self, X: Array) -> float:
        """Return the share of the variance of these rows that the projection keeps."""
        basis, _ = np.linalg.qr(self.directions)
        centered = X - X.mean(0)
        whole = float((centered**2).sum())
        return min(float(((centered @ basis) ** 2).sum()) / whole, 1.0) if whole > 0 else 1.0


def make_map(clf: Any, rows: LabeledData, log_p: Array, train: LabeledData | None, features: list[str]) -> Map | None:
    """Place rows and inducing points in two dimensions; None with fewer than three rows.

    One feature is drawn against the confidence, with the inducing points at 0; two features are drawn as they are; more
    are projected, after scaling, to directions that the training rows choose where they are given. Tables with
    categories, dates or gaps are projected as the model encodes them.
    """
    if len(rows.y) < 3:
        return None
    shown, is_right = sample_indices(len(rows.y), MAP_ROWS), log_p.argmax(1) == rows.y
    rows, train, points, view = _drawn_features(clf, rows, train, features)
    X, y, is_right = rows.X[shown], rows.y[shown], is_right[shown]
    is_shared = len(points) > 1 and (points[:1] == points).all() and hasattr(clf, "posterior_")
    each = sample_indices(points.shape[1], MAP_INDUCING if is_shared else max(1, MAP_INDUCING // max(len(points), 1)))
    Z, Z_class = points[:, each].reshape(-1, X.shape[1]), np.repeat(np.arange(len(points)), len(each))
    in_units = getattr(clf, "inducing_points_", None)
    in_units = None if in_units is None else np.asarray(in_units)[: 1 if is_shared else None, each]
    if is_shared:  # each point once, with the class whose function is largest there
        Z, Z_class = points[0, each], np.asarray(clf.posterior_.mean).argmax(0)[each]
    names, share = view.names, 1.0
    axes = names[0], names[1] if len(names) > 1 else CONFIDENCE
    if X.shape[1] == 1:
        X, Z = np.column_stack([X, np.exp(log_p.max(1))[shown]]), np.column_stack([Z, np.zeros(len(Z))])
    elif X.shape[1] > 2 or view.is_encoded:
        chosen = rows if train is None or len(train.y) < 3 else train
        found = fit_projection(view.scale, chosen, names, view.columns)
        share = found.explained_variance(view.scale(rows.X))
        X, Z, axes = found.transform(view.scale(X)), found.transform(view.scale(Z)), found.axes
    n_inducing = points.shape[1] * (1 if is_shared else len(points))
    in_units = None if in_units is None else in_units.reshape(len(Z), -1)
    return Map(X, y, is_right, Z, Z_class, axes, share, n_inducing, tuple(features), in_units)


class _View(NamedTuple):
    """How features are drawn: how they are scaled, the names of the columns, and the column of each feature."""

    scale: Callable[[Array], Array]
    names: list[str]
    columns: Sequence[int]
    is_encoded: bool = False  # whether the features are those of the model, not columns of X


def _drawn_features(
    clf: Any, rows: LabeledData, train: LabeledData | None, names: list[str]
) -> tuple[LabeledData, LabeledData | None, Array, _View]:
    """Return rows, training rows and inducing points, (C, M, F), as the map shows them: in units of X if it can."""
    encoding = getattr(clf, "_encoding", None) or fit_scaler("standard", rows.X, np.ones(len(rows.X)))
    columns, scaler = list(range(rows.X.shape[1])), cast("Scaler", encoding)
    if not isinstance(encoding, TableEncoding):
        points = np.asarray(getattr(clf, "inducing_points_", np.empty((1, 0, len(columns)))), dtype=np.float64)
    else:
        points = clf.posterior_.prior.Z.numpy()
        points = np.broadcast_to(points, (len(clf.classes_), *points.shape[1:]))
        if any(group.what != "value" for group in encoding.groups):
            columns = [encoding.groups[g].column for g in encoding.feature_groups]
            rows = LabeledData(encoding.transform(rows.X), rows.y)
            train = None if train is None else LabeledData(encode_training(encoding, train.X), train.y)
            return rows, train, points, _View(np.asarray, names, columns, is_encoded=True)
        columns, scaler = (
            list(encoding.numeric),
            cast("Scaler", encoding.scaler),
        )  # numbers, beside columns that are left out
        points = scaler.inverse(points)

    def filled(data: LabeledData) -> LabeledData:
        """Put the typical value in gaps, as the model does."""
        X = data.X[:, columns]
        if (gaps := np.isnan(X)).any():
            X = np.where(gaps, scaler.inverse(scaler.transform(X)), X)
        return LabeledData(X, data.y)

    view = _View(scaler.transform, [names[j] for j in columns], range(len(columns)))
    return filled(rows), None if train is None else filled(train), points, view


def fit_projection(
    scale: Callable[[Array], Array], rows: LabeledData, names: list[str], columns: Sequence[int] | None = None
) -> Projection:
    """Choose the directions that separate the classes best; the rest, or all if rows are few, by variance.

    Discriminants depend on the spread within classes, which takes several rows for each feature to estimate. Axes are
    named by the columns that contribute most; `columns` has the column of each feature, if there are several of one.
    """
    use = sample_indices(len(rows.y), PROJECTION_ROWS)
    X, y = scale(rows.X[use]), rows.y[use]
    first, rest = np.empty((X.shape[1], 0)), np.empty((X.shape[1], 0))
    if len(X) >= ROWS_PER_FEATURE * X.shape[1]:
        first = _discriminants(X, y)
    if first.shape[1] < 2:  # add directions of the most variance, orthogonal to the first
        from sklearn.decomposition import PCA  # slow to import

        basis, _ = np.linalg.qr(first)
        left = X - X.mean(0)
        left = left - (left @ basis) @ basis.T
        n = 2 - first.shape[1]
        rest = PCA(n, random_state=0).fit(left).components_.T if left.any() else np.eye(X.shape[1])[:, :n]
    axes = [f"discriminant {i + 1}" for i in range(first.shape[1])]
    axes += [f"principal component {i + 1}" for i in range(rest.shape[1])]
    directions = np.column_stack([first, rest])
    largest = directions[np.abs(directions).argmax(0), [0, 1]]
    directions = directions * np.where(largest < 0, -1.0, 1.0)  # so that equal rows give equal pictures
    weights = np.zeros((len(names), 2))
    np.add.at(weights, range(X.shape[1]) if columns is None else columns, (directions * X.std(0)[:, None]) ** 2)
    tops = [[j for j in np.argsort(-weight, kind="stable")[:NAMED] if weight[j] > 0] for weight in weights.T]
    parts = [f" (mostly {', '.join(names[j] for j in top)})" if top else "" for top in tops]
    return Projection(X.mean(0), directions, (axes[0] + parts[0], axes[1] + parts[1]))


def _discriminants(X: Array, y: Indices) -> Array:
    """Two directions (one for two classes) along which class means are far apart relative to the spread within."""
    from scipy.linalg import eigh

    present, of_row, count = np.unique(y, return_inverse=True, return_counts=True)
    means = np.stack([X[y == k].mean(0) for k in present])
    apart, within = means - X.mean(0), X - means[of_row]
    W = within.T @ within / len(X)
    ridge = RIDGE * np.trace(W) / len(W) or 1.0  # 1 if no class has any spread
    _, vectors = eigh((apart.T * count) @ apart / len(X), W + ridge * np.eye(len(W)))
    return np.asarray(vectors[:, ::-1][:, : min(2, len(present) - 1)])
