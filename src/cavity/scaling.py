"""Input scaling: invertible maps, feature by feature, from the units of X to numbers around ±1.

Statistics are weighted, so that a row of weight w counts as w copies of it, and safe for values of any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LARGEST = 1e100  # scaled inputs stay below this, so that their squares are finite
KNOTS = 512  # of a quantile map, at most


@runtime_checkable
class Scaler(Protocol):
    """An invertible map of each feature."""

    def transform(self, X: Array) -> Array:
        """From the units of X."""

    def inverse(self, X: Array) -> Array:
        """Back to the units of X."""


@dataclass(frozen=True)
class Standard:
    """(x − mean) / sd; a constant feature becomes 0."""

    mean: Array
    sd: Array

    def transform(self, X: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.clip((X - self.mean) / self.sd, -LARGEST, LARGEST)

    def inverse(self, X: Array) -> Array:
        return X * self.sd + self.mean


@dataclass(frozen=True)
class Quantile:
    """Each feature to its training quantiles, piecewise linear, then to mean 0 and sd 1.

    Beyond the training range it goes on with the slope of `Standard`, so that far stays far.
    """

    standard: Standard
    knots: tuple[Array, ...]
    levels: tuple[Array, ...]

    def transform(self, X: Array) -> Array:
        columns = zip(X.T, self.knots, self.levels, self.standard.sd, strict=True)
        with np.errstate(over="ignore"):
            scaled = [_interpolate(x, knots, levels, 1.0 / sd) for x, knots, levels, sd in columns]
        return np.clip(np.stack(scaled, axis=1), -LARGEST, LARGEST)

    def inverse(self, X: Array) -> Array:
        flat = X.reshape(-1, X.shape[-1])
        columns = zip(flat.T, self.levels, self.knots, self.standard.sd, strict=True)
        raw = [_interpolate(x, levels, knots, sd) for x, levels, knots, sd in columns]
        return np.stack(raw, axis=1).reshape(X.shape)


@dataclass(frozen=True)
class Unscaled:
    """The inputs as they are."""

    def transform(self, X: Array) -> Array:
        if not (np.abs(X) <= LARGEST).all():
            raise ValueError(
                f"X has values up to {np.abs(X).max():.3g} in absolute value, which scaling=None cannot take; "
                "use scaling='standard' or scale the features"
            )
        return X

    def inverse(self, X: Array) -> Array:
        return X


def fit_scaler(scaling: str | None, X: Array, weight: Array) -> Scaler:
    """The map that `scaling` (None, "standard" or "quantile") asks for, from the training rows."""
    if scaling is None:
        return Unscaled()
    standard = _fit_standard(X, weight)
    return standard if scaling == "standard" else _fit_quantile(standard, X, weight)


def _fit_standard(X: Array, weight: Array) -> Standard:
    """Weighted mean and standard deviation with n − 1, computed on values brought near 1 first."""
    total = weight.sum()
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(X).max(0)
        size = np.where(size > 0, size, 1.0)
        mean = (weight[:, None] * (X / size)).sum(0) / total * size
        deviation = X / size - mean / size
        reach = np.abs(deviation).max(0)
        is_constant = reach <= 10 * np.finfo(float).eps * np.abs(mean / size)
        reach = np.where(is_constant, 1.0, reach)
        variance = (weight[:, None] * (deviation / reach) ** 2).sum(0) / max(total - 1.0, 0.5 * total)
        sd = np.sqrt(variance) * reach * size
    return Standard(mean, np.where(is_constant | (sd == 0) | ~np.isfinite(sd), 1.0, sd))


def _fit_quantile(standard: Standard, X: Array, weight: Array) -> Quantile:
    pairs = [_knots(x, weight) for x in X.T]
    return Quantile(standard, tuple(k for k, _ in pairs), tuple(level for _, level in pairs))


def _knots(x: Array, weight: Array) -> tuple[Array, Array]:
    """Distinct values and their mid-ranks, the ranks brought to mean 0 and sd 1 of a uniform."""
    values, place = np.unique(x, return_inverse=True)
    count = np.bincount(place, weights=weight)
    middle = (np.cumsum(count) - 0.5 * count) / count.sum()
    keep = np.unique(np.linspace(0, len(values) - 1, min(len(values), KNOTS)).round().astype(int))
    return values[keep], (middle[keep] - 0.5) * np.sqrt(12.0)


def _interpolate(x: Array, knots: Array, levels: Array, slope: float) -> Array:
    """Through the knots; beyond the first and the last with the given slope."""
    inside = np.interp(x, knots, levels)
    return inside + slope * (np.minimum(x - knots[0], 0.0) + np.maximum(x - knots[-1], 0.0))
