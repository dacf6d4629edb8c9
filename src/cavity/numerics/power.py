"""Moments of a probit factor to a power: Z = ∫ Φ(g/√b)^α N(g | m, v) dg, its logarithm and derivatives.

Power EP needs them for α < 1; at α = 1, Z is Φ(m/√(v + b)). Φ(x)^α is itself a distribution function. So with
x = g/√b, Z is an integral over either of two variables, and each log integrand is concave:

- if v is small, over e = (g − m)/√v:  α log Φ(x) − ½e², where Φ(x)^α is smooth on the scale of the Gaussian;
- if v is large, over e = x:  (α − 1) log Φ(x) − ½x² + log Φ(y), y = (m − √b x)/√v, after an integration by parts.

Neither has a detail that is narrower than its Gaussian, so the trapezoidal rule converges exponentially.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.numerics.normal import hazard, log_ndtr, log_ndtr_curvature

LARGEST_RATIO, RATIO_POWER = 1.2, -0.35  # v/b up to which the integral is over g: this times α to that power
MODE_STEPS, REACH_STEPS = 6, 2  # of Newton's method
REACH = 8.3  # the log integrand falls by ½ REACH² to both ends: to 1e-15 of its maximum
NODES, MOST_NODES = 44, 400
NODES_OF_SMALL, NODES_POWER = 18.0, -0.3  # small α: nodes are this times α to that power, if these are more
OVERLAP, CORNER = 1.12, 0.25  # of the nodes in units of the reach; where their spacing changes from left to right
FARTHEST = 50.0  # of a log integrand from its maximum, which rounding exceeds for extreme m
BEYOND = 40.0  # where log Φ, hazard and curvature are all zero
BLOCK, GPU_BLOCK = 1 << 12, 1 << 15  # integrals at a time
LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class PowerTilted(NamedTuple):
    """log Z and its derivatives: by the mean m, minus the second by m (`omega`), by v, and by b (`by_s`)."""

    log_z: Float[Tensor, "..."]
    by_mean: Float[Tensor, "..."]
    omega: Float[Tensor, "..."]
    by_var: Float[Tensor, "..."]
    by_s: Float[Tensor, "..."]


def power_tilted(
    mean: Float[Tensor, "..."], var: Float[Tensor, "..."], b: Float[Tensor, "..."], alpha: float
) -> PowerTilted:
    """Return log Z and its derivatives, relative to their scale right to 1e-11 for α ≥ 0.25, to 1e-8 for α ≥ 0.003."""
    size = GPU_BLOCK if mean.is_cuda else BLOCK
    blocks = zip(*(x.reshape(-1).split(size) for x in (mean, var, b)), strict=True)
    parts = [_integrate(m, v, s, alpha) for m, v, s in blocks]
    return PowerTilted(*(torch.cat(x).view(mean.shape) for x in zip(*parts, strict=True)))


def _integrate(m: Float[Tensor, " B"], v: Float[Tensor, " B"], b: Float[Tensor, " B"], alpha: float) -> PowerTilted:
    over_g, ratio, one = v <= LARGEST_RATIO * alpha**RATIO_POWER * b, v / b, torch.ones_like(v)
    f = _LogIntegrand(
        power=torch.where(over_g, alpha, (alpha - 1.0) * one),
        start=torch.where(over_g, m / b.sqrt(), 0.0),
        slope=torch.where(over_g, ratio.sqrt(), 1.0),
        y_start=torch.where(over_g, BEYOND, m / v.sqrt()),
        y_slope=torch.where(over_g, 0.0, ratio.rsqrt()),
        least=torch.where(over_g, one, alpha),
        most=1.0 + torch.where(over_g, alpha * ratio, b / v),
    )
    # The mode, from that with r(x) ≈ max(−x, 0), and over x not right of that of the power alone
    low = m.clamp_max(0.0) / b.sqrt() / (1.0 + alpha * ratio)
    mode = torch.where(over_g, -alpha * ratio.sqrt() * low, low.clamp_max(-math.sqrt((1.0 - alpha) / alpha)))
    for _ in range(MODE_STEPS):
        slope, curvature = f.derivatives(mode)
        mode = mode + slope / curvature
    peak = f(mode)
    # How far the integrand reaches to both sides: Newton on the square root of its fall, which is nearly linear
    side = torch.linspace(-1.0, 1.0, 2, dtype=m.dtype, device=m.device)[:, None]
    reach = REACH / f.derivatives(mode)[1].sqrt().expand(2, -1)
    for _ in range(REACH_STEPS):
        end = mode + side * reach
        fall, slope = torch.sqrt(2.0 * (peak - f(end)).clamp_min(1.0)), (-side * f.derivatives(end)[0]).clamp_min(1.0)
        reach = (reach + (REACH - fall) * fall / slope).clamp(REACH / f.most.sqrt(), REACH / f.least.sqrt())
    # Nodes whose spacing changes from that of the left side to that of the right
    middle, change = 0.5 * (reach[1] + reach[0]), 0.5 * (reach[1] - reach[0])
    nodes = min(max(NODES, math.ceil(NODES_OF_SMALL * alpha**NODES_POWER)), MOST_NODES)
    t = torch.linspace(-OVERLAP, OVERLAP, nodes, dtype=m.dtype, device=m.device)[:, None]
    bend = torch.sqrt(t.square() + CORNER**2)
    e = mode + middle * t + change * (bend - CORNER)
    weight = (middle + change * t / bend) * (f(e) - peak).clamp(-FARTHEST, FARTHEST).exp()
    total = weight.sum(0)
    weight, x = weight / total, f.x(e)
    # ∂ log Z/∂m is the mean of r/√unit, with r = α φ/Φ at x, or φ/Φ at y
    power, unit, at = torch.where(over_g, alpha, one), torch.where(over_g, b, v), torch.where(over_g, x, f.y(e))
    r = hazard(at)
    curvature, r = power * (weight * log_ndtr_curvature(at, r)).sum(0), power * r
    first = (weight * r).sum(0)
    spread = (weight * (r - first).square()).sum(0)
    by_mean, omega = first / unit.sqrt(), (curvature - spread) / unit
    omega = omega.clamp(torch.zeros_like(v), 1.0 / (v + b / alpha))  # what rounding may break
    by_s = -0.5 * (weight * r * x).sum(0) / (b.sqrt() * unit.sqrt())
    step = torch.where(over_g, one, alpha) * (2.0 * OVERLAP / (nodes - 1))
    log_z = peak + (total * step).log() - LOG_SQRT_2PI
    return PowerTilted(log_z, by_mean, omega, 0.5 * (by_mean.square() - omega), by_s)


class _LogIntegrand(NamedTuple):
    """power·log Φ(start + slope e) + log Φ(y_start − y_slope e) − ½e², and bounds of its curvature."""

    power: Float[Tensor, " B"]
    start: Float[Tensor, " B"]
    slope: Float[Tensor, " B"]
    y_start: Float[Tensor, " B"]
    y_slope: Float[Tensor, " B"]
    least: Float[Tensor, " B"]
    most: Float[Tensor, " B"]

    def x(self, e: Tensor) -> Tensor:
        return self.start + self.slope * e

    def y(self, e: Tensor) -> Tensor:
        return self.y_start - self.y_slope * e

    def __call__(self, e: Tensor) -> Tensor:
        return self.power * log_ndtr(self.x(e)) + log_ndtr(self.y(e)) - 0.5 * e.square()

    def derivatives(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first derivative, and minus the second."""
        x, y = self.x(e), self.y(e)
        r, r_y = hazard(x), hazard(y)
        of_x, of_y = self.power * self.slope.square(), self.y_slope.square()
        curvature = 1.0 + of_x * log_ndtr_curvature(x, r) + of_y * log_ndtr_curvature(y, r_y)
        return self.power * self.slope * r - self.y_slope * r_y - e, curvature.clamp(self.least, self.most)
