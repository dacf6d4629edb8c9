"""The normal distribution from elementary operators, to the last digits of float64."""

import numpy as np
from scipy.special import ndtr

from cavity.export.normal import LARGEST, normal

Z = np.concatenate([np.linspace(-LARGEST, LARGEST, 4001), np.linspace(-1e-3, 1e-3, 11)])


def test_both_tails_have_all_their_digits(run):
    bell, cdf, beyond = run(lambda z: tuple(normal(z)), Z)
    np.testing.assert_allclose(bell, np.exp(-0.5 * Z**2), rtol=1e-13)
    np.testing.assert_allclose(cdf, ndtr(Z), rtol=1e-12)
    np.testing.assert_allclose(beyond, ndtr(-Z), rtol=1e-12)


def test_the_two_sides_add_up(run):
    _, cdf, beyond = run(lambda z: tuple(normal(z)), Z)
    np.testing.assert_allclose(cdf + beyond, 1, rtol=0, atol=2e-16)


def test_nothing_vanishes(run):
    """Quotients of these are taken, and logarithms."""
    _, cdf, beyond = run(lambda z: tuple(normal(z)), Z)
    assert min(cdf.min(), beyond.min()) >= 1e-300
