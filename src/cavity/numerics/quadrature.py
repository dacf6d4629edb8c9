"""Which of C independent Gaussians is the largest: p_k = ∫ N(f | μ_k, v_k) Π_{j≠k} Φ((f - μ_j)/σ_j) df.

One set of nodes per row serves all classes, for the integrand of class k is r((f - μ_k)/σ_k)/σ_k · F(f), with r = φ/Φ
and F = Π_j Φ_j the distribution function of the maximum: a node costs O(C), not O(C²).

The nodes rest on two facts. F is negligible left of the point `start`, so no class matters there. And a class that
still matters at a distance x to its right has σ ≥ x/(2 WINDOW), as its own lower end lies left of `start` too: the
integrand can be narrow near `start` only, and widens in proportion to x. So f = start + a·b·sinh(t/b), whose spacing
is a near `start` and x/b far from it. The integrand is smooth and dies at both ends, where the trapezoidal rule in t
converges faster than any power of the step. Classes too unlikely to be seen on those nodes are left to Laplace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cavity.numerics.linalg import is_recording
from cavity.numerics.normal import SQRT_HALF, hazard, hazard_slope, log_ndtr

SQRT_2PI = math.sqrt(2 * math.pi)
WINDOW = 9.5  # a class is decided beyond ± this many of its σ: Φ(-9.5) = 1e-21
LEVEL = 48.3  # F(start) = exp(-LEVEL) = Φ(-WINDOW)
LEVEL_STEPS = 3
STEP = 0.8  # a, as a share of the narrowest integrand at `start`
GROWTH = 20.0  # b; measured with STEP: raw sums right to 1e-13, at 40 to 50 nodes for ordinary rows
RECORDED_NODES = 80  # of a recorded step: ordinary rows take 40 to 50
MARGIN = 4.0  # steps left of `start`, for the relative accuracy of small p
LOG_TRUST = -36.0  # the nodes give p to a relative 1e-5 down to here, to 1e-7 at 1e-14
MODE_STEPS, MODE_TOLERANCE = 24, 1e-2  # mode to a share of the integrand's width: log p to its square
BEYOND = 40.0  # where log Φ, hazard and slope are all zero
# Elements of a temporary: what a cache holds, or what hides the overhead. Results do not depend on it.
BLOCK_PER_THREAD, BLOCK_ELSEWHERE = 2**16, 2**22


def max_log_probs(mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
    """log P(f_k is the largest), eq. (11), for independent f_k ~ N(mean_k, var_k); rows sum to one within 1e-12."""
    raw = max_log_probs_raw(mean, var)
    return raw - _total(raw.exp()).log()


@torch.no_grad()
def max_log_probs_raw(mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
    """The same before normalisation: the distance of raw.exp().sum(0) from one measures the quadrature.

    For float64: right to 1e-12 in p for all means and variances, to 1e-6 of p down to 1e-14, and to 4 % of log p below.
    A row's result depends on its own numbers only, to the last bit, not on the rows beside it. No gradient.
    """
    if len(mean) == 1:
        return torch.zeros_like(mean)
    sd = var.sqrt()
    if len(mean) == 2:
        return log_ndtr((mean - mean.flip(0)) / torch.hypot(sd[0], sd[1]))
    pivot = (mean - WINDOW * sd).argmax(0, keepdim=True)
    return _many(mean - mean.gather(0, pivot), sd)  # so that f has the digits it needs near the pivot


class Win(NamedTuple):
    """P(f_y is the largest) of every row, with its derivatives by the mean and the variance of every class."""

    p: Float[Tensor, " N"]
    by_mean: Float[Tensor, "C N"]
    by_var: Float[Tensor, "C N"]


@torch.no_grad()
def win_probability(mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"], own: Bool[Tensor, "C N"]) -> Win:
    """p_y of the one class of each row that `own` marks, and its derivatives; all right to 1e-12 of their scale.

    On the nodes of `max_log_probs`, as many for all rows as the neediest has use for.
    """
    sd = var.sqrt()
    pivot = (mean - WINDOW * sd).argmax(0, keepdim=True)
    mean = mean - mean.gather(0, pivot)
    grid = _grid(mean, sd)
    need = grid.stop.amax() + MARGIN + 2
    if is_recording(need):  # no number can be asked for: NaN if these are too few
        nodes, need = RECORDED_NODES, torch.where(need <= RECORDED_NODES, 1.0, torch.nan)
        sd = sd * need
    else:
        nodes = int(need.ceil())
    blocks = torch.arange(len(var[0]), device=var.device).split(_block_size(own, nodes))
    parts = [_win(mean[:, rows], sd[:, rows], own[:, rows], grid.take(rows), nodes) for rows in blocks]
    return parts[0] if len(parts) == 1 else Win(*(torch.cat(part, -1) for part in zip(*parts, strict=True)))


def _win(
    mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"], own: Bool[Tensor, "C N"], grid: _Grid, nodes: int
) -> Win:
    """With g = N(f | y) Π_{j≠y} Φ_j and r = φ/Φ of the others: p = ∫ g, ∂p/∂μ_j = −∫ g r_j/σ_j = −∂p/∂μ_y of that j.

    ∂p/∂v = ½ ∂²p/∂μ²: −½ ∫ g r_j z_j/σ_j² for the others, ½ ∫ g (z_y/σ_y) Σ_j r_j/σ_j for y.
    """
    z, weight, cdf = _at_nodes(mean, sd, grid, nodes)
    rate = z.square().mul_(-0.5).exp_().div_(cdf).div_(SQRT_2PI * sd)  # r_j/σ_j; of y itself, what makes F its g
    g = weight * cdf.prod(1) * torch.where(own, rate, 0.0).sum(1)
    rate.masked_fill_(own, 0.0)
    pull = rate.sum(1)
    own_z = torch.where(own, z, 0.0).sum(1)
    by_other, by_own = torch.einsum("nb,ncb->cb", g, rate), (g * pull).sum(0)
    curve_other = torch.einsum("nb,ncb->cb", g, rate.mul_(z)) / sd
    curve_own = (g * pull * own_z).sum(0) / sd
    return Win(g.sum(0), torch.where(own, by_own, -by_other), 0.5 * torch.where(own, curve_own, -curve_other))


def _many(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
    grid = _grid(mean, sd)
    log_p = torch.empty_like(mean)
    for rows, nodes in _row_blocks(grid):
        log_p[:, rows] = _integrate(mean[:, rows], sd[:, rows], grid.take(rows), nodes).log()
    for k, row in _tail_blocks(~grid.active | (log_p < LOG_TRUST)):
        log_p[k, row] = _laplace(mean[:, row], sd[:, row], k)
    return log_p


class _Grid(NamedTuple):
    """Nodes start + spacing·GROWTH·sinh(t/GROWTH), -MARGIN ≤ t ≤ stop; `active`: the classes undecided at start."""

    start: Float[Tensor, " N"]
    spacing: Float[Tensor, " N"]
    stop: Float[Tensor, " N"]
    active: Bool[Tensor, "C N"]

    def take(self, rows: Int[Tensor, " B"]) -> _Grid:
        return _Grid(self.start[rows], self.spacing[rows], self.stop[rows], self.active[:, rows])


def _grid(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"]) -> _Grid:
    start = _start(mean, sd)
    z = (start - mean) / sd
    active = z < WINDOW
    unit, ratio = _narrowest(sd, active)
    curvature = 1 + _total(hazard_slope(z) * ratio.square())  # of the narrowest class's integrand, per unit²
    spacing = STEP * unit / curvature.sqrt()
    reach = (mean + WINDOW * sd).amax(0) - start
    return _Grid(start, spacing, GROWTH * torch.asinh(reach / (GROWTH * spacing)), active)


def _start(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"]) -> Float[Tensor, " N"]:
    """Where log F = -LEVEL: Newton on √(-log F), nearly linear, from the left, where one class alone reaches it."""
    f = (mean - WINDOW * sd).amax(0)
    for _ in range(LEVEL_STEPS):
        z = (f - mean) / sd
        root = _total(-log_ndtr(z)).sqrt()
        f = f + 2 * root * (root - math.sqrt(LEVEL)) / _total(hazard(z) / sd)
    return f


def _narrowest(
    sd: Float[Tensor, "C N"], active: Bool[Tensor, "C N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, "C N"]]:
    """The least σ of the active classes, and its ratio to every σ: a unit of length in which 1/σ² does not overflow."""
    unit = torch.where(active, sd, math.inf).amin(0)
    return unit, (unit / sd).clamp(max=1)


def _row_blocks(grid: _Grid) -> Iterator[tuple[Int[Tensor, " B"], int]]:
    """Rows that take the same number of nodes, in blocks of bounded size; four numbers to the octave."""
    need = grid.stop + MARGIN + 2
    quantum = torch.exp2(need.log2().floor() - 2)
    nodes = (need / quantum).ceil() * quantum
    for count in nodes.unique().int().tolist():
        rows = (nodes == count).nonzero()[:, 0]
        yield from ((block, count) for block in rows.split(_block_size(grid.active, count)))


def _block_size(like: Bool[Tensor, "C N"], nodes: int) -> int:
    budget = BLOCK_PER_THREAD * torch.get_num_threads() if like.device.type == "cpu" else BLOCK_ELSEWHERE
    return max(1, budget // (len(like) * nodes))


def _integrate(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"], grid: _Grid, nodes: int) -> Float[Tensor, "C N"]:
    """Σ_nodes weight · F(f) · r_k(f)/σ_k. Not in log space, which costs twice the time: what underflows is a tail."""
    z, weight, cdf = _at_nodes(mean, sd, grid, nodes)
    mass = weight * _fold(cdf.transpose(0, 1), torch.mul)
    return _total(z.square_().mul_(-0.5).exp_().div_(cdf).mul_(mass[:, None])) / (SQRT_2PI * sd)


def _at_nodes(
    mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"], grid: _Grid, nodes: int
) -> tuple[Float[Tensor, "K C N"], Float[Tensor, "K N"], Float[Tensor, "K C N"]]:
    """z and Φ(z) of every class at every node, and the weights of the nodes."""
    share = torch.linspace(0, 1, nodes, dtype=mean.dtype, device=mean.device)[:, None]
    t = (share * (grid.stop + MARGIN) - MARGIN) / GROWTH
    weight = grid.spacing * (grid.stop + MARGIN) / (nodes - 1) * t.cosh()
    z = ((grid.start + grid.spacing * GROWTH * t.sinh())[:, None] - mean) / sd
    cdf = torch.erfc(-SQRT_HALF * z).mul_(0.5).clamp_(min=torch.finfo(z.dtype).tiny)  # no 0/0 left of start
    return z, weight, cdf


def _total(x: Float[Tensor, "K *rest"]) -> Float[Tensor, "*rest"]:
    return _fold(x, torch.add)


def _fold(x: Float[Tensor, "K *rest"], combine: Callable[[Tensor, Tensor], Tensor]) -> Float[Tensor, "*rest"]:
    """Reduce the first axis in an order of its own: that of torch.sum, so the last bits, hangs on the other axes."""
    while len(x) > 1:
        half = len(x) // 2
        pairs = combine(x[:half], x[half : 2 * half])
        x = torch.cat([pairs, x[2 * half :]]) if len(x) % 2 else pairs
    return x[0]


def _tail_blocks(tail: Bool[Tensor, "C N"]) -> Iterator[tuple[Int[Tensor, " B"], Int[Tensor, " B"]]]:
    k, row = tail.nonzero(as_tuple=True)
    size = _block_size(tail, 1)
    if len(k):
        yield from zip(k.split(size), row.split(size), strict=True)


def _laplace(mean: Float[Tensor, "C B"], sd: Float[Tensor, "C B"], k: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """log p_k of an unlikely class, by Laplace's method at the mode of its integrand or by a bound, the larger.

    The log integrand g is concave and g'' grows with f, so the part right of the mode is at least what Laplace says:
    p is at least half of it. The bound is P(f_k > f) P(all others < f) ≤ p_k, true at any f. Where rounding has lost
    the mode, Π_j P(f_k > f_j) ≤ p_k ≤ min_j P(f_k > f_j) holds on (Slepian on the left).
    """
    own = torch.arange(len(mean), device=mean.device)[:, None] == k
    mean, own_sd = mean - mean.gather(0, k[None]), sd.gather(0, k[None])[0]
    f = _mode(mean, sd, own, own_sd)
    z, own_z = ((f - mean) / sd).masked_fill(own, BEYOND), f / own_sd
    unit, _, stiffness = _barrier(z, sd, own)
    log_width = (unit / own_sd).log() - 0.5 * (stiffness + (unit / own_sd).square()).log()
    log_p = _total(log_ndtr(z)) + torch.maximum(log_width - 0.5 * own_z.square(), log_ndtr(-own_z))
    pairs = log_ndtr(-mean / torch.hypot(sd, own_sd)).masked_fill(own, 0)
    return log_p.clamp(_total(pairs), pairs.amin(0))


def _mode(
    mean: Float[Tensor, "C B"],
    sd: Float[Tensor, "C B"],
    own: Bool[Tensor, "C B"],
    own_sd: Float[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """Where the others' pull to the right, Σ_{j≠k} r(z_j)/σ_j, balances the own pull back f/σ_k², with μ_k = 0.

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
    """The same with r(z) ≈ max(-z, 0) ≤ r(z), so left of the mode: linear between two means, exact after a sort."""
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
    """A unit of length and, in it, the first derivative of Σ_{j≠k} log Φ(z_j) and the second, negated."""
    r = hazard(z)
    slope = hazard_slope(z, r)
    unit, ratio = _narrowest(sd, own | (slope > torch.finfo(z.dtype).eps))
    return unit, _total(r * ratio), _total(slope * ratio.square())
