"""Which of C independent Gaussians is the largest, as a graph: `cavity.numerics.quadrature` without its tails.

The nodes are placed in the same way, row by row: f = start + a·b·sinh(t/b), from where the distribution function F of
the maximum begins to where it ends. A probability is needed to so many digits behind the point, not to so many of its
own: the window is narrower, and no logarithm is taken of what is small.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from cavity.export.graph import Value
from cavity.export.normal import LARGEST, SQRT_2PI, normal

WINDOW = 7.0  # a class is decided beyond ± this many of its σ: Φ(-7) = 1e-12
STEP, GROWTH = 0.8, 14.0  # a, as a share of the narrowest integrand at the start, and b; measured: p to 3e-12
FARTHEST = 1e120  # in widths of the narrowest integrand: its square is finite, and nodes are at most 3,900


def largest_probabilities(mean: Value, var: Value, n_classes: int) -> Value:
    """P(f_k is the largest), (C, N), of independent f_k ~ N(mean_k, var_k), each (C, N)."""
    p = _of_two(mean, var) if n_classes == 2 else _of_many(mean, var.sqrt(), n_classes)
    return p / p.sum(0, keep=True)


def _of_two(mean: Value, var: Value) -> Value:
    difference = mean.slice(0, 1, 0) - mean.slice(1, 2, 0)
    both = normal(_within(difference / var.sum(0, keep=True).sqrt()))
    return mean.graph.op("Concat", both.cdf, both.beyond, axis=0)


def _of_many(mean: Value, sd: Value, n_classes: int) -> Value:
    """Σ_nodes weight · F(f) · r_k(f)/σ_k, with r = φ/Φ: one set of nodes serves all classes."""
    mean = _about_pivot(mean, sd, n_classes)
    start = _start(mean, sd)
    f, weight, active = _nodes(mean, sd, start)
    at = normal(_within((f - mean) / sd))
    mass = weight * at.cdf.product(1, n_classes)  # (K, 1, N)
    p = (at.bell / at.cdf * mass).sum(0) / (sd * SQRT_2PI)
    return active.where(p, 0.0)


def _about_pivot(mean: Value, sd: Value, n_classes: int) -> Value:
    """Means less that of the class whose lower end is highest, so that f has the digits it needs near it."""
    lower = mean - sd * WINDOW
    chosen = mean.graph.op("Equal", np.arange(n_classes)[:, None], lower.argmax(0, keep=True))
    return mean - chosen.where(mean, 0.0).sum(0, keep=True)


def _start(mean: Value, sd: Value) -> Value:
    """Where F begins, (1, N): a step of Newton's method on √(-log F), nearly linear, from the left.

    One step is enough: what it falls short of costs a few nodes and no digits.
    """
    level = -float(log_ndtr(-WINDOW))
    f = (mean - sd * WINDOW).max(0, keep=True)
    at = normal(_within((f - mean) / sd))
    root = (at.cdf.log().sum(0, keep=True) * -1.0).sqrt()
    pull = (at.bell / at.cdf / (sd * SQRT_2PI)).sum(0, keep=True)
    return f + root * (root - level**0.5) * 2.0 / pull


def _nodes(mean: Value, sd: Value, start: Value) -> tuple[Value, Value, Value]:
    """The nodes and their weights, (K, 1, N), and which classes are undecided at the start, (C, N).

    As many as the neediest of the rows has use for.
    """
    z = (start - mean) / sd
    active = z < WINDOW
    spacing = _spacing(_within(z), sd, active)
    reach = (((mean + sd * WINDOW).max(0, keep=True) - start) / (spacing * GROWTH)).clip(0.0, FARTHEST)
    stop = (reach + (reach * reach + 1.0).sqrt()).log() * GROWTH  # GROWTH · asinh(reach)
    count = (stop.max(0, 1) + 2.0).cast("INT64")
    steps = (count - 1).cast("DOUBLE")
    share = count.graph.counted(count).cast("DOUBLE").reshape(-1, 1, 1) / steps
    rise = (share * stop * (1.0 / GROWTH)).exp()
    fall = 1.0 / rise
    width = spacing * stop / steps
    f, weight = start + spacing * (0.5 * GROWTH) * (rise - fall), width * (rise + fall) * 0.5
    return f, weight, active


def _spacing(z: Value, sd: Value, active: Value) -> Value:
    """A share of the narrowest active class's σ, less where many pull at it, (1, N)."""
    unit = active.where(sd, np.inf).min(0, keep=True)
    at = normal(z)
    hazard = at.bell / (at.cdf * SQRT_2PI)
    ratio = (unit / sd).at_most(1.0)
    curvature = (hazard * (hazard + z) * ratio * ratio).sum(0, keep=True) + 1.0
    return unit * STEP / curvature.sqrt()


def _within(z: Value) -> Value:
    """Kept where exp(-z²/2) does not vanish; all is decided long before."""
    return z.clip(-LARGEST, LARGEST)
