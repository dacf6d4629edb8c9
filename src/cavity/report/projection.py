"""Rows and inducing points in two dimensions: the plane that parts the classes best, or that shows the most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh

from cavity.fitting.encoding import fit_scaler
from cavity.report.baselines import Rows
from cavity.report.findings import Array, Map
from cavity.report.intake import Places, draw

MOST_ROWS, MOST_INDUCING = 1500, 500  # on the page
FIT_ROWS = 5000  # that the plane is chosen by
ROWS_PER_FEATURE = 5  # with fewer, classes would seem apart by chance
RIDGE = 1e-3  # of the mean variance within classes
NAMED = 2  # features in the name of an axis
CONFIDENCE = "confidence (inducing points: at 0)"

Scale = Callable[[Array], Array]


class Plane(NamedTuple):
    """Two directions, (D, 2), where they start, and what the axes are called."""

    center: Array
    directions: Array
    axes: tuple[str, str]

    def of(self, X: Array) -> Array:
        """Points in it, (N, 2)."""
        return np.asarray((X - self.center) @ self.directions)

    def share(self, X: Array) -> float:
        """Of the variance of these rows, the part that is seen in it."""
        basis, _ = np.linalg.qr(self.directions)
        centerd = X - X.mean(0)
        whole = float((centerd**2).sum())
        return min(float(((centerd @ basis) ** 2).sum()) / whole, 1.0) if whole > 0 else 1.0


def map_of(clf: Any, rows: Rows, log_p: Array, train: Rows | None, features: list[str]) -> Map | None:
    """Where rows and inducing points are; None where there are too few rows to see anything.

    One feature is drawn against the confidence, with the inducing points on the axis; two features as they are; more
    in a plane through the scaled rows, which is chosen by the training rows where they are given.
    """
    if len(rows.y) < 3:
        return None
    shown = draw(len(rows.y), MOST_ROWS)
    X, y, is_right = rows.X[shown], rows.y[shown], (log_p.argmax(1) == rows.y)[shown]
    Z, Z_class = _inducing(clf, X.shape[1])
    axes, share = (features[0], features[1] if len(features) > 1 else CONFIDENCE), 1.0
    if X.shape[1] == 1:
        X, Z = np.column_stack([X, np.exp(log_p.max(1))[shown]]), np.column_stack([Z, np.zeros(len(Z))])
    elif X.shape[1] > 2:
        scale = _scale(clf, rows.X)
        plane = plane_of(scale, rows if train is None or len(train.y) < 3 else train, features)
        X, Z, axes, share = plane.of(scale(X)), plane.of(scale(Z)), plane.axes, plane.share(scale(rows.X))
    return Map(X, y, is_right, Z, Z_class, axes, share)


def plane_of(scale: Scale, rows: Rows, features: list[str]) -> Plane:
    """The directions in which classes are furthest apart; the rest, or all where rows are few, by their variance.

    A direction that parts classes is known by the spread within classes, so it takes several rows for each feature.
    """
    use = draw(len(rows.y), FIT_ROWS)
    X, y = scale(rows.X[use]), rows.y[use]
    parting = _discriminants(X, y) if len(X) >= ROWS_PER_FEATURE * X.shape[1] else np.empty((X.shape[1], 0))
    widest = _principal(X, parting, 2 - parting.shape[1])
    names = [f"discriminant {i + 1}" for i in range(parting.shape[1])]
    names += [f"principal component {i + 1}" for i in range(widest.shape[1])]
    directions = np.column_stack([parting, widest])
    named = [f"{name}{_mostly(d, X.std(0), features)}" for name, d in zip(names, directions.T, strict=True)]
    return Plane(X.mean(0), directions, (named[0], named[1]))


def _discriminants(X: Array, y: Places) -> Array:
    """Two directions, or one of two classes, along which class means are far apart for the spread within classes."""
    present, place, count = np.unique(y, return_inverse=True, return_counts=True)
    means = np.stack([X[y == k].mean(0) for k in present])
    apart, within = means - X.mean(0), X - means[place]
    W = within.T @ within / len(X)
    ridge = RIDGE * np.trace(W) / len(W) or 1.0  # 1 where no class has any spread
    _, vectors = eigh((apart.T * count) @ apart / len(X), W + ridge * np.eye(len(W)))
    return _signed(vectors[:, ::-1][:, : min(2, len(present) - 1)])


def _principal(X: Array, beside: Array, count: int) -> Array:
    """Directions of the most variance, at right angles to those there are."""
    from sklearn.decomposition import PCA  # slow to import

    if count == 0:
        return np.empty((X.shape[1], 0))
    basis, _ = np.linalg.qr(beside)
    rest = X - X.mean(0)
    rest = rest - (rest @ basis) @ basis.T
    if not rest.any():  # no variance to find a direction by
        return np.eye(X.shape[1])[:, :count]
    return _signed(PCA(count, random_state=0).fit(rest).components_.T)


def _signed(directions: Array) -> Array:
    """The largest weight of each is positive, so that equal rows give equal pictures."""
    largest = directions[np.abs(directions).argmax(0), np.arange(directions.shape[1])]
    return np.asarray(directions * np.where(largest < 0, -1.0, 1.0))


def _mostly(direction: Array, sd: Array, features: list[str]) -> str:
    weight = np.abs(direction) * sd
    return " (mostly " + ", ".join(features[i] for i in np.argsort(-weight, kind="stable")[:NAMED]) + ")"


def _scale(clf: Any, X: Array) -> Scale:
    """As the model scales its inputs."""
    scaler = getattr(clf, "_scaler", None) or fit_scaler("standard", X, np.ones(len(X)))
    return lambda rows: scaler.transform(rows)


def _inducing(clf: Any, n_features: int) -> tuple[Array, Places]:
    """Inducing points in units of X and their classes, equally many of each.

    Those that all classes share are of the class whose function is largest there.
    """
    Z = np.asarray(getattr(clf, "inducing_points_", np.empty((1, 0, n_features))), dtype=np.float64)
    if len(Z) > 1 and (Z[:1] == Z).all() and hasattr(clf, "posterior_"):
        shown = draw(Z.shape[1], MOST_INDUCING)
        return Z[0, shown], np.asarray(clf.posterior_.mean).argmax(0)[shown]
    shown = draw(Z.shape[1], max(1, MOST_INDUCING // max(len(Z), 1)))
    return Z[:, shown].reshape(-1, n_features), np.repeat(np.arange(len(Z)), len(shown))
