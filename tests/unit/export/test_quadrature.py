"""P(f_k is the largest) from marginals, against the library's own quadrature."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from cavity.export.quadrature import FARTHEST, GROWTH, LARGEST, largest_probabilities, normal
from cavity.numerics.quadrature import max_log_probs

TOLERANCE = 1e-11


def expected(mean, var):
    return max_log_probs(torch.from_numpy(mean), torch.from_numpy(var)).exp().numpy()


def marginals(n_classes, decades, n_rows=400, seed=0):
    """Means and variances; σ and the sizes of the means spread over so many decades both ways."""
    rng = np.random.default_rng(seed)
    shape = n_classes, n_rows
    mean = 2 * rng.standard_normal(shape) * 10 ** rng.uniform(-decades, decades, shape)
    return mean, 10 ** rng.uniform(-2 * decades, 2 * decades, shape)


@pytest.mark.parametrize("decades", [0.0, 0.3, 1.5, 3.0, 6.0])
@pytest.mark.parametrize("n_classes", [2, 3, 10, 100])
def test_it_agrees_with_the_library(run, n_classes, decades):
    """Six decades both ways: variances that differ by 1e24."""
    mean, var = marginals(n_classes, decades, n_rows=200 if n_classes < 100 else 20)
    p = run(lambda m, v: largest_probabilities(m, v, n_classes), mean, var)
    np.testing.assert_allclose(p, expected(mean, var), rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(p.sum(0), 1, rtol=0, atol=1e-14)


@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 1e3, 1e6, 1e12])
def test_one_class_much_surer_than_the_others(run, ratio):
    """A variance far from the other, the means close together, and as far apart as the wide one reaches."""
    rng = np.random.default_rng(1)
    mean = np.concatenate([rng.standard_normal((4, 100)), max(1.0, ratio**0.5) * rng.standard_normal((4, 100))], axis=1)
    var = np.ones((4, 200))
    var[1] = ratio
    p = run(lambda m, v: largest_probabilities(m, v, 4), mean, var)
    np.testing.assert_allclose(p, expected(mean, var), rtol=0, atol=TOLERANCE)


def test_a_row_does_not_depend_on_its_company(run):
    """The nodes are as many as the neediest row asks for; more of them change nothing that counts."""
    mean, var = marginals(5, 0.3, 50)
    wide_mean, wide_var = marginals(5, 5.0, 50)
    body = lambda m, v: largest_probabilities(m, v, 5)  # noqa: E731
    alone = run(body, mean, var)
    together = run(body, np.concatenate([mean, wide_mean], 1), np.concatenate([var, wide_var], 1))[:, :50]
    np.testing.assert_allclose(together, alone, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_classes_that_are_alike_are_as_likely(run, n_classes):
    p = run(
        lambda m, v: largest_probabilities(m, v, n_classes), np.full((n_classes, 2), 3.0), np.full((n_classes, 2), 0.5)
    )
    np.testing.assert_allclose(p, 1 / n_classes, rtol=0, atol=1e-14)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_decided_row_is_decided(run, n_classes):
    """Means 1e8 standard deviations apart, and large numbers that differ by little."""
    mean = np.zeros((n_classes, 3))
    mean[1] = 1e8, -1e8, 0.0
    mean[:, 2] = 1e9 + np.arange(n_classes)
    var = np.ones((n_classes, 3))
    var[:, 2] = 1e-4
    p = run(lambda m, v: largest_probabilities(m, v, n_classes), mean, var)
    np.testing.assert_allclose(p, expected(mean, var), rtol=0, atol=TOLERANCE)
    assert p[1, 0] == p[-1, 2] == 1.0


def test_a_thousand_classes(run):
    mean, var = marginals(1000, 0.3, 4)
    p = run(lambda m, v: largest_probabilities(m, v, 1000), mean, var)
    np.testing.assert_allclose(p, expected(mean, var), rtol=0, atol=TOLERANCE)


def test_no_row_takes_all_the_memory(run):
    """The number of nodes is bounded, whatever the variances."""
    mean, var = np.array([[0.0], [1.0], [0.5]]), np.array([[1e-300], [1.0], [1e300]])
    p = run(lambda m, v: largest_probabilities(m, v, 3), mean, var)
    assert np.isfinite(p).all()
    assert GROWTH * np.arcsinh(FARTHEST) < 3900


# --- The normal distribution ---

POINTS = np.concatenate([np.linspace(-LARGEST, LARGEST, 4001), np.linspace(-1e-3, 1e-3, 11)])


def test_both_tails_have_all_their_digits(run):
    bell, cdf, upper_tail = run(lambda z: tuple(normal(z)), POINTS)
    np.testing.assert_allclose(bell, np.exp(-0.5 * POINTS**2), rtol=1e-13)
    np.testing.assert_allclose(cdf, ndtr(POINTS), rtol=1e-12)
    np.testing.assert_allclose(upper_tail, ndtr(-POINTS), rtol=1e-12)


def test_the_two_sides_add_up(run):
    _, cdf, upper_tail = run(lambda z: tuple(normal(z)), POINTS)
    np.testing.assert_allclose(cdf + upper_tail, 1, rtol=0, atol=2e-16)


def test_nothing_vanishes(run):
    """Quotients of these are taken, and logarithms."""
    _, cdf, upper_tail = run(lambda z: tuple(normal(z)), POINTS)
    assert min(cdf.min(), upper_tail.min()) >= 1e-300
