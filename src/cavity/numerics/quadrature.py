"""Which of C independent Gaussians is the largest: p_k = ∫ N(f | μ_k, v_k) Π_{j≠k} Φ((f - μ_j)/σ_j) df.

One set of nodes per row serves all classes, for the integrand of class k is r((f - μ_k)/σ_k)/σ_k · F(f), with r = φ/Φ
and F = Π_j Φ_j the distribution function of the maximum: a node costs O(C), not O(C²).

The nodes rest on two facts. F is negligible left of the point `start`, so no class matters there. And a class that
still matters at a distance x to its right has σ ≥ x/(2 WINDOW), as its own lower end lies left of `start` too: the
integrand can be narrow near `start` only, and widens in proportion to x. So f = start + a·b·sinh(t/b), whose spacing
is a near `start` and x/b far from it. The integrand is smooth and dies at both ends, where the trapezoidal rule in t
converges faster than any power of the step. Classes too unlikely to be seen on those nodes are left to `tails`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cavity.numerics.linalg import is_recording
from cavity.numerics.normal import SQRT_HALF, hazard, log_ndtr, log_ndtr_curvature
from cavity.numerics.tails import WINDOW, fold, laplace, laplace_by_table, narrowest, table_range

SQRT_2PI = math.sqrt(2 * math.pi)
LEVEL = 48.3  # F(start) = exp(-LEVEL) = Φ(-WINDOW)
LEVEL_STEPS = 3
STEP = 0.8  # a, relative to the narrowest integrand at `start`
GROWTH = 20.0  # b; measured with STEP: raw sums right to 1e-13, at 40 to 50 nodes for ordinary rows
RECORDED_NODES = 80  # of a recorded step: ordinary rows take 40 to 50
MARGIN = 4.0  # steps left of `start`, for the relative accuracy of small p
LOG_TRUST = -36.0  # the nodes give p to a relative 1e-5 down to here, to 1e-7 at 1e-14
# Elements of a temporary: what a cache holds, or what hides the overhead. Results do not depend on it.
BLOCK_PER_THREAD, BLOCK_ELSEWHERE = 2**16, 2**22


def max_log_probs(mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"], tails: bool = True) -> Float[Tensor, "C N"]:
    """Return log P(f_k is the largest), eq. (11), for independent f_k ~ N(mean_k, var_k); rows sum to one to 1e-12.

    Without `tails` p is right to 1e-12, but the logarithm of a smaller p is not: it can be -∞.
    """
    raw = max_log_probs_raw(mean, var, tails)
    return raw - fold(raw.exp()).log()


@torch.no_grad()
def max_log_probs_raw(
    mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"], tails: bool = True
) -> Float[Tensor, "C N"]:
    """Return the same before normalization: the distance of raw.exp().sum(0) from one measures the quadrature.

    For float64: right to 1e-12 in p for all means and variances, to 1e-6 of p down to 1e-14, and to 4 % of log p below.
    The result of a row does not depend on other rows, to the last bit. No gradient.
    """
    sd = var.sqrt()
    if len(mean) < 3:
        return _among_all(mean, sd)
    pivot = (mean - WINDOW * sd).argmax(0, keepdim=True)
    mean = mean - mean.gather(0, pivot)  # so that f has the digits it needs near the pivot
    log_p = torch.full_like(mean, -torch.inf)
    undecided = mean + WINDOW * sd >= (mean - WINDOW * sd).amax(0)  # the others end below where one of these begins
    for rows, count in _alike(undecided.sum(0).to(mean.dtype)):
        if 2 * count > len(mean):
            log_p[:, rows] = _among_all(mean[:, rows], sd[:, rows])
        else:  # the undecided classes of each row, and others where they are fewer than `count`
            rank = torch.arange(len(mean), 0, -1, device=mean.device)[:, None]
            some = (undecided[:, rows] * len(mean) + rank).topk(count, 0).indices
            found = _among_all(mean[:, rows].gather(0, some), sd[:, rows].gather(0, some))
            log_p[:, rows] = log_p[:, rows].scatter(0, some, found)
    if tails:
        _set_tails(log_p, mean, sd)
    return log_p


class Win(NamedTuple):
    """P(f_y is the largest) of every row, with its derivatives by the mean and the variance of every class."""

    p: Float[Tensor, " N"]
    by_mean: Float[Tensor, "C N"]
    by_var: Float[Tensor, "C N"]


@torch.no_grad()
def win_probability(mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"], own: Bool[Tensor, "C N"]) -> Win:
    """Return p_y of the class of each row that `own` marks, and its derivatives; right to 1e-12 of their scale.

    On the nodes of `max_log_probs`, as many for every row as the most demanding one needs.
    With g = N(f | y) Π_{j≠y} Φ_j and r = φ/Φ of the others: p = ∫ g, ∂p/∂μ_j = −∫ g r_j/σ_j = −∂p/∂μ_y of that j.
    ∂p/∂v = ½ ∂²p/∂μ²: −½ ∫ g r_j z_j/σ_j² for the others, ½ ∫ g (z_y/σ_y) Σ_j r_j/σ_j for y.
    """
    sd = var.sqrt()
    pivot = (mean - WINDOW * sd).argmax(0, keepdim=True)
    mean = mean - mean.gather(0, pivot)
    grid = _grid(mean, sd)
    need = grid.stop.amax() + MARGIN + 2
    if is_recording(need):  # the device cannot be asked: NaN if these are too few
        nodes, need = RECORDED_NODES, torch.where(need <= RECORDED_NODES, 1.0, torch.nan)
        sd = sd * need
    else:
        nodes = int(need.ceil())
    parts = []
    for rows in torch.arange(len(var[0]), device=var.device).split(_block_size(own, nodes)):
        y, sigma = own[:, rows], sd[:, rows]
        z, weight, cdf = _at_nodes(mean[:, rows], sigma, grid.take(rows), nodes)
        rate = z.square().mul_(-0.5).exp_().div_(cdf).div_(SQRT_2PI * sigma)  # r_j/σ_j; of y, what makes F its g
        g = weight * cdf.prod(1) * torch.where(y, rate, 0.0).sum(1)
        pull, own_z = rate.masked_fill_(y, 0.0).sum(1), torch.where(y, z, 0.0).sum(1)
        by_other, by_own = torch.einsum("nb,ncb->cb", g, rate), (g * pull).sum(0)
        by_other_var, by_own_var = (
            torch.einsum("nb,ncb->cb", g, rate.mul_(z)) / sigma,
            (g * pull * own_z).sum(0) / sigma,
        )
        by_var = 0.5 * torch.where(y, by_own_var, -by_other_var)
        parts.append(Win(g.sum(0), torch.where(y, by_own, -by_other), by_var))
    return parts[0] if len(parts) == 1 else Win(*(torch.cat(part, -1) for part in zip(*parts, strict=True)))


def _among_all(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
    """Return log Σ_nodes weight · F(f) · r_k(f)/σ_k. Log space takes twice the time; what underflows is a tail."""
    if len(mean) == 1:
        return torch.zeros_like(mean)
    if len(mean) == 2:
        return log_ndtr((mean - mean.flip(0)) / torch.hypot(sd[0], sd[1]))
    grid = _grid(mean, sd)
    log_p = torch.empty_like(mean)
    for rows, nodes in _equal_blocks(grid.stop + MARGIN + 2, grid.active):
        z, weight, cdf = _at_nodes(mean[:, rows], sd[:, rows], grid.take(rows), nodes)
        mass = weight * fold(cdf.transpose(0, 1), torch.mul)
        p = fold(z.square_().mul_(-0.5).exp_().div_(cdf).mul_(mass[:, None])) / (SQRT_2PI * sd[:, rows])
        log_p[:, rows] = p.log()
    return log_p.masked_fill_(~grid.active, -torch.inf)


def _set_tails(log_p: Float[Tensor, "C N"], mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"]) -> None:
    """Apply Laplace's method to classes too unlikely for the nodes: by a table in rows where it has fewer nodes."""
    tail = log_p < LOG_TRUST
    low, high, need = table_range(mean, sd, tail)
    is_many = tail.sum(0) > need
    many = is_many.nonzero()[:, 0]
    for places, nodes in _equal_blocks(need[many], tail):
        rows = many[places]
        found = laplace_by_table(mean[:, rows], sd[:, rows], low[rows], high[rows], nodes)
        log_p[:, rows] = torch.where(tail[:, rows], found, log_p[:, rows])
    few = (tail & ~is_many).nonzero()
    for k, row in (block.unbind(1) for block in few.split(_block_size(tail, 1)) if len(few)):
        log_p[k, row] = laplace(mean[:, row], sd[:, row], k)


class _Grid(NamedTuple):
    """Nodes start + spacing·GROWTH·sinh(t/GROWTH), -MARGIN ≤ t ≤ stop; `active`: the classes undecided at start."""

    start: Float[Tensor, " N"]
    spacing: Float[Tensor, " N"]
    stop: Float[Tensor, " N"]
    active: Bool[Tensor, "C N"]

    def take(self, rows: Int[Tensor, " B"]) -> _Grid:
        return _Grid(self.start[rows], self.spacing[rows], self.stop[rows], self.active[:, rows])


def _grid(mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"]) -> _Grid:
    """Find `start`, where log F = -LEVEL, by Newton on √(-log F), which is nearly linear; then spacing and reach."""
    start = (mean - WINDOW * sd).amax(0)  # right if that class were alone
    for _ in range(LEVEL_STEPS):
        z = (start - mean) / sd
        root = fold(-log_ndtr(z)).sqrt()
        start = start + 2 * root * (root - math.sqrt(LEVEL)) / fold(hazard(z) / sd)
    z = (start - mean) / sd
    active = z < WINDOW
    unit, ratio = narrowest(sd, active)
    curvature = 1 + fold(log_ndtr_curvature(z) * ratio.square())  # of the narrowest class's integrand, per unit²
    spacing = STEP * unit / curvature.sqrt()
    reach = (mean + WINDOW * sd).amax(0) - start
    return _Grid(start, spacing, GROWTH * torch.asinh(reach / (GROWTH * spacing)), active)


def _equal_blocks(need: Float[Tensor, " N"], like: Bool[Tensor, "C _"]) -> Iterator[tuple[Int[Tensor, " B"], int]]:
    """Yield rows that take the same number of nodes, in blocks of bounded size."""
    for rows, nodes in _alike(need):
        yield from ((block, nodes) for block in rows.split(_block_size(like, nodes)))


def _alike(need: Float[Tensor, " N"]) -> Iterator[tuple[Int[Tensor, " B"], int]]:
    """Yield rows of equal need, rounded up to one of four numbers per octave."""
    quantum = torch.exp2(need.log2().floor() - 2).clamp(min=1)
    need = (need / quantum).ceil() * quantum
    for count in need.unique().int().tolist():
        yield (need == count).nonzero()[:, 0], count


def _block_size(like: Bool[Tensor, "C N"], nodes: int) -> int:
    budget = BLOCK_PER_THREAD * torch.get_num_threads() if like.device.type == "cpu" else BLOCK_ELSEWHERE
    return max(1, budget // (len(like) * nodes))


def _at_nodes(
    mean: Float[Tensor, "C N"], sd: Float[Tensor, "C N"], grid: _Grid, nodes: int
) -> tuple[Float[Tensor, "K C N"], Float[Tensor, "K N"], Float[Tensor, "K C N"]]:
    """Return z of every class at every node, the weights of the nodes, and Φ(z)."""
    along = torch.linspace(0, 1, nodes, dtype=mean.dtype, device=mean.device)[:, None]
    t = (along * (grid.stop + MARGIN) - MARGIN) / GROWTH
    weight = grid.spacing * (grid.stop + MARGIN) / (nodes - 1) * t.cosh()
    z = ((grid.start + grid.spacing * GROWTH * t.sinh())[:, None] - mean) / sd
    cdf = torch.erfc(-SQRT_HALF * z).mul_(0.5).clamp_(min=torch.finfo(z.dtype).tiny)  # no 0/0 left of start
    return z, weight, cdf
