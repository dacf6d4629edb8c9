"""Mean, spread and range of each feature, from blocks of rows and of values of any size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MODEST = 250  # powers of two: squares of values up to there neither overflow nor vanish
SMALLEST_UNIT = -1000


class Moments(NamedTuple):
    """What is known of some rows, feature by feature.

    Attributes:
        n: how many rows.
        mean: of the values, in units of `unit`.
        square: sum of squared deviations from the mean, in units of `unit` squared.
        unit: a power of two, 1 where values are of modest size.
        lowest, highest: the range, in the units of X.
    """

    n: int
    mean: Array
    square: Array
    unit: Array
    lowest: Array
    highest: Array

    def mean_and_sd(self) -> tuple[Array, Array]:
        """In the units of X, the standard deviation with n − 1; that of a constant feature is exactly 0."""
        limit = np.finfo(float).max
        with np.errstate(over="ignore"):
            sd = np.minimum(np.sqrt(self.square / max(self.n - 1, 1)) * self.unit, limit)
            mean = (self.mean * self.unit).clip(self.lowest, self.highest)
        return mean, np.where(self.lowest == self.highest, 0.0, sd)


def moments(X: Array) -> Moments:
    """Of at least one row."""
    lowest, highest = X.min(0), X.max(0)
    size = np.maximum(-lowest, highest)
    unit = _unit(size)
    divisor = np.where(size > 0, unit, 1.0)
    Z = X if (divisor == 1.0).all() else X / divisor
    mean = (Z.sum(0) / len(Z)).clip(lowest / divisor, highest / divisor)  # exact where all are equal
    deviation = Z - mean
    shift = deviation.sum(0) / len(Z)
    square = np.einsum("nd,nd->d", deviation, deviation) - len(Z) * shift**2
    return Moments(len(Z), mean + shift, square.clip(min=0.0), unit, lowest, highest)


def joined(a: Moments, b: Moments) -> Moments:
    """Of the rows of both (Chan, Golub and LeVeque, 1979)."""
    n, unit = a.n + b.n, np.maximum(a.unit, b.unit)
    ratio_a, ratio_b = a.unit / unit, b.unit / unit
    step = b.mean * ratio_b - a.mean * ratio_a
    mean = a.mean * ratio_a + step * (b.n / n)
    square = a.square * ratio_a**2 + b.square * ratio_b**2 + step**2 * (a.n * (b.n / n))
    return Moments(n, mean, square, unit, np.minimum(a.lowest, b.lowest), np.maximum(a.highest, b.highest))


def _unit(size: Array) -> Array:
    """1 for modest sizes, otherwise a power of two near them; the smallest there is for 0."""
    power = np.frexp(size)[1]
    power = np.where(np.abs(power) <= MODEST, 0, power.clip(SMALLEST_UNIT, 1023))
    return np.ldexp(1.0, np.where(size > 0, power, SMALLEST_UNIT))
