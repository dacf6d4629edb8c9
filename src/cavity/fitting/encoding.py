"""Encoding of the inputs: invertible maps of each feature from the units of X to numbers around ±1.

Statistics are weighted: a row of weight w counts as w copies of it. They are safe for values of any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cavity.numerics.limits import LARGEST_INPUT

Array = NDArray[np.float64]

KNOTS = 512  # of a quantile map, at most


@runtime_checkable
class Scaler(Protocol):
    """An invertible map of each feature."""

    def transform(self, X: Array) -> Array:
        """Map from the units of X."""

    def inverse(self, X: Array) -> Array:
        """Map back to the units of X."""


@dataclass(frozen=True)
class Standard:
    """(x − mean) / sd; a constant feature becomes 0, up to rounding."""

    mean: Array
    sd: Array

    def transform(self, X: Array) -> Array:
        with np.errstate(over="ignore"):
            return _bounded((0.5 * X - 0.5 * self.mean) / (0.5 * self.sd))  # halves: no difference overflows

    def inverse(self, X: Array) -> Array:
        with np.errstate(over="ignore"):
            return _finite(X * self.sd + self.mean)


@dataclass(frozen=True)
class Quantile:
    """A piecewise linear map of each feature to its training quantiles, then to mean 0 and sd 1.

    Outside the training range it continues with the slope of `Standard`, so that far stays far.
    """

    standard: Standard
    knots: tuple[Array, ...]
    levels: tuple[Array, ...]

    def transform(self, X: Array) -> Array:
        columns = zip(0.5 * X.T, self.knots, self.levels, self.standard.sd, strict=True)
        with np.errstate(over="ignore"):
            scaled = [_inside(x, 0.5 * k, levels) + _beyond(x, 0.5 * k) / (0.5 * sd) for x, k, levels, sd in columns]
        return _bounded(np.stack(scaled, axis=1))

    def inverse(self, X: Array) -> Array:
        flat = X.reshape(-1, X.shape[-1])
        columns = zip(flat.T, self.knots, self.levels, self.standard.sd, strict=True)
        with np.errstate(over="ignore"):
            raw = [2.0 * _inside(x, levels, 0.5 * k) + _beyond(x, levels) * sd for x, k, levels, sd in columns]
        return _finite(np.stack(raw, axis=1).reshape(X.shape))


@dataclass(frozen=True)
class Unscaled:
    """The identity."""

    def transform(self, X: Array) -> Array:
        if not (np.abs(X) <= LARGEST_INPUT).all():
            raise ValueError(
                f"scaling=None needs values of X up to {LARGEST_INPUT:g} in absolute value, got {np.abs(X).max():.3g}: "
                "use scaling='standard' or scale the features"
            )
        return X

    def inverse(self, X: Array) -> Array:
        return X


def fit_scaler(scaling: str | None, X: Array, weight: Array) -> Scaler:
    """Fit the map that `scaling` names (None, "standard" or "quantile") to the training rows."""
    if scaling is None:
        return Unscaled()
    standard = _fit_standard(X, weight)
    if scaling == "standard":
        return standard
    knots, levels = [], []
    for x in X.T:
        values, index = np.unique(x, return_inverse=True)
        count = np.bincount(index, weights=weight)
        mid_rank = (np.cumsum(count) - 0.5 * count) / count.sum()
        keep = np.unique(np.linspace(0, len(values) - 1, min(len(values), KNOTS)).round().astype(int))
        knots.append(values[keep])
        levels.append((mid_rank[keep] - 0.5) * np.sqrt(12.0))  # mean 0 and sd 1, as of a uniform
    return Quantile(standard, tuple(knots), tuple(levels))


def standard_scaler(scaling: str | None, mean: Array, sd: Array, size: Array) -> Scaler:
    """Return the map that `scaling` names (None or "standard"), given mean, sd and largest absolute value."""
    if scaling is None:
        return Unscaled()
    limits = np.finfo(float)
    of_constant = np.maximum(1.0, np.sqrt(limits.eps) * size)
    return Standard(mean, np.where(sd <= np.maximum(10 * limits.eps * np.abs(mean), limits.tiny), of_constant, sd))


def _fit_standard(X: Array, weight: Array) -> Standard:
    """Compute weighted mean and standard deviation with n − 1, on values scaled to about 1 first."""
    limits, share = np.finfo(float), (weight / weight.sum())[:, None]
    with np.errstate(over="ignore"):
        size = np.abs(X).max(0)
        size = np.where(size > 0, size, 1.0)
        mean = (share * (X / size)).sum(0)
        deviation = X / size - mean
        reach = np.abs(deviation).max(0)
        is_constant = reach <= 10 * limits.eps * np.abs(mean)
        reach = np.where(is_constant, 1.0, reach)
        variance = (share * (deviation / reach) ** 2).sum(0) / max(1.0 - 1.0 / weight.sum(), 0.5)
        sd = np.minimum(np.sqrt(variance) * reach * size, limits.max)
        of_constant = np.maximum(1.0, np.sqrt(limits.eps) * size)  # above the rounding errors of a large constant
        mean = _finite(mean * size)
    return Standard(mean, np.where(is_constant | (sd < limits.tiny), of_constant, sd))


def _inside(x: Array, knots: Array, levels: Array) -> Array:
    """Interpolate the knots; constant outside the first and the last."""
    return np.asarray(np.clip(np.interp(x, knots, levels), levels[0], levels[-1]))


def _beyond(x: Array, knots: Array) -> Array:
    """Return the distance outside the knots; 0 between them."""
    return np.asarray(np.minimum(x - knots[0], 0.0) + np.maximum(x - knots[-1], 0.0))


def _bounded(X: Array) -> Array:
    return np.clip(X, -LARGEST_INPUT, LARGEST_INPUT)


def _finite(X: Array) -> Array:
    return np.clip(X, -np.finfo(float).max, np.finfo(float).max)
