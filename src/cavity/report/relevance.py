"""Which features matter to which class, by the learned length-scales."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.kernels import Kernel, Product, Sum
from cavity.report.findings import Array, Relevance

ALL_CLASSES = "all classes"


def feature_names(clf: Any) -> list[str]:
    """As the frame had them that the model learned from; else x0, x1, …"""
    names = getattr(clf, "feature_names_in_", None)
    return [f"x{i}" for i in range(clf.n_features_in_)] if names is None else [str(name) for name in names]


def relevance(clf: Any, classes: list[str], is_constant: NDArray[np.bool_]) -> Relevance | None:
    """How fast the function of each class changes with each feature; None where the kernel has no length-scales.

    A feature that is the same in every row changes nothing, whatever its length-scale: 0. Where classes share the
    kernel there is one line for all of them.
    """
    found = relevance_of(getattr(clf, "kernel_", None))
    if found is None:
        return None
    values = np.where(is_constant, 0.0, np.broadcast_to(found, (len(found), clf.n_features_in_)))
    return Relevance(feature_names(clf), classes if len(values) == len(classes) else [ALL_CLASSES], values)


def relevance_of(kernel: Kernel | Any) -> Array | None:
    """1/length-scale, (C or 1, D); of sums and products the root mean square of the slope of f, over its sd."""
    squares = _variance_and_squares(kernel)[1]
    return None if squares is None else np.sqrt(squares)


def _variance_and_squares(kernel: Kernel | Any) -> tuple[Array, Array | None]:
    """The variance of f, (C, 1), and the mean square of its slope over that, (C, D); None where f does not change.

    For one kernel of length-scale ℓ the latter is 1/ℓ². In a sum slopes add up, each by its part of the variance; in
    a product they add up as they are.
    """
    if isinstance(kernel, (Sum, Product)):
        return _composed(kernel)
    variance = np.reshape(_or_one(kernel, "variance"), (-1, 1))
    if getattr(kernel, "lengthscale", None) is None:
        return variance, None
    return variance, np.atleast_2d(_or_one(kernel, "lengthscale")) ** -2.0


def _composed(kernel: Sum | Product) -> tuple[Array, Array | None]:
    parts = [_variance_and_squares(part) for part in kernel.parts]
    changing = [(variance, squares) for variance, squares in parts if squares is not None]
    if not changing:
        return parts[0]
    if isinstance(kernel, Product):
        return _joined(np.multiply, [v for v, _ in parts]), _joined(np.add, [s for _, s in changing])
    total = _joined(np.add, [v for v, _ in changing])
    return total, _joined(np.add, [v * s for v, s in changing]) / total


def _joined(by: np.ufunc, parts: list[Array]) -> Array:
    return np.asarray(reduce(by, parts))


def _or_one(kernel: Any, name: str) -> Array:
    value = getattr(kernel, name, None)
    return np.asarray(1.0 if value is None else value, dtype=np.float64)
