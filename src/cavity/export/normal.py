"""The standard normal distribution in float64, from what every runtime has: exp, division, sums and products.

Φ(-x) = φ(x) · m(x) for x ≥ 0, where Mills' ratio m falls smoothly from √(π/2) to 1/x. In t = (x - a)/(x + a), which
takes all x ≥ 0 to [-1, 1), the function (x + a) · m(x) is nearly a straight line: a polynomial does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray
from scipy.special import erfcx

from cavity.export.graph import Value

Array = NDArray[np.float64]

CENTER, DEGREE = 5.0, 18  # a, and of the polynomial; measured: m to a relative 2e-14
LARGEST = 37.0  # exp(-z²/2) is a normal number up to here
SQRT_2PI = math.sqrt(2 * math.pi)


class Normal(NamedTuple):
    """At the points z: exp(-z²/2), which is √(2π) times the density, Φ(z) and Φ(-z)."""

    bell: Value
    cdf: Value
    beyond: Value


def normal(z: Value) -> Normal:
    """The distribution at points no smaller than -37 or larger than 37; none is smaller than 1e-299."""
    bell = (z * z * -0.5).exp()
    near, far = bell * _mills(z.abs()), z < 0.0
    rest = 1.0 - near
    return Normal(bell, far.where(near, rest), far.where(rest, near))


def _mills(x: Value) -> Value:
    """m(x)/√(2π), for x ≥ 0."""
    inverse = 1.0 / (x + CENTER)
    t = 1.0 - inverse * (2.0 * CENTER)
    highest, *others = (coefficients() / SQRT_2PI)[::-1]
    total = t * highest + others[0]
    for coefficient in others[1:]:
        total = total * t + coefficient
    return total * inverse


def coefficients() -> Array:
    """Of (x + a) · m(x) as a polynomial in t, the constant first: its interpolant at Chebyshev's points."""
    return np.asarray(Chebyshev.interpolate(_straightened, DEGREE).convert(kind=Polynomial).coef)


def _straightened(t: Array) -> Array:
    x = CENTER * (1.0 + t) / (1.0 - t)
    return (x + CENTER) * math.sqrt(math.pi / 2) * erfcx(x * math.sqrt(0.5))
