"""log P(f_k is the largest) of a class k that is too unlikely for quadrature, by Laplace's method.

The log integrand g(f) = -½((f - μ_k)/σ_k)² + Σ_{j≠k} log Φ((f - μ_j)/σ_j) is concave: its mode and its curvature there
determine p_k. `laplace` finds them class by class; `laplace_by_table` shares the sum over all j between the classes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cavity.numerics.normal import hazard, log_ndtr, log_ndtr_curvature

WINDOW = 9.5  # a class is decided beyond ± this many of its σ: Φ(-9.5) = 1e-21
MODE_STEPS, MODE_TOLERANCE = 24, 1e-2  # mode to a share of the integrand's width: log p to its square
BEYOND = 40.0  # where log Φ, hazard and curvature are all zero
TABLE_STEP = 2.0  # of the narrowest σ; measured: log p of 1000 classes to 1e-3
ROOT_STEPS = 5


def fold(
    x: Float[Tensor, "K *rest"], combine: Callable[[Tensor, Tensor], Tensor] = torch.add
) -> Float[Tensor, "*rest"]:
    """Reduce the first axis in a fixed order; with torch.sum the last bits depend on the sizes of the other axes."""
    while len(x) > 1:
        half = len(x) // 2
        pairs = combine(x[:half], x[half : 2 * half])
        x = torch.cat([pairs, x[2 * half :]]) if len(x) % 2 else pairs
    return x[0]


def narrowest(
    sd: Float[Tensor, "C N"], active: Bool[Tensor, "C N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, "C N"]]:
    """Return the least σ of the active classes, a unit in which 1/σ² does not overflow, and its ratio to every σ."""
    unit = torch.where(active, sd, torch.inf).amin(0)
    return unit, (unit / sd).clamp(max=1)


def laplace(mean: Float[Tensor, "C B"], sd: Float[Tensor, "C B"], k: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Return log p_k of an unlikely class: Laplace's method at the mode of its integrand, or a bound if it is larger.

    The log integrand g is concave and g'' grows with f, so the part right of the mode is at least Laplace's
    estimate of it: p is at least half of the estimate. The bound is P(f_k > f) P(all others < f) ≤ p_k, true at any f.
    If rounding has lost the mode, Π_j P(f_k > f_j) ≤ p_k ≤ min_j P(f_k > f_j) still holds (Slepian on the left).
    """
    own = torch.arange(len(mean), device=mean.device)[:, None] == k
    mean, own_sd = mean - mean.gather(0, k[None]), sd.gather(0, k[None])[0]
    f = _mode(mean, sd, own, own_sd)
    z, own_z = ((f - mean) / sd).masked_fill(own, BEYOND), f / own_sd
    unit, _, stiffness = _barrier(z, sd, own)
    log_width = (unit / own_sd).log() - 0.5 * (stiffness + (unit / own_sd).square()).log()
    log_p = fold(log_ndtr(z)) + torch.maximum(log_width - 0.5 * own_z.square(), log_ndtr(-own_z))
    pairs = log_ndtr(-mean / torch.hypot(sd, own_sd)).masked_fill(own, 0)
    return log_p.clamp(fold(pairs), pairs.amin(0))


def _mode(
    mean: Float[Tensor, "C B"], sd: Float[Tensor, "C B"], own: Bool[Tensor, "C B"], own_sd: Float[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """Find where the others' pull to the right, Σ_{j≠k} r(z_j)/σ_j, balances the own pull back f/σ_k², with μ_k = 0.

    Newton on the logarithm of their ratio as a function of log f, for r decays like a Gaussian right of a narrow class.
    The ratio falls at least like 1/f, so each f and the f that would balance its pull enclose the root.
    """
    f = _spring_mode(mean, sd, own)
    lo, hi = f, (mean + WINDOW * sd).amax(0)  # all is decided there
    for _ in range(MODE_STEPS):
        unit, pull, stiffness = _barrier(((f - mean) / sd).masked_fill(own, BEYOND), sd, own)
        ratio = unit / own_sd
        force, curvature = pull - f / own_sd * ratio, stiffness + ratio.square()
        moving = force.abs() > MODE_TOLERANCE * curvature.sqrt()  # a class at rest stays, whatever the others do
        if not moving.any():
            break
        balance = own_sd * (pull / ratio)
        lo, hi = torch.maximum(lo, torch.minimum(f, balance)), torch.minimum(hi, torch.maximum(f, balance))
        rise = ((balance / f).log() / (1 + f / unit * (stiffness / pull))).exp()
        guess = torch.where(f > 0, f * rise, unit * force / curvature)
        guess = torch.where((guess >= lo) & (guess <= hi), guess, lo.sqrt() * hi.sqrt())
        f = torch.where(moving, guess, f)
    return f + 4 * torch.finfo(f.dtype).eps * f.abs()  # past the rounding of f, should a class be narrower than that


def _spring_mode(mean: Float[Tensor, "C B"], sd: Float[Tensor, "C B"], own: Bool[Tensor, "C B"]) -> Float[Tensor, " B"]:
    """Solve the same with r(z) ≈ max(-z, 0) ≤ r(z): left of the mode, linear between two means, exact after a sort."""
    precision = (sd.amin(0) / sd).square().clamp(min=torch.finfo(sd.dtype).tiny)
    own_precision = torch.where(own, precision, 0).sum(0)
    corner, order = mean.sort(0, descending=True)
    total = precision.gather(0, order).cumsum(0)
    pull = torch.cat([torch.zeros_like(total[:1]), (total[:-1] * -corner.diff(dim=0)).cumsum(0)])
    right = ((own_precision * corner >= pull).sum(0, keepdim=True) - 1).clamp(min=0)  # the corner right of the root
    pull, total, corner = (x.gather(0, right)[0] for x in (pull, total, corner))
    return (pull + total * corner) / (total + own_precision)


def _barrier(
    z: Float[Tensor, "C B"], sd: Float[Tensor, "C B"], own: Bool[Tensor, "C B"]
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Return a unit of length and, in it, the first derivative of Σ_{j≠k} log Φ(z_j) and minus the second."""
    r = hazard(z)
    curvature = log_ndtr_curvature(z, r)
    unit, ratio = narrowest(sd, own | (curvature > torch.finfo(z.dtype).eps))
    return unit, fold(r * ratio), fold(curvature * ratio.square())


def table_range(
    mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"], tail: Bool[Tensor, "C N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the interval that holds the modes of the classes in the tail, and how many nodes a table of it takes."""
    low, high = torch.where(tail, mean, torch.inf).amin(0), (mean + WINDOW * sd).amax(0)
    unit, _ = narrowest(sd, mean + WINDOW * sd > low)
    return low, high, (high - low) / (TABLE_STEP * unit) + 2


def laplace_by_table(
    mean: Float[Tensor, "C B"],
    sd: Float[Tensor, "C B"],
    low: Float[Tensor, " B"],
    high: Float[Tensor, " B"],
    nodes: int,
) -> Float[Tensor, "C B"]:
    """Return log p of all classes; it holds for those whose mode lies between `low` and `high`.

    Around the mode the log integrand is a quintic, from its value and two derivatives at the nodes on both sides.
    """
    step = (high - low) / (nodes - 1)
    f = low + step * torch.arange(nodes, dtype=mean.dtype, device=mean.device)[:, None]
    z, step_z = (f[:, None] - mean) / sd, step / sd
    r = hazard(z)
    of_one = log_ndtr(z), r * step_z, -log_ndtr_curvature(z, r) * step_z.square()
    of_others = (fold(x.transpose(0, 1))[:, None] - x for x in of_one)  # Σ_{j≠k} is Σ_j less its k-th term
    own = -0.5 * z.square(), -z * step_z, -step_z.square()
    value, first, second = (a + b for a, b in zip(of_others, own, strict=True))  # derivatives by f in steps
    last = ((first > 0).sum(0, keepdim=True) - 1).clamp(0, len(z) - 2)  # the node left of the mode
    value_1, first_1, second_1 = (x.gather(0, last + 1)[0] for x in (value, first, second))
    z, value, first, second = (x.gather(0, last)[0] for x in (z, value, first, second))
    a, b, c = value_1 - value - first - 0.5 * second, first_1 - first - second, second_1 - second
    c3, c4, c5 = 10 * a - 4 * b + 0.5 * c, -15 * a + 7 * b - c, 6 * a - 3 * b + 0.5 * c
    s = (first / (first - first_1)).clamp(0, 1)
    for _ in range(ROOT_STEPS):
        derivative = first + s * (second + s * (3 * c3 + s * (4 * c4 + s * 5 * c5)))
        s = (s - derivative / (second + s * (6 * c3 + s * (12 * c4 + s * 20 * c5)))).clamp(0, 1)
    peak = value + s * (first + s * (0.5 * second + s * (c3 + s * (c4 + s * c5))))
    curvature = -(second + s * (6 * c3 + s * (12 * c4 + s * 20 * c5)))
    own_z, log_width = z + s * step / sd, step_z.log() - 0.5 * curvature.log()
    return peak + torch.maximum(log_width, log_ndtr(-own_z) + 0.5 * own_z.square())
