"""The scalar algebra of one factor φ_i^j = Φ(α_i^j): cavity, tilted distribution, new site.

Factor (i, j) compares class j with the class y_i of its row. Its site is a Gaussian in υᵀu of class y_i ("own") and
another of class j ("other"), each with natural parameters (precision, precision_mean). Tensors are (C, B): the entry
[j, i] belongs to factor (i, j), and the entries with j = y_i belong to no factor.
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

    precision: Float[Tensor, "_ B"]
    precision_mean: Float[Tensor, "_ B"]


class Cavity(NamedTuple):
    """q without one site, along υ; d = 1 − τh is positive where it is a proper Gaussian."""

    mean: Float[Tensor, "_ B"]
    var: Float[Tensor, "_ B"]
    d: Float[Tensor, "_ B"]


class Tilted(NamedTuple):
    """log Z of a factor under its cavities, with the derivatives by the mean (of class y) and by the variance b."""

    log_z: Float[Tensor, "C B"]
    by_mean: Float[Tensor, "C B"]
    by_var: Float[Tensor, "C B"]
    omega: Float[Tensor, "C B"]


def of_own_class(x: Float[Tensor, "C B"], own: Bool[Tensor, "C B"]) -> Float[Tensor, "1 B"]:
    """Of each column, the entry of the row's own class."""
    return torch.where(own, x, 0.0).sum(0, keepdim=True)


def collect(from_own: Tensor, from_other: Tensor, own: Bool[Tensor, "C B"]) -> Float[Tensor, "C B"]:
    """Sum over factors of what each gives to its two classes (supplement: Δ and μ̃ of the reconstruction)."""
    return torch.where(own, from_own.sum(0, keepdim=True), from_other)


def cavity(mean: Tensor, var: Tensor, site: Site) -> Cavity:
    """q over one site (supplement, "Computation of the cavity distribution")."""
    d = 1.0 - site.precision * var
    d = torch.where(proper(d), d, -1.0)
    return Cavity((mean - site.precision_mean * var) / d, var / d, d)


def tilted(own: Cavity, other: Cavity, s_own: Tensor, s_other: Tensor) -> Tilted:
    """log Z_ij = log Φ(z) and its derivatives (supplement, "Update of the approximate factors").

    Where a cavity is improper its variance is negative; the result there is meaningless but finite.
    """
    b = (s_own + own.var + s_other + other.var).abs().clamp_min(tiny(own.var))
    root = torch.sqrt(b)
    z = (own.mean - other.mean) / root
    r = hazard(z)
    return Tilted(log_ndtr(z), r / root, -0.5 * r * z / b, hazard_slope(z, r) / b)


def new_site(tilted_omega: Tensor, by_mean: Tensor, cavity: Cavity) -> Site:
    """The site that gives q the moments of the tilted distribution: C¹ and C² of the supplement.

    `by_mean` is the derivative by the mean of this class, so it is minus that of class y for the other class (the
    supplement prints a plus there).
    """
    precision = tilted_omega / (1.0 - tilted_omega * cavity.var).clamp_min(tiny(cavity.var))
    return Site(precision, by_mean * (1.0 + precision * cavity.var) + precision * cavity.mean)


def log_cavity_ratio(mean: Tensor, var: Tensor, site: Site, d: Tensor) -> Tensor:
    """g(cavity) − g(q) of one class (eq. 9), from the moments of q along υ."""
    tau, nu = site
    quadratic = tau * mean.square() - 2.0 * mean * nu + nu.square() * var
    return -0.5 * d.abs().log() + 0.5 * quadratic / d


class Factors(NamedTuple):
    """All factors of a batch under the current q: its moments, the sites, cavities and tilted moments.

    `weight` is 0 where a cavity is improper: such a factor stays out of the sweep.
    """

    own_mean: Float[Tensor, "1 B"]
    own_var: Float[Tensor, "1 B"]
    mean: Float[Tensor, "C B"]
    var: Float[Tensor, "C B"]
    own: Site
    other: Site
    own_cavity: Cavity
    other_cavity: Cavity
    tilted: Tilted
    weight: Float[Tensor, "C B"]


def factors(
    mean: Float[Tensor, "C B"],
    var: Float[Tensor, "C B"],
    s: Float[Tensor, "C B"],
    sites: tuple[Site, Site],
    own: Bool[Tensor, "C B"],
    weight: Float[Tensor, "C B"],
) -> Factors:
    """The factors where q has these moments along its sites, and s is the variance the sites do not see."""
    own_site, other_site = sites
    own_mean, own_var = of_own_class(mean, own), of_own_class(var, own)
    own_cavity, other_cavity = cavity(own_mean, own_var, own_site), cavity(mean, var, other_site)
    t = tilted(own_cavity, other_cavity, of_own_class(s, own), s)
    weight = torch.where((own_cavity.d > 0) & (other_cavity.d > 0), weight, 0.0)
    return Factors(own_mean, own_var, mean, var, own_site, other_site, own_cavity, other_cavity, t, weight)


def refine(f: Factors, damping: float) -> tuple[Site, Site]:
    """All sites at once, damped (supplement, "Parallel EP updates and damping")."""
    live = f.weight > 0
    own = _damped(f.own, new_site(f.tilted.omega, f.tilted.by_mean, f.own_cavity), live, damping)
    return own, _damped(f.other, new_site(f.tilted.omega, -f.tilted.by_mean, f.other_cavity), live, damping)


def log_site_scale(f: Factors) -> Float[Tensor, "C B"]:
    """log s̃ of each factor (eq. 9)."""
    of_own = log_cavity_ratio(f.own_mean, f.own_var, f.own, f.own_cavity.d)
    return f.tilted.log_z + of_own + log_cavity_ratio(f.mean, f.var, f.other, f.other_cavity.d)


def totals(sites: tuple[Site, Site], own: Bool[Tensor, "C B"]) -> Site:
    """Δ and μ̃ of every row and class: its sites multiplied."""
    return Site(*(collect(a, b, own) for a, b in zip(*sites, strict=True)))


def _damped(old: Site, new: Site, live: Tensor, damping: float) -> Site:
    """ρ·new + (1 − ρ)·old where the factor is alive, old elsewhere."""
    return Site(*(torch.where(live, torch.lerp(o, n, damping), o) for o, n in zip(old, new, strict=True)))
