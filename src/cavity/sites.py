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
