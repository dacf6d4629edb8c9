"""The probability that each of C independent Gaussians is the largest, as a graph.

This is `cavity.numerics.quadrature` without its tails: probabilities need an absolute accuracy here, not a relative
one. The window is narrower, and small numbers need no logarithms.

The standard normal distribution uses operators that every runtime has for float64. Φ(-x) = φ(x) · m(x) for x ≥ 0, where
Mills' ratio m falls smoothly from √(π/2) to 1/x. In t = (x - a)/(x + a), which maps x ≥ 0 to [-1, 1), the function
(x + a) · m(x) is nearly linear, and a polynomial approximates it well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from cavity.export.graph import Value

Array = NDArray[np.float64]

MILLS_CENTER, MILLS_DEGREE = 5.0, 18  # a and the degree of the polynomial: m has a measured relative error of 2e-14
LARGEST = 37.0  # exp(-z²/2) is a normal float64 for |z| up to this
SQRT_2PI = math.sqrt(2 * math.pi)
WINDOW = 7.0  # a class is decided beyond ± this many σ: Φ(-7) = 1e-12
STEP, GROWTH = 0.8, 14.0  # a, relative to the narrowest integrand at the start, and b: p has a measured error of 3e-12
FARTHEST = 1e120  # in widths of the narrowest integrand: its square is finite, and there are at most 3,900 nodes


def _scaled_mills(t: Array) -> Array:
    x = MILLS_CENTER * (1.0 + t) / (1.0 - t)
    return (x + MILLS_CENTER) * math.sqrt(math.pi / 2) * erfcx(x * math.sqrt(0.5))


# Coefficients of (x + a) · m(x)/√(2π) as a polynomial in t, from its interpolant at Chebyshev points; highest first.
_interpolant = Chebyshev.interpolate(_scaled_mills, MILLS_DEGREE).convert(kind=Polynomial)
MILLS = np.asarray(_interpolant.coef, dtype=np.float64)[::-1] / SQRT_2PI


def largest_probabilities(mean: Value, var: Value, n_classes: int) -> Value:
    """P(f_k is the largest), (C, N), of independent f_k ~ N(mean_k, var_k), each (C, N).

    Σ_nodes weight · F(f) · r_k(f)/σ_k with r = φ/Φ, on nodes that all classes share.
    """
    if n_classes == 2:
        difference = mean.slice(0, 1, 0) - mean.slice(1, 2, 0)
        both = normal(_clip(difference / var.sum(0, keepdims=True).sqrt()))
        p = mean.graph.op("Concat", both.cdf, both.upper_tail, axis=0)
    else:
        # Subtract the mean of the class with the highest lower end: f is accurate near it.
        sd = var.sqrt()
        lower = mean - sd * WINDOW
        pivot = mean.graph.op("Equal", np.arange(n_classes)[:, None], lower.argmax(0, keepdims=True))
        mean = mean - pivot.where(mean, 0.0).sum(0, keepdims=True)
        f, weight, active = _nodes(mean, sd, _start(mean, sd))
        at = normal(_clip((f - mean) / sd))
        mass = weight * at.cdf.prod(1, n_classes)  # (K, 1, N)
        p = (at.bell / at.cdf * mass).sum(0) / (sd * SQRT_2PI)
        p = active.where(p, 0.0)
    return p / p.sum(0, keepdims=True)


class Normal(NamedTuple):
    """exp(-z²/2), Φ(z) and Φ(-z) at points z."""

    bell: Value
    cdf: Value
    upper_tail: Value


def normal(z: Value) -> Normal:
    """The standard normal distribution at points from -37 to 37. All values are at least 1e-299."""
    bell = (z * z * -0.5).exp()
    inverse = 1.0 / (z.abs() + MILLS_CENTER)
    t = 1.0 - inverse * (2.0 * MILLS_CENTER)
    total = t * MILLS[0] + MILLS[1]
    for coefficient in MILLS[2:]:
        total = total * t + coefficient
    tail, is_negative = bell * (total * inverse), z < 0.0
    rest = 1.0 - tail
    return Normal(bell, is_negative.where(tail, rest), is_negative.where(rest, tail))


def _start(mean: Value, sd: Value) -> Value:
    """Where F begins, (1, N): one Newton step from the left on √(-log F), which is nearly linear.

    One step is enough: a start too far left costs a few nodes but no accuracy.
    """
    level = -float(log_ndtr(-WINDOW))
    f = (mean - sd * WINDOW).max(0, keepdims=True)
    at = normal(_clip((f - mean) / sd))
    root = (at.cdf.log().sum(0, keepdims=True) * -1.0).sqrt()
    slope = (at.bell / at.cdf / (sd * SQRT_2PI)).sum(0, keepdims=True)
    return f + root * (root - level**0.5) * 2.0 / slope


def _nodes(mean: Value, sd: Value, start: Value) -> tuple[Value, Value, Value]:
    """Nodes and weights, (K, 1, N), and which classes are undecided at the start, (C, N).

    The row that needs the most nodes sets their number.
    """
    z = (start - mean) / sd
    active, z = z < WINDOW, _clip(z)
    unit = active.where(sd, np.inf).min(0, keepdims=True)  # the smallest σ of the active classes
    at = normal(z)
    hazard = at.bell / (at.cdf * SQRT_2PI)
    ratio = (unit / sd).minimum(1.0)
    curvature = (hazard * (hazard + z) * ratio * ratio).sum(0, keepdims=True) + 1.0
    spacing = unit * STEP / curvature.sqrt()
    reach = (((mean + sd * WINDOW).max(0, keepdims=True) - start) / (spacing * GROWTH)).clip(0.0, FARTHEST)
    stop = (reach + (reach * reach + 1.0).sqrt()).log() * GROWTH  # GROWTH · asinh(reach)
    count = (stop.max(0, 1) + 2.0).cast("INT64")
    steps = (count - 1).cast("DOUBLE")
    fraction = count.graph.arange(count).cast("DOUBLE").reshape(-1, 1, 1) / steps
    rise = (fraction * stop * (1.0 / GROWTH)).exp()
    fall = 1.0 / rise
    width = spacing * stop / steps
    f, weight = start + spacing * (0.5 * GROWTH) * (rise - fall), width * (rise + fall) * 0.5
    return f, weight, active


def _clip(z: Value) -> Value:
    """Limit z so that exp(-z²/2) does not underflow. Probabilities are decided long before."""
    return z.clip(-LARGEST, LARGEST)
