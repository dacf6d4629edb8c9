"""The scalar algebra of one factor φ_i^j = Φ(α_i^j): cavity, tilted distribution, new site.

Factor (i, j) compares class j with the class y_i of its row. Its site is a Gaussian in υᵀu of class y_i ("own") and
another of class j ("other"), each with natural parameters (precision, precision_mean). Tensors are (C, B): the entry
[j, i] belongs to factor (i, j), and the entries with j = y_i belong to no factor. What both sites have is (2, C, B),
own first: small problems are bound by the number of operations.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cavity.numerics.limits import proper, tiny
from cavity.numerics.normal import hazard, hazard_slope, log_ndtr


class Site(NamedTuple):
    """exp(−½ precision g² + precision_mean g) in g = υᵀu."""

    precision: Float[Tensor, "*_ C B"]
    precision_mean: Float[Tensor, "*_ C B"]


class Cavity(NamedTuple):
    """q without one site, along υ; d = 1 − τh is positive where it is a proper Gaussian."""

    mean: Float[Tensor, "*_ C B"]
    var: Float[Tensor, "*_ C B"]
    d: Float[Tensor, "*_ C B"]


class Tilted(NamedTuple):
    """A factor under its cavities: log Z = log Φ(z), z = mean/√b, and its derivatives by that mean (of class y − j)."""

    z: Float[Tensor, "C B"]
    root: Float[Tensor, "C B"]
    by_mean: Float[Tensor, "C B"]
    omega: Float[Tensor, "C B"]

    @property
    def log_z(self) -> Float[Tensor, "C B"]:
        """log Z; costly, and an update of the sites has no use for it."""
        return log_ndtr(self.z)

    @property
    def by_var(self) -> Float[Tensor, "C B"]:
        """The derivative by the variance b."""
        return -0.5 * self.by_mean * self.z / self.root


def both(own: Bool[Tensor, "C B"], *quantities: Float[Tensor, "C B"]) -> tuple[Float[Tensor, "2 C B"], ...]:
    """What factor (i, j) sees of quantities of every class: that of y_i, and that of j."""
    x = torch.stack(quantities)
    of_own = torch.where(own, x, 0.0).sum(1, keepdim=True)
    return torch.stack([of_own.expand_as(x), x], 1).unbind()


def opposed(x: Float[Tensor, "C B"]) -> Float[Tensor, "2 C B"]:
    """A derivative by the difference of the two classes: one gets x, the other −x."""
    return torch.stack([x, -x])


def collect(x: Float[Tensor, "2 C B"], own: Bool[Tensor, "C B"]) -> Float[Tensor, "C B"]:
    """Sum over factors of what each gives to its two classes (supplement: Δ and μ̃ of the reconstruction)."""
    return torch.where(own, x[0].sum(0, keepdim=True), x[1])


def cavity(mean: Tensor, var: Tensor, site: Site) -> Cavity:
    """q over one site (supplement, "Computation of the cavity distribution")."""
    d = 1.0 - site.precision * var
    d = torch.where(proper(d), d, -1.0)
    return Cavity((mean - site.precision_mean * var) / d, var / d, d)


def tilted(mean: Float[Tensor, "C B"], b: Float[Tensor, "C B"]) -> Tilted:
    """The factor where f_y − f_j has this mean and variance (supplement, "Update of the approximate factors").

    Where a cavity is improper its variance is negative; the result there is meaningless but finite.
    """
    b = b.abs().clamp_min(tiny(b))
    root = torch.sqrt(b)
    z = mean / root
    r = hazard(z)
    return Tilted(z, root, r / root, hazard_slope(z, r) / b)


def under(cavity: Cavity, s: Float[Tensor, "2 C B"]) -> Tilted:
    """The factors under both their cavities, s being the variance that the sites do not see."""
    return tilted(cavity.mean[0] - cavity.mean[1], (cavity.var + s).sum(0))


def new_site(tilted_omega: Tensor, by_mean: Tensor, cavity: Cavity) -> Site:
    """The site that gives q the moments of the tilted distribution: C¹ and C² of the supplement.

    `by_mean` is the derivative by the mean of this class, so it is minus that of class y for the other class (the
    supplement prints a plus there).
    """
    precision = tilted_omega / (1.0 - tilted_omega * cavity.var).clamp_min(tiny(cavity.var))
    return Site(precision, torch.addcmul(by_mean, precision, torch.addcmul(cavity.mean, by_mean, cavity.var)))


def log_cavity_ratio(mean: Tensor, var: Tensor, site: Site, d: Tensor) -> Tensor:
    """g(cavity) − g(q) of one class (eq. 9), from the moments of q along υ."""
    tau, nu = site
    quadratic = tau * mean.square() - 2.0 * mean * nu + nu.square() * var
    return -0.5 * d.abs().log() + 0.5 * quadratic / d


class Factors(NamedTuple):
    """All factors of a batch under the current q: its moments, the sites, cavities and tilted moments.

    `weight` is 0 where a cavity is improper: such a factor stays out of the sweep.
    """

    mean: Float[Tensor, "2 C B"]
    var: Float[Tensor, "2 C B"]
    sites: Site
    cavity: Cavity
    tilted: Tilted
    weight: Float[Tensor, "C B"]


def factors(
    mean: Float[Tensor, "C B"],
    var: Float[Tensor, "C B"],
    s: Float[Tensor, "C B"],
    sites: Site,
    own: Bool[Tensor, "C B"],
    weight: Float[Tensor, "C B"],
) -> Factors:
    """The factors where q has these moments along its sites, and s is the variance the sites do not see."""
    mean, var, s = both(own, mean, var, s)
    without = cavity(mean, var, sites)
    weight = torch.where((without.d > 0).all(0), weight, 0.0)
    return Factors(mean, var, sites, without, under(without, s), weight)


def refine(f: Factors, damping: float | Tensor) -> Site:
    """All sites at once, damped (supplement, "Parallel EP updates and damping")."""
    new = new_site(f.tilted.omega, opposed(f.tilted.by_mean), f.cavity)
    return _damped(f.sites, new, f.weight > 0, damping)


def log_site_scale(f: Factors) -> Float[Tensor, "C B"]:
    """log s̃ of each factor (eq. 9)."""
    return f.tilted.log_z + log_cavity_ratio(f.mean, f.var, f.sites, f.cavity.d).sum(0)


def totals(sites: Site, own: Bool[Tensor, "C B"]) -> Site:
    """Δ and μ̃ of every row and class: its sites multiplied."""
    return Site(*(collect(x, own) for x in sites))


def _damped(old: Site, new: Site, live: Tensor, damping: float | Tensor) -> Site:
    """ρ·new + (1 − ρ)·old where the factor is alive, old elsewhere."""
    return Site(*(torch.where(live, torch.lerp(o, n, damping), o) for o, n in zip(old, new, strict=True)))
