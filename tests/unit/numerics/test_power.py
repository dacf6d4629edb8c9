"""The integrals of power EP: against the closed form, scipy's quadrature and finite differences."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import log_ndtr as scipy_log_ndtr

from cavity.numerics import power
from cavity.numerics.normal import hazard, log_ndtr, log_ndtr_curvature
from cavity.numerics.power import LARGEST_RATIO, RATIO_POWER, power_tilted

ALPHAS = [0.02, 0.25, 0.5, 0.9]


def grid(z, ratio):
    """Means and variances for every z = m/√(v + b) and v/b, with b = 0.7."""
    z, ratio = (torch.as_tensor(x, dtype=torch.float64) for x in (z, ratio))
    b = torch.full((len(z), len(ratio)), 0.7, dtype=torch.float64)
    var = b * ratio
    return z[:, None] * torch.sqrt(var + b), var, b


def test_at_one_it_is_the_closed_form():
    """At every ratio of the variances, among them the one where the variable of integration changes."""
    mean, var, b = grid(np.linspace(-30, 30, 121), np.append(10.0 ** np.arange(-10, 6.1, 0.25), LARGEST_RATIO))
    found, root = power_tilted(mean, var, b, 1.0), torch.sqrt(var + b)
    z = mean / root
    r = hazard(z)
    expected = log_ndtr(z), r, log_ndtr_curvature(z, r), -0.5 * r * z, -0.5 * r * z
    units = torch.ones_like(root), root, root**2, root**2, root**2
    for value, unit, closed, field in zip(found, units, expected, found._fields, strict=True):
        tol = 1e-12 if field != "by_s" else 1e-11  # of it only 1/√ratio is left, which may be small
        torch.testing.assert_close(value * unit, closed, rtol=tol, atol=tol, msg=lambda m, field=field: f"{field}: {m}")


@pytest.mark.parametrize("alpha", ALPHAS)
def test_log_z_against_scipy(alpha):
    limit = LARGEST_RATIO * alpha**RATIO_POWER
    mean, var, b = grid([-9.0, -2.0, 0.0, 3.0], [1e-3, 0.99 * limit, 1.01 * limit, 40.0])
    found = power_tilted(mean, var, b, alpha).log_z
    for value, m, v, s in zip(*(x.ravel().tolist() for x in (found, mean, var, b)), strict=True):
        center, sd = m / (1.0 + alpha * v / s) if m < 0 else m, math.sqrt(v)  # near the mode

        def log_integrand(g, m=m, v=v, s=s):
            return alpha * scipy_log_ndtr(g / math.sqrt(s)) - 0.5 * (g - m) ** 2 / v

        top = log_integrand(center)
        ends = (
            center - 12.0 * sd,
            min(center, 0.0) - 3.0 * math.sqrt(s),
            center,
            3.0 * math.sqrt(s),
            center + 12.0 * sd,
        )
        parts = [
            quad(lambda g, f=log_integrand, top=top: math.exp(f(g) - top), low, high, epsabs=0, epsrel=1e-11, limit=200)
            for low, high in zip(sorted(ends), sorted(ends)[1:], strict=False)
        ]
        expected = top + math.log(sum(part for part, _ in parts) / math.sqrt(2.0 * math.pi * v))
        assert value == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize(("alpha", "tol"), [(0.003, 1e-8), (0.02, 1e-8), (0.25, 1e-11), (0.5, 1e-11), (0.9, 1e-11)])
def test_more_nodes_change_nothing(alpha, tol, monkeypatch):
    """Relative to the scale of each: that of a derivative is its value where labels are surprising."""
    mean, var, b = grid(np.linspace(-12, 8, 41), 10.0 ** np.arange(-2, 4.1, 0.1))
    found = power_tilted(mean, var, b, alpha)
    monkeypatch.setattr(power, "NODES", 2001)
    monkeypatch.setattr(power, "MOST_NODES", 2001)
    exact, root = power_tilted(mean, var, b, alpha), torch.sqrt(var + b)
    for x, y, unit in (
        (found.log_z, exact.log_z, torch.full_like(b, alpha)),
        (found.by_mean, exact.by_mean, alpha / root),
        (found.omega, exact.omega, 1.0 / (var + b / alpha)),
    ):
        assert float(((x - y).abs() / torch.maximum(unit, y.abs())).max()) < tol


@pytest.mark.parametrize("alpha", ALPHAS)
def test_derivatives(alpha):
    mean, var, b = grid([-9.0, -2.0, 0.0, 3.0], [1e-3, 0.5, 1.4, 4.0, 40.0])
    found, step = power_tilted(mean, var, b, alpha), 1e-3

    def slope(move, field="log_z"):
        """The five-point formula, in relative steps of each argument."""
        f = [getattr(power_tilted(*(x + k * step * d for x, d in move), alpha), field) for k in (-2, -1, 1, 2)]
        return (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * step)

    root, none = torch.sqrt(var + b), torch.zeros_like(b)
    by_mean = ((mean, root), (var, none), (b, none))
    for value, expected in (
        (found.by_mean * root, slope(by_mean)),
        (found.omega * root**2, -root * slope(by_mean, "by_mean")),
        (found.by_var * var, slope(((mean, none), (var, var), (b, none)))),
        (found.by_s * b, slope(((mean, none), (var, none), (b, b)))),
    ):
        torch.testing.assert_close(value, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("alpha", [1e-4, 0.5, 1.0 - 1e-12])
def test_the_tails_stay_finite_and_in_their_bounds(alpha):
    mean = torch.tensor([s * 10.0**k for k in (-300, 0, 2, 4, 8, 15) for s in (-1, 1)], dtype=torch.float64)
    var = torch.tensor([1e-100, 1e-30, 1e-8, 1.0, 1e8, 1e30], dtype=torch.float64)
    m, v, b = (x.contiguous() for x in torch.meshgrid(mean, var, var, indexing="ij"))
    found = power_tilted(m, v, b, alpha)
    assert all(torch.isfinite(x).all() for x in found)
    assert (found.log_z <= 1e-9).all()
    assert (found.by_mean >= 0).all()
    assert ((found.omega >= 0) & (found.omega * (v + b / alpha) <= 1 + 1e-12)).all()


def test_blocks_are_put_together():
    """More integrals than a block takes, in the order and shape of the arguments."""
    rng = np.random.default_rng(0)
    mean, var, b = (torch.from_numpy(x) for x in (rng.normal(size=(3, 4000)), *rng.uniform(0.1, 3.0, (2, 3, 4000))))
    whole = power_tilted(mean, var, b, 0.5)
    one = power_tilted(mean[1:2, 1234:1235], var[1:2, 1234:1235], b[1:2, 1234:1235], 0.5)
    for x, y in zip(whole, one, strict=True):
        assert x.shape == mean.shape
        torch.testing.assert_close(x[1:2, 1234:1235], y, rtol=1e-12, atol=1e-14)
