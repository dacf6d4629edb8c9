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
from jaxtyping import Bool, Float
from torch import Tensor

from cavity.numerics.normal import hazard, log_ndtr, log_ndtr_curvature

LARGEST_RATIO, RATIO_POWER = 1.2, -0.35  # v/b up to which the integral is over g: this times α to that power
MODE_STEPS, REACH_STEPS = 6, 2  # of Newton's method
REACH = 8.3  # the log integrand falls by ½ REACH² to both ends: to 1e-15 of its maximum
NODES = 44
OVERLAP, CORNER = 1.12, 0.25  # of the nodes in units of the reach; where their spacing changes from left to right
FARTHEST = 50.0  # of a log integrand from its maximum, which rounding exceeds for extreme m
BEYOND = 40.0  # where log Φ, hazard and curvature are all zero
BLOCK, GPU_BLOCK = 1 << 12, 1 << 17  # integrals at a time
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
    """Return log Z and its derivatives; relative to their scale right to 1e-11, for α < 0.2 to 1e-6."""
    size = GPU_BLOCK if mean.is_cuda else BLOCK
    blocks = zip(*(x.reshape(-1).split(size) for x in (mean, var, b)), strict=True)
    parts = [_integrate(m, v, s, alpha) for m, v, s in blocks]
    return PowerTilted(*(torch.cat(x).view(mean.shape) for x in zip(*parts, strict=True)))


def _integrate(m: Float[Tensor, " B"], v: Float[Tensor, " B"], b: Float[Tensor, " B"], alpha: float) -> PowerTilted:
    over_g, ratio = v <= LARGEST_RATIO * alpha**RATIO_POWER * b, v / b
    f = _LogIntegrand.of(m, v, b, alpha, over_g)
    least, most = torch.where(over_g, 1.0, alpha), torch.where(over_g, 1.0 + alpha * ratio, 1.0 + b / v)  # of -f''
    # The mode, from that with r(x) ≈ max(−x, 0), and over x not right of that of the power alone
    low = m.clamp_max(0.0) / b.sqrt() / (1.0 + alpha * ratio)
    mode = torch.where(over_g, -alpha * ratio.sqrt() * low, low.clamp_max(-math.sqrt((1.0 - alpha) / alpha)))
    for _ in range(MODE_STEPS):
        slope, curvature = f.derivatives(mode)
        mode = mode + slope / curvature.clamp(least, most)
    peak = f(mode)
    # How far the integrand reaches to both sides: Newton on the square root of its fall, which is nearly linear
    side = mode.new_tensor([[-1.0], [1.0]])
    reach = REACH / f.derivatives(mode)[1].clamp(least, most).sqrt().expand(2, -1)
    for _ in range(REACH_STEPS):
        fall = torch.sqrt(2.0 * (peak - f(mode + side * reach)).clamp_min(1.0))
        slope = (-side * f.derivatives(mode + side * reach)[0]).clamp_min(1.0)
        reach = (reach + (REACH - fall) * fall / slope).clamp(REACH / most.sqrt(), REACH / least.sqrt())
    left, right = reach
    t = torch.linspace(-OVERLAP, OVERLAP, NODES, dtype=m.dtype, device=m.device)[:, None]
    bend = torch.sqrt(t.square() + CORNER**2)
    e = mode + 0.5 * (right + left) * t + 0.5 * (right - left) * (bend - CORNER)
    spacing = 0.5 * (right + left) + 0.5 * (right - left) * t / bend
    weight = spacing * (f(e) - peak).clamp(-FARTHEST, FARTHEST).exp()
    total = weight.sum(0)
    weight = weight / total
    # ∂ log Z/∂m is the mean of a·r(w)/√unit, w = x or y
    a, unit, w = torch.where(over_g, alpha, 1.0), torch.where(over_g, b, v), torch.where(over_g, f.x(e), f.y(e))
    r = hazard(w)
    curvature, r = a * (weight * log_ndtr_curvature(w, r)).sum(0), a * r
    first = (weight * r).sum(0)
    spread = (weight * (r - first).square()).sum(0)
    omega = torch.clamp((curvature - spread) / unit, torch.zeros_like(v), 1.0 / (v + b / alpha))
    by_mean = first / unit.sqrt()
    by_s = -0.5 * (weight * r * f.x(e)).sum(0) / (b.sqrt() * unit.sqrt())
    scale = torch.where(over_g, 0.0, math.log(alpha)) + math.log(2.0 * OVERLAP / (NODES - 1)) - LOG_SQRT_2PI
    return PowerTilted(peak + total.log() + scale, by_mean, omega, 0.5 * (by_mean.square() - omega), by_s)


class _LogIntegrand(NamedTuple):
    """power·log Φ(start + slope e) + log Φ(y_start − y_slope e) − ½e²."""

    power: Float[Tensor, " B"]
    start: Float[Tensor, " B"]
    slope: Float[Tensor, " B"]
    y_start: Float[Tensor, " B"]
    y_slope: Float[Tensor, " B"]

    @classmethod
    def of(cls, m: Tensor, v: Tensor, b: Tensor, alpha: float, over_g: Bool[Tensor, " B"]) -> _LogIntegrand:
        """Return that over e = (g − m)/√v where `over_g`, else that over x; constant factors are left out."""
        ratio = torch.sqrt(v / b)
        return cls(
            torch.where(over_g, alpha, alpha - 1.0),
            torch.where(over_g, m / b.sqrt(), 0.0),
            torch.where(over_g, ratio, 1.0),
            torch.where(over_g, BEYOND, m / v.sqrt()),
            torch.where(over_g, 0.0, 1.0 / ratio),
        )

    def x(self, e: Tensor) -> Tensor:
        return self.start + self.slope * e

    def y(self, e: Tensor) -> Tensor:
        return self.y_start - self.y_slope * e

    def __call__(self, e: Tensor) -> Tensor:
        return self.power * log_ndtr(self.x(e)) + log_ndtr(self.y(e)) - 0.5 * e.square()

    def derivatives(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first derivative, and minus the second, which is positive."""
        x, y = self.x(e), self.y(e)
        r, r_y = hazard(x), hazard(y)
        curvature = self.power * self.slope.square() * log_ndtr_curvature(x, r) + 1.0
        curvature = curvature + self.y_slope.square() * log_ndtr_curvature(y, r_y)
        return self.power * self.slope * r - self.y_slope * r_y - e, curvature
