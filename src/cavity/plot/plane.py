"""A grid of points over two features, the others held still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavity.plot.style import names_of

Array = NDArray[np.float64]


class Plane(NamedTuple):
    """Where to ask the classifier.

    Attributes:
        axes: the values along both axes.
        points: all of the grid's points, row by row from the bottom, with all features; a frame if the rows were one.
        shown: the two features of the rows, (N, 2).
        places: which features these are.
        names: of these features.
        note: what the others are held at, for the title; empty where there are none.
    """

    axes: tuple[Array, Array]
    points: Any
    shown: Array
    places: tuple[int, int]
    names: tuple[str, str]
    note: str = ""

    def extent(self, image: Array) -> tuple[float, float, float, float]:
        """Left, right, bottom, top of an image whose outer pixels have the ends of the axes in their middles."""
        height, width = image.shape[:2]
        (left, right), (bottom, top) = _edges(self.axes[0], width), _edges(self.axes[1], height)
        return left, right, bottom, top


def _edges(axis: Array, pixels: int) -> tuple[float, float]:
    first, last = float(axis[0]), float(axis[-1])
    half = 0.5 * (last - first) / (pixels - 1)
    return first - half, last + half


def plane_of(
    clf: Any,
    X: Any,
    features: Iterable[Any] | None,
    fixed: str | Mapping[Any, float] | ArrayLike,
    resolution: int,
    margin: float,
) -> Plane:
    """The plane of two features that reaches a little beyond the rows; arguments as for `BoundaryDisplay`."""
    if resolution < 2:
        raise ValueError(f"resolution={resolution} cannot be used; 2 points along each axis are the least")
    rows = _numbers(X)
    names = names_of(clf, rows.shape[1], getattr(X, "columns", None))
    first, second = _two(features, names)
    axes = _axis(rows[:, first], resolution, margin), _axis(rows[:, second], resolution, margin)
    base, note = _base(fixed, rows, names, (first, second))
    grid = np.tile(base, (resolution * resolution, 1))
    grid[:, first], grid[:, second] = (part.ravel() for part in np.meshgrid(*axes))
    return Plane(axes, _like(X, grid), rows[:, [first, second]], (first, second), (names[first], names[second]), note)


def _numbers(X: Any) -> Array:
    rows = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X, dtype=np.float64)
    if rows.ndim != 2 or not len(rows) or rows.shape[1] < 2:
        raise ValueError(f"X has shape {rows.shape}; rows with two features or more are needed to draw a plane")
    if not np.isfinite(rows).all():
        raise ValueError("X holds missing or infinite values; a plane needs finite ones")
    return rows


def _two(features: Iterable[Any] | None, names: NDArray[np.object_]) -> tuple[int, int]:
    if features is None and len(names) > 2:
        raise ValueError(f"features=None, but X has {len(names)} features; name two of them, for example "
                         f"features=({names[0]!r}, {names[1]!r}): the others are held at fixed=")  # fmt: skip
    chosen = (0, 1) if features is None else tuple(_place(feature, names) for feature in features)
    if len(set(chosen)) != 2:
        raise ValueError(f"features={features!r} cannot be used; two different features are needed")
    return chosen[0], chosen[1]


def _place(feature: Any, names: NDArray[np.object_]) -> int:
    """Of a feature given by name or number."""
    known = names.tolist()
    if isinstance(feature, str):
        if feature not in known:
            raise ValueError(f"the feature {feature!r} is not among {known}")
        return known.index(feature)
    if not 0 <= int(feature) < len(known):
        raise ValueError(f"the feature {feature!r} is not among the numbers 0 to {len(known) - 1}")
    return int(feature)


def _axis(x: Array, resolution: int, margin: float) -> Array:
    """A constant feature still gets an axis of some length."""
    low, high = float(x.min()), float(x.max())
    beyond = margin * (high - low) if high > low else 0.5 * max(abs(low), 1.0)
    return np.linspace(low - beyond, high + beyond, resolution)


def _base(fixed: Any, rows: Array, names: NDArray[np.object_], drawn: tuple[int, int]) -> tuple[Array, str]:
    """What the features are held at, and how to say so."""
    is_drawn_all = rows.shape[1] == 2
    if isinstance(fixed, str):
        if fixed not in ("median", "mean"):
            raise ValueError(f"fixed={fixed!r} cannot be used; 'median', 'mean', a dict or a value for each may be")
        base = np.median(rows, axis=0) if fixed == "median" else rows.mean(0)
        return base, "" if is_drawn_all else f"other features at their {fixed}"
    if isinstance(fixed, Mapping):
        base = np.median(rows, axis=0)
        held = {_place(feature, names): float(value) for feature, value in fixed.items()}
        base[list(held)] = list(held.values())
        shown = ", ".join(f"{names[i]} = {value:g}" for i, value in held.items() if i not in drawn)
        return base, shown if len(held) >= rows.shape[1] - 2 else ", ".join(filter(None, [shown, "others at median"]))
    base = np.asarray(fixed, dtype=np.float64)
    if base.shape != (rows.shape[1],):
        raise ValueError(f"fixed has shape {base.shape}; ({rows.shape[1]},) is needed, a value for each feature")
    return base, "" if is_drawn_all else "other features held at given values"


def _like(X: Any, grid: Array) -> Any:
    """A frame of the same kind and columns if X is one: a classifier may ask for the names that it was fitted with."""
    if not hasattr(X, "columns"):
        return grid
    columns = list(X.columns)
    return type(X)(grid, columns=columns) if hasattr(X, "iloc") else type(X)(grid, schema=columns)
