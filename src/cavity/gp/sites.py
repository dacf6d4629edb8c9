"""The scalar algebra of one factor φ_i^j = Φ(α_i^j), of class j and the class y_i of its row.

Tensors are (C, B): the entry [j, i] belongs to factor (i, j), and entries with j = y_i to none. Pairs (of class y_i, of
class j) are (2, C, B) tensors, because the number of operations limits the speed of small problems.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cavity.numerics.limits import proper, tiny
from cavity.numerics.normal import hazard, log_ndtr, log_ndtr_curvature
from cavity.numerics.power import PowerTilted, power_tilted


class Site(NamedTuple):
    """exp(−½ precision g² + precision_mean g) in g = υᵀu."""

    precision: Float[Tensor, "*_ C B"]
    precision_mean: Float[Tensor, "*_ C B"]

    def power(self, alpha: float) -> Site:
        """Return the site to the power α."""
        return self if alpha == 1.0 else Site(alpha * self.precision, alpha * self.precision_mean)


class Cavity(NamedTuple):
    """q without one site, along υ; d = 1 − τh is positive where this is a proper Gaussian."""

    mean: Float[Tensor, "*_ C B"]
    var: Float[Tensor, "*_ C B"]
    d: Float[Tensor, "*_ C B"]


class Tilted(NamedTuple):
    """A factor times its cavities: log Z = log Φ(z), z = mean/√b, and its derivatives by that mean (of class y − j)."""

    z: Float[Tensor, "C B"]
    root: Float[Tensor, "C B"]
    by_mean: Float[Tensor, "C B"]
    omega: Float[Tensor, "C B"]

    @property
    def log_z(self) -> Float[Tensor, "C B"]:
        """log Z: expensive, and not needed to update the sites."""
        return log_ndtr(self.z)

    @property
    def by_var(self) -> Float[Tensor, "C B"]:
        """The derivative by the variance b."""
        return -0.5 * self.by_mean * self.z / self.root

    @property
    def by_s(self) -> Float[Tensor, "C B"]:
        """The derivative by the part of b that the sites do not see; for other powers than 1 it is another one."""
        return self.by_var


def both(own: Bool[Tensor, "C B"], *quantities: Float[Tensor, "C B"]) -> tuple[Float[Tensor, "2 C B"], ...]:
    """Return what factor (i, j) sees of quantities of every class: that of y_i, and that of j."""
    x = torch.stack(quantities)
    of_own = torch.where(own, x, 0.0).sum(1, keepdim=True)
    return torch.stack([of_own.expand_as(x), x], 1).unbind()


def opposed(x: Float[Tensor, "C B"]) -> Float[Tensor, "2 C B"]:
    """Split a derivative by the difference of the two classes: x for class y, −x for class j."""
    return torch.stack([x, -x])


def collect(x: Float[Tensor, "2 C B"], own: Bool[Tensor, "C B"]) -> Float[Tensor, "C B"]:
    """Sum over factors what each gives to its two classes (supplement: Δ and μ̃ of the reconstruction)."""
    return torch.where(own, x[0].sum(0, keepdim=True), x[1])


def cavity(mean: Tensor, var: Tensor, site: Site) -> Cavity:
    """Divide q by one site (supplement, "Computation of the cavity distribution")."""
    d = 1.0 - site.precision * var
    d = torch.where(proper(d), d, -1.0)
    return Cavity((mean - site.precision_mean * var) / d, var / d, d)


def live_weight(cavities: Cavity, weight: Float[Tensor, "C B"]) -> Float[Tensor, "C B"]:
    """Set the weight of a factor to 0 if one of its cavities is improper: the factor is left out of the sweep."""
    return torch.where((cavities.d > 0).all(0), weight, 0.0)


def count_left_out(cavities: Cavity, weight: Float[Tensor, "C B"]) -> Int[Tensor, ""]:
    """Count the factors that `live_weight` leaves out."""
    return ((weight > 0) & ~(cavities.d > 0).all(0)).sum()


def tilted(cavities: Cavity, s: Float[Tensor, "2 C B"] | float, alpha: float = 1.0) -> Tilted | PowerTilted:
    """Multiply each factor, to the power α, by its two cavities; s is the variance of f that the sites do not see.

    f_y − f_j has variance b (supplement, "Update of the approximate factors"). If a cavity is improper its variance
    is negative, and the result is meaningless but finite.
    """
    mean = cavities.mean[0] - cavities.mean[1]
    if alpha != 1.0:
        var, b = (
            x.sum(0).abs().clamp_min(tiny(mean)) for x in (cavities.var, torch.as_tensor(s).expand_as(cavities.var))
        )
        return power_tilted(mean, var, b, alpha)
    b = (cavities.var + s).sum(0)
    b = b.abs().clamp_min(tiny(b))
    root = torch.sqrt(b)
    z = mean / root
    r = hazard(z)
    return Tilted(z, root, r / root, log_ndtr_curvature(z, r) / b)


def new_site(moments: Tilted | PowerTilted, cavities: Cavity) -> Site:
    """Return the sites that give q the moments of the tilted distribution: C¹ and C² of the supplement.

    The derivative by the mean of class j is minus that by the mean of class y (the supplement prints a plus there).
    """
    omega, by_mean = moments.omega, opposed(moments.by_mean)
    precision = omega / (1.0 - omega * cavities.var).clamp_min(tiny(cavities.var))
    return Site(precision, torch.addcmul(by_mean, precision, torch.addcmul(cavities.mean, by_mean, cavities.var)))


def damped(old: Site, new: Site, damping: float | Tensor, where: Bool[Tensor, "C B"]) -> Site:
    """Return ρ·new + (1 − ρ)·old at the factors of `where`, old elsewhere ("Parallel EP updates and damping")."""
    return Site(*(torch.where(where, torch.lerp(o, n, damping), o) for o, n in zip(old, new, strict=True)))


def log_cavity_ratio(mean: Tensor, var: Tensor, site: Site, d: Tensor) -> Tensor:
    """Return g(cavity) − g(q) of one class (eq. 9), from the moments of q along υ."""
    tau, nu = site
    quadratic = tau * mean.square() - 2.0 * mean * nu + nu.square() * var
    return -0.5 * d.abs().log() + 0.5 * quadratic / d


def log_site_scale(
    mean: Float[Tensor, "2 C B"],
    var: Float[Tensor, "2 C B"],
    sites: Site,
    cavities: Cavity,
    moments: Tilted | PowerTilted,
) -> Float[Tensor, "C B"]:
    """Return log s̃ of each factor (eq. 9)."""
    return moments.log_z + log_cavity_ratio(mean, var, sites, cavities.d).sum(0)
