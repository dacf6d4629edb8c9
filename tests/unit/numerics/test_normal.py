"""log Φ, hazard and slope against mpmath: moderate values and both tails."""

import mpmath
import numpy as np
import pytest
import torch

from cavity.numerics.normal import FRACTION_BELOW, hazard, log_ndtr, log_ndtr_curvature

RNG = np.random.default_rng(0)
MODERATE = RNG.uniform(-8, 8, 60)
LEFT = np.concatenate([-np.geomspace(8, 1e8, 60), [-1e20, -1e100]])
RIGHT = RNG.uniform(8, 37, 40)
SEAMS = np.concatenate([[-1e-300, 0.0, 1e-300], *(np.nextafter(b, [-50, 50]) for b in FRACTION_BELOW.values())])
Z = np.concatenate([MODERATE, LEFT, RIGHT, SEAMS, RNG.uniform(-40, -10, 60)])
EXTREMES = [-1e308, -1e200, -1e155, -1e154, -40.0, 0.0, 37.0, 38.6, 40.0, 1e3, 1e160, 1e308]


def exact(z):
    """(log Φ, r, r(r + z)), for z < -1e4 from the divergent series of Mills' ratio, else from erfc."""
    with mpmath.workdps(60):
        z = mpmath.mpf(float(z))
        if z < -1e4:
            y = z**-2
            mills = (1 - y + 3 * y**2 - 15 * y**3) / -z
            slope = 1 - y + 6 * y**2 - 50 * y**3
            return -(z**2) / 2 - mpmath.log(2 * mpmath.pi) / 2 + mpmath.log(mills), 1 / mills, slope
        upper = mpmath.erfc(z / mpmath.sqrt(2)) / 2
        lower = mpmath.erfc(-z / mpmath.sqrt(2)) / 2
        r = mpmath.npdf(z) / lower
        return mpmath.log(lower) if z < 0 else mpmath.log1p(-upper), r, r * (r + z)


EXACT = np.array([exact(z) for z in Z], dtype=object).T


def relative_error(found, expected):
    return max(float(abs(mpmath.mpf(f) / e - 1)) for f, e in zip(found.tolist(), expected, strict=True))


@pytest.mark.parametrize("row", range(3))
def test_values(row):
    function = [log_ndtr, hazard, log_ndtr_curvature][row]
    assert relative_error(function(torch.from_numpy(Z)), EXACT[row]) < 1e-12


def test_slope_from_a_known_hazard():
    z = torch.from_numpy(Z)
    assert torch.equal(log_ndtr_curvature(z, hazard(z)), log_ndtr_curvature(z))


def test_slope_stays_in_its_range():
    """A slope above one would be a negative variance."""
    slope = log_ndtr_curvature(torch.from_numpy(np.concatenate([Z, -np.geomspace(1, 1e300, 1000)])))
    assert (slope > 0).all()
    assert (slope <= 1).all()


@pytest.mark.parametrize(("function", "derivative"), [(log_ndtr, hazard), (hazard, lambda z: -log_ndtr_curvature(z))])
def test_each_is_the_derivative_of_the_one_before(function, derivative):
    z, step = torch.from_numpy(MODERATE), 1e-5
    difference = (function(z + step) - function(z - step)) / (2 * step)
    torch.testing.assert_close(difference, derivative(z), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_nan_anywhere(dtype):
    largest = 0.1 * torch.finfo(dtype).max
    z = torch.tensor(EXTREMES, dtype=torch.float64).clamp(-largest, largest).to(dtype)
    values = [log_ndtr(z), hazard(z), log_ndtr_curvature(z)]
    assert not any(v.isnan().any() for v in values)
    assert all(v.isfinite().all() for v in values[1:])
    assert (values[0] <= 0).all()


def test_single_precision():
    """erfc of a rounded argument is wrong by z² eps in the right tail, whatever the method."""
    some = (Z > -1e15) & (Z < 12)
    z = torch.from_numpy(Z[some]).float()
    expected = np.array([exact(x) for x in z.tolist()], dtype=object).T
    for function, row in zip([log_ndtr, hazard, log_ndtr_curvature], expected, strict=True):
        assert function(z).dtype == torch.float32
        assert relative_error(function(z), row) < 2e-5
