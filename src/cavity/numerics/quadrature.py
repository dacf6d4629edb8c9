"""Which of C independent Gaussians is the largest: p_k = ∫ N(f | μ_k, v_k) Π_{j≠k} Φ((f - μ_j)/σ_j) df.

One set of nodes per row serves all classes, for the integrand of class k is r((f - μ_k)/σ_k)/σ_k · F(f), with r = φ/Φ
and F = Π_j Φ_j the distribution function of the maximum: a node costs O(C), not O(C²).

The nodes rest on two facts. F is negligible left of the point `start`, so no class matters there. And a class that still
matters at a distance x to its right has σ ≥ x/(2 WINDOW), as its own lower end lies left of `start` too: the
integrand may be narrow near `start` only, and widens in proportion to x. So f = start + a·b·sinh(t/b), whose spacing
is a near `start` and x/b far from it. The integrand is smooth and dies at both ends, where the trapezoidal rule in t
converges faster than any power of the step. Classes too unlikely to be seen on those nodes are done by Laplace.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cavity.numerics.normal import SQRT_HALF, hazard, hazard_slope, log_ndtr

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
WINDOW = 9.5  # a class is constant beyond ± this many of its σ: Φ(-9.5) = 1e-21
LEVEL = 47.9  # F(start) = exp(-LEVEL) = Φ(-WINDOW)
STEP = 0.8  # a, as a share of the narrowest integrand at `start`
GROWTH = 20.0  # b; with STEP measured: raw sums right to 1e-13, at 40 to 50 nodes for ordinary rows
MARGIN = 4.0  # steps left of `start`, for the relative accuracy of small p
LOG_TRUST = -36.0  # below this p is left to Laplace: the nodes see relative errors of 1e-6 and less only above
LEVEL_STEPS, SPRING_STEPS, MODE_STEPS = 3, 8, 4
BLOCK = 2**18  # elements of one temporary: small enough for the cache, large enough to hide the overhead


def max_log_probs(mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
    """log P(f_k is the largest) for independent f_k ~ N(mean_k, var_k); the classes of a row sum to one within 1e-12."""
    raw = max_log_probs_raw(mean, var)
    return raw - raw.logsumexp(0)


def max_log_probs_raw(mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
    """The same before normalisation: the distance of exp(raw.logsumexp(0)) from one measures the quadrature.

    Accurate to 1e-12 in p for any means and variances, to 1e-6 of p down to p = 1e-14, and to 3 % of log p below.
    A row's result depends on its own numbers only, not on the rows it comes with.
    """
    if mean.shape[0] <= 2:
        return _one_or_two(mean, var)
    sd = var.sqrt()
    pivot = (mean - WINDOW * sd).argmax(0, keepdim=True)
    return _many(mean - mean.gather(0, pivot), sd)  # near the pivot f must resolve what the raw means cannot


def _one_or_two(mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
    """log Φ((μ_1 - μ_2)/√(v_1 + v_2)), and zero for a lone class."""
    scale = torch.hypot(*var.sqrt()) if len(var) == 2 else 1.0
    return log_ndtr((mean - mean.flip(0)) / scale) if len(var) == 2 else torch.zeros_like(mean)


def _many(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
    grid = _grid(mean, sd)
    log_p = torch.empty_like(mean)
    for nodes, rows in _row_blocks(grid, len(mean)):
        log_p[:, rows] = _integrate(mean[:, rows], sd[:, rows], grid.take(rows), nodes).log()
    tail = ~grid.active | (log_p < LOG_TRUST)
    for k, row in _tail_blocks(tail):
        log_p[k, row] = _laplace(mean[:, row], sd[:, row], k)
    return log_p


class _Grid(NamedTuple):
    """Nodes start + spacing·GROWTH·sinh(t/GROWTH), -MARGIN ≤ t ≤ stop; `active`: classes not yet decided at start."""

    start: Float[Tensor, " N"]
    spacing: Float[Tensor, " N"]
    stop: Float[Tensor, " N"]
    active: Bool[Tensor, "C N"]

    def take(self, rows: Int[Tensor, " B"]) -> "_Grid":
        return _Grid(self.start[rows], self.spacing[rows], self.stop[rows], self.active[:, rows])


def _grid(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"]) -> _Grid:
    start = _start(mean, sd)
    z = (start - mean) / sd
    active = z < WINDOW
    unit, stiffness = _stiffness(hazard_slope(z), sd, active)
    spacing = STEP * unit / (1 + stiffness).sqrt()  # the integrand of the narrowest class has this curvature
    reach = (mean + WINDOW * sd).amax(0) - start
    return _Grid(start, spacing, GROWTH * torch.asinh(reach / (GROWTH * spacing)), active)


def _start(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"]) -> Float[Tensor, " N"]:
    """Where log F = -LEVEL: Newton on √(-log F), nearly linear in f, from the left, where one class alone reaches LEVEL."""
    f = (mean - WINDOW * sd).amax(0)
    for _ in range(LEVEL_STEPS):
        z = (f - mean) / sd
        root = (-log_ndtr(z).sum(0)).sqrt()
        f = f + 2 * root * (root - math.sqrt(LEVEL)) / (hazard(z) / sd).sum(0)
    return f


def _stiffness(
    slope: Float[Tensor, "C N"], sd: Float[Tensor, "C N"], active: Bool[Tensor, "C N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """The narrowest active σ, and Σ_j slope_j/σ_j² = -(log F)'' in that unit: 1/σ² itself may overflow."""
    unit = torch.where(active, sd, math.inf).amin(0)
    return unit, (slope * (unit / sd).clamp(max=1).square()).sum(0)


def _row_blocks(grid: _Grid, classes: int) -> Iterator[tuple[int, Int[Tensor, " B"]]]:
    """Rows that take the same number of nodes, in blocks of bounded size; the number is rounded up to few values."""
    need = grid.stop + MARGIN + 2
    quantum = torch.exp2(need.log2().floor() - 2)
    nodes = (need / quantum).ceil() * quantum
    for count in nodes.unique().int().tolist():
        for rows in (nodes == count).nonzero()[:, 0].split(max(1, BLOCK // (classes * count))):
            yield count, rows


def _integrate(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"], grid: _Grid, nodes: int) -> Float[Tensor, "C N"]:
    """Σ_nodes weight · F(f) · r_k(f)/σ_k. Not in log space: what underflows here is Laplace's."""
    share = torch.linspace(0, 1, nodes, dtype=mean.dtype, device=mean.device)[:, None]
    t = (share * (grid.stop + MARGIN) - MARGIN) / GROWTH
    weight = grid.spacing * (grid.stop + MARGIN) / (nodes - 1) * t.cosh()
    z = (grid.start + grid.spacing * GROWTH * t.sinh() - mean[:, None]) / sd[:, None]
    cdf = torch.erfc(-SQRT_HALF * z).mul_(0.5).clamp_(min=torch.finfo(z.dtype).tiny)  # no 0/0 left of start
    density_of_max = cdf.prod(0).mul_(weight)
    return z.square_().mul_(-0.5).exp_().div_(cdf).mul_(density_of_max).sum(1) / (math.sqrt(2 * math.pi) * sd)


def _tail_blocks(tail: Bool[Tensor, "C N"]) -> Iterator[tuple[Int[Tensor, " B"], Int[Tensor, " B"]]]:
    k, row = tail.nonzero(as_tuple=True)
    size = max(1, BLOCK // len(tail))
    yield from zip(k.split(size), row.split(size), strict=True)


def _laplace(mean: Float[Tensor, "C B"], sd: Float[Tensor, "C B"], k: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """log p_k of an unlikely class, by Laplace's method at the mode of its integrand or by a bound, the larger.

    The log integrand g is concave and g'' grows with f, so the part right of the mode is at least what Laplace says:
    p is at least half of it. The bound is P(f_k > f) P(all others < f) ≤ p_k, true at any f.
    """
    own = torch.arange(len(mean), device=mean.device)[:, None] == k
    mean, own_sd = mean - mean.gather(0, k[None]), sd.gather(0, k[None])[0]
    f = _mode(mean, sd, own)
    z, own_z = (f - mean) / sd, f / own_sd
    unit, stiffness, _ = _newton(z, sd, own, springs=False)
    width = (unit / own_sd).log() - 0.5 * stiffness.log()
    others = log_ndtr(z).masked_fill(own, 0).sum(0)
    return others + torch.maximum(width - 0.5 * own_z.square(), log_ndtr(-own_z))


def _mode(mean: Float[Tensor, "C B"], sd: Float[Tensor, "C B"], own: Bool[Tensor, "C B"]) -> Float[Tensor, " B"]:
    """Root of g' = Σ_{j≠k} r(z_j)/σ_j - z_k/σ_k, convex and falling: Newton rises to it from μ_k = 0, never past it.

    Springs first, r ≈ max(-z, 0) ≤ r: they leave a narrow class behind in one step, where r decays over many.
    """
    f = torch.zeros_like(mean[0])
    for step in range(SPRING_STEPS + MODE_STEPS):
        unit, stiffness, force = _newton((f - mean) / sd, sd, own, springs=step < SPRING_STEPS)
        f = f + unit * force / stiffness
    return f + 4 * torch.finfo(f.dtype).eps * f.abs()  # past the rounding of f, should a class be narrower than that


def _newton(
    z: Float[Tensor, "C B"], sd: Float[Tensor, "C B"], own: Bool[Tensor, "C B"], springs: bool
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, " B"]]:
    """A unit of length, -g'' and g' in that unit; the own density is a spring that pulls both ways."""
    r = (-z).clamp(min=0) if springs else hazard(z)
    slope = (z < 0).to(z.dtype) if springs else hazard_slope(z, r)
    r, slope = torch.where(own, -z, r), slope.masked_fill(own, 1)
    unit, stiffness = _stiffness(slope, sd, slope > torch.finfo(z.dtype).eps)
    return unit, stiffness, (r * (unit / sd).clamp(max=1)).sum(0)
