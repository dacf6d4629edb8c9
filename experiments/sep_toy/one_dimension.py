"""EP and SEP in one dimension: a Gaussian prior, factors that are not Gaussian, and integrals on a grid.

SEP is EP whose sites are replaced by their mean after every sweep: the two differ in one line.
A Gaussian is (precision, precision × mean), in the last axis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtr

Array = NDArray[np.float64]

REACH, NODES = 8.0, 2001  # of the grid: standard deviations of the prior to each side, and points


class Problem(NamedTuple):
    """A grid (G,), a Gaussian prior (2,) and the logarithms of n factors on the grid (n, G)."""

    x: Array
    prior: Array
    log_factors: Array


class Moments(NamedTuple):
    """Log of the integral, mean and variance of densities on a grid, normalized or not."""

    log_z: Array
    mean: Array
    variance: Array


class Fit(NamedTuple):
    """Sites (n, 2), the number of sweeps, and whether they converged with all cavities proper."""

    sites: Array
    sweeps: int
    converged: bool


def approximate(problem: Problem, tied: bool, damping: float, tol: float, max_sweeps: int) -> Fit:
    """Make damped, parallel sweeps over all sites until no site has to change by more than `tol`.

    A site with an improper cavity skips the sweep.
    """
    sites, sweeps, converged = np.zeros((len(problem.log_factors), 2)), 0, False
    while not converged and sweeps < max_sweeps:
        cavities = posterior(problem, sites) - sites
        is_proper = cavities[:, :1] > 0
        new = np.where(is_proper, _refined(problem, np.where(is_proper, cavities, problem.prior)), sites)
        if tied:
            new[:] = new.mean(0)
        converged = bool(is_proper.all() and np.abs(new - sites).max() <= tol)
        sites, sweeps = sites + damping * (new - sites), sweeps + 1
    return Fit(sites, sweeps, converged)


def _refined(problem: Problem, cavities: Array) -> Array:
    """Return the sites for which cavity × site has the moments of cavity × factor."""
    tilted = moments(problem.x, log_density(problem.x, cavities) + problem.log_factors)
    return natural(tilted.mean, tilted.variance) - cavities


def posterior(problem: Problem, sites: Array) -> Array:
    """Return q = prior × sites."""
    return problem.prior + sites.sum(0)


def log_scales(problem: Problem, sites: Array) -> Array:
    """Return the log factors of exp(−½ τ x² + ν x) for which cavity × site has the mass of cavity × factor, (n,)."""
    q = posterior(problem, sites)
    tilted = moments(problem.x, log_density(problem.x, q - sites) + problem.log_factors)
    return tilted.log_z + log_normalizer(q - sites) - log_normalizer(q)


def log_evidence(problem: Problem, sites: Array) -> float:
    """Return log Z_q, the integral of prior × sites (eq. 9); for tied sites this is SEP's."""
    q = posterior(problem, sites)
    return float(log_scales(problem, sites).sum() + log_normalizer(q) - log_normalizer(problem.prior))


def natural(mean: float | Array, variance: float | Array) -> Array:
    """Return a Gaussian with these moments."""
    return np.stack([1.0 / np.asarray(variance), np.asarray(mean) / variance], axis=-1)


def log_posterior(problem: Problem) -> Array:
    """Return the exact posterior, prior × factors, not normalized."""
    return log_density(problem.x, problem.prior) + problem.log_factors.sum(0)


def log_normalizer(natural: Array) -> Array:
    """Return log ∫ exp(−½ τ x² + ν x) dx."""
    precision, linear = natural[..., 0], natural[..., 1]
    return np.asarray(0.5 * (linear**2 / precision + np.log(2.0 * np.pi / precision)))


def log_density(x: Array, natural: Array) -> Array:
    """Return the log densities of Gaussians on the grid, (..., G)."""
    return exponent(x, natural) - log_normalizer(natural)[..., None]


def exponent(x: Array, natural: Array) -> Array:
    """Return −½ τ x² + ν x on the grid."""
    return natural[..., 1:] * x - 0.5 * natural[..., :1] * x**2


def moments(x: Array, log_p: Array) -> Moments:
    """Integrate by the trapezoidal rule, which is almost exact for densities that vanish at both ends."""
    log_mass = logsumexp(log_p, axis=-1)
    weight = np.exp(log_p - log_mass[..., None])
    mean = weight @ x
    return Moments(log_mass + np.log(x[1] - x[0]), mean, (weight * (x - mean[..., None]) ** 2).sum(-1))


def divergence(x: Array, log_p: Array, q: Array) -> float:
    """Return KL(p‖q) of a normalized p on the grid and a Gaussian q."""
    return float((np.exp(log_p) * (log_p - log_density(x, q))).sum() * (x[1] - x[0]))


def draw(family: str, n: int, seed: int, prior_variance: float) -> Problem:
    """Draw a problem with "probit" factors as in the paper's model, or "awkward" ones."""
    rng = np.random.default_rng([seed, n])
    sd = prior_variance**0.5
    x = np.linspace(-REACH, REACH, NODES)
    factors = {"probit": _probit, "awkward": _awkward}[family](x, n, rng)
    return Problem(sd * x, np.array([1.0 / prior_variance, 0.0]), np.stack(factors))


def _probit(x: Array, n: int, rng: np.random.Generator) -> list[Array]:
    """Draw noisy observations of which side of a location the truth lies on."""
    truth, factors = rng.normal(0.0, 0.5), []
    for _ in range(n):
        place, slope = rng.normal(0.0, 0.7), np.exp(rng.uniform(0.0, 1.5))
        side = 1.0 if rng.random() < ndtr(slope * (truth - place)) else -1.0
        factors.append(log_ndtr(side * slope * (x - place)))
    return factors


def _awkward(x: Array, n: int, rng: np.random.Generator) -> list[Array]:
    """Draw steep steps with a floor, bumps with heavy tails and pairs of bumps, in turn."""
    kinds = (_step_on_floor, _heavy_tails, _two_bumps)
    return [kinds[i % 3](x, rng) for i in range(n)]


def _step_on_floor(x: Array, rng: np.random.Generator) -> Array:
    slope = rng.choice([-1.0, 1.0]) * np.exp(rng.uniform(0.0, 3.0))
    return np.logaddexp(np.log(0.9) + log_ndtr(slope * (x - rng.normal(0.0, 0.7))), np.log(0.1))


def _heavy_tails(x: Array, rng: np.random.Generator) -> Array:
    z = (x - rng.normal(0.0, 0.7)) / rng.uniform(0.2, 0.6)
    return -2.0 * np.log1p(z**2 / 3.0)  # Student's t with three degrees of freedom


def _two_bumps(x: Array, rng: np.random.Generator) -> Array:
    places, widths = rng.normal(0.0, 0.8, 2), rng.uniform(0.2, 0.6, 2)
    bumps = [np.log(h) - 0.5 * ((x - p) / w) ** 2 for h, p, w in zip((0.6, 0.3), places, widths, strict=True)]
    return np.logaddexp(np.logaddexp(*bumps), np.log(0.1))
