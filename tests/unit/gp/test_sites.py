"""The scalar algebra of one factor: cavity, tilted distribution, new site."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from cavity.gp.sites import (
    Cavity,
    Site,
    both,
    cavity,
    collect,
    damped,
    live_weight,
    log_cavity_ratio,
    log_site_scale,
    new_site,
    opposed,
    tilted,
)
from cavity.numerics.normal import hazard, log_ndtr

N_CLASSES, N_ROWS = 3, 5


def scalar(x):
    return torch.full((1, 1), x, dtype=torch.float64)


def random(*shape, seed=0, low=-1.0, high=1.0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(low, high, shape))


@pytest.fixture
def own():
    y = torch.tensor([2, 0, 1, 1, 2])
    return y[None, :] == torch.arange(N_CLASSES)[:, None]


# --- Who gets what ---


def test_both_against_loops(own):
    """Factor (i, j) sees of each quantity that of class y_i first, then that of class j."""
    quantities = random(N_CLASSES, N_ROWS), random(N_CLASSES, N_ROWS, seed=1)
    found = both(own, *quantities)
    assert len(found) == 2
    for x, seen in zip(quantities, found, strict=True):
        of_own = [float(x[k, i]) for i in range(N_ROWS) for k in range(N_CLASSES) if own[k, i]]
        np.testing.assert_array_equal(seen[0], [of_own] * N_CLASSES)
        np.testing.assert_array_equal(seen[1], x)


def test_opposed_has_both_signs():
    x = random(N_CLASSES, N_ROWS)
    assert torch.equal(opposed(x), torch.stack([x, -x]))


def test_collect_against_loops(own):
    """Class y_i gets the own halves of all C − 1 factors of row i, class j the other half of factor (i, j)."""
    from_own, from_other = random(N_CLASSES, N_ROWS), random(N_CLASSES, N_ROWS, seed=1)
    from_own[own] = 0.0  # no factor there
    expected = np.zeros((N_CLASSES, N_ROWS))
    for i in range(N_ROWS):
        y = int(own[:, i].nonzero())
        for j in range(N_CLASSES):
            if j != y:
                expected[y, i] += float(from_own[j, i])
                expected[j, i] += float(from_other[j, i])
    np.testing.assert_allclose(collect(torch.stack([from_own, from_other]), own), expected, rtol=1e-15)


def stacked(own_cavity, other_cavity):
    return Cavity(*(torch.stack(x) for x in zip(own_cavity, other_cavity, strict=True)))


def of_pair(own_cavity, other_cavity, s_own, s_other):
    """The tilted distribution of one factor."""
    return tilted(stacked(own_cavity, other_cavity), torch.stack([s_own, s_other]))


def halves(site):
    """Of class y, and of class j."""
    return [Site(*half) for half in zip(*site, strict=True)]


# --- Cavity ---


def test_a_site_removed_and_put_back():
    mean, var = random(2, N_ROWS), random(2, N_ROWS, seed=1, low=0.1)
    site = Site(random(2, N_ROWS, seed=2, low=0.0, high=0.9), random(2, N_ROWS, seed=3))
    without = cavity(mean, var, site)
    precision = 1 / without.var + site.precision
    precision_mean = without.mean / without.var + site.precision_mean
    torch.testing.assert_close(1 / precision, var, rtol=1e-13, atol=0)
    torch.testing.assert_close(precision_mean / precision, mean, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("precision", [1.0, 1.0 - 1e-14, 3.0])
def test_an_improper_cavity_is_marked_and_finite(precision):
    """τh ≥ 1 up to rounding: nothing Gaussian is left."""
    found = cavity(scalar(0.3), scalar(1.0), Site(scalar(precision), scalar(0.5)))
    assert found.d < 0
    assert all(torch.isfinite(x).all() for x in found)
    other = Cavity(scalar(0.1), scalar(0.5), scalar(1.0))
    t = of_pair(found, other, scalar(0.2), scalar(0.2))
    site = new_site(t, stacked(found, other))
    assert all(torch.isfinite(x).all() for x in (*t, t.log_z, t.by_var, *site))


def test_a_proper_cavity_is_not_marked():
    assert cavity(scalar(0.3), scalar(1.0), Site(scalar(0.99), scalar(0.5))).d > 0


def test_log_cavity_ratio_is_a_difference_of_log_normalizers():
    """g = ½ log v + ½ m²/v of a Gaussian along υ (eq. 9)."""
    mean, var = random(2, N_ROWS), random(2, N_ROWS, seed=1, low=0.1)
    site = Site(random(2, N_ROWS, seed=2, low=0.0, high=0.9), random(2, N_ROWS, seed=3))
    without = cavity(mean, var, site)
    expected = 0.5 * (without.var / var).log() + 0.5 * (without.mean.square() / without.var - mean.square() / var)
    torch.testing.assert_close(log_cavity_ratio(mean, var, site, without.d), expected, rtol=1e-12, atol=1e-14)


# --- Tilted distribution and new site ---

# mean and variance of both cavities, conditional variances
FACTORS = [
    (0.3, 0.8, -0.2, 0.5, 0.1, 0.2),
    (-2.0, 0.5, 1.0, 1.5, 0.05, 0.3),  # a surprising label
    (3.0, 0.2, -1.0, 0.4, 0.1, 0.1),  # an obvious one
    (0.0, 4.0, 0.0, 0.01, 1e-6, 1e-6),  # almost a step
]


def tilted_by_grid(own_mean, own_var, other_mean, other_var, s_own, s_other):
    """log Z and the moments of Φ((g_y − g_j)/√(s_y + s_j)) × both cavities, g_j integrated out in closed form."""
    g, step = np.linspace(-12, 12, 200_001, retstep=True)
    density = np.exp(-0.5 * g**2) / np.sqrt(2 * np.pi) * step

    def moments(mean, var, distance_var, rest_mean, sign):
        x = mean + np.sqrt(var) * g
        mass = density * ndtr(sign * (x - rest_mean) / np.sqrt(distance_var))
        z = mass.sum()
        first = (mass * x).sum() / z
        return np.log(z), first, (mass * (x - first) ** 2).sum() / z

    s = s_own + s_other
    return moments(own_mean, own_var, s + other_var, other_mean, 1), moments(
        other_mean, other_var, s + own_var, own_mean, -1
    )


@pytest.mark.parametrize("factor", FACTORS)
def test_new_sites_give_q_the_moments_of_the_tilted_distribution(factor):
    own_mean, own_var, other_mean, other_var, s_own, s_other = (scalar(x) for x in factor)
    own, other = Cavity(own_mean, own_var, scalar(1.0)), Cavity(other_mean, other_var, scalar(1.0))
    t = of_pair(own, other, s_own, s_other)
    sites = halves(new_site(t, stacked(own, other)))
    for expected, at, site in zip(tilted_by_grid(*factor), (own, other), sites, strict=True):
        var = 1 / (1 / at.var + site.precision)
        mean = var * (at.mean / at.var + site.precision_mean)
        found = [float(x) for x in (t.log_z, mean, var)]
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
        assert site.precision >= 0


@pytest.mark.parametrize("factor", FACTORS)
def test_derivatives_of_log_z(factor):
    """By the mean of class y, by the variance b, and −∂² by the mean."""
    own_mean, own_var, other_mean, other_var, s_own, s_other = (scalar(x) for x in factor)

    def log_z(mean, var):
        own = Cavity(mean, var, scalar(1.0))
        return of_pair(own, Cavity(other_mean, other_var, scalar(1.0)), s_own, s_other).log_z

    leaves = own_mean.requires_grad_(), own_var.requires_grad_()
    by_mean, by_var = torch.autograd.grad(log_z(*leaves), leaves, create_graph=True)
    (second,) = torch.autograd.grad(by_mean, own_mean)
    t = of_pair(Cavity(*leaves, scalar(1.0)), Cavity(other_mean, other_var, scalar(1.0)), s_own, s_other)
    torch.testing.assert_close(t.by_mean, by_mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(t.by_var, by_var, rtol=1e-12, atol=1e-300)
    torch.testing.assert_close(t.omega, -second, rtol=1e-10, atol=0)


def test_a_certain_factor_far_in_either_tail_stays_finite():
    for difference in (-1e8, -1e3, 1e3, 1e8):
        own, other = Cavity(scalar(difference), scalar(1.0), scalar(1.0)), Cavity(scalar(0.0), scalar(1.0), scalar(1.0))
        t = of_pair(own, other, scalar(0.1), scalar(0.1))
        assert all(torch.isfinite(x).all() for x in (*t, t.log_z, t.by_var, *new_site(t, stacked(own, other))))


def test_the_difference_of_both_classes_has_all_their_variance():
    shape = 2, N_CLASSES, N_ROWS
    at = Cavity(random(*shape), random(*shape, seed=1, low=0.1), torch.ones(shape).double())
    s = random(*shape, seed=2, low=0.05, high=0.3)
    found, b = tilted(at, s), at.var[0] + s[0] + at.var[1] + s[1]
    z = (at.mean[0] - at.mean[1]) / b.sqrt()
    torch.testing.assert_close(found.z, z, rtol=1e-13, atol=0)
    torch.testing.assert_close(found.log_z, log_ndtr(z), rtol=1e-12, atol=0)
    torch.testing.assert_close(found.by_mean, hazard(z) / b.sqrt(), rtol=1e-12, atol=0)


# --- All factors of a batch ---


def a_batch(own):
    """Moments of q, conditional variances and sites with nothing special about them."""
    shape = N_CLASSES, N_ROWS
    mean, var, s = random(*shape), random(*shape, seed=1, low=0.2), random(*shape, seed=2, low=0.05, high=0.3)
    halves = [Site(random(*shape, seed=k, low=0.0, high=0.8), random(*shape, seed=k + 1)) for k in (3, 5)]
    sites = Site(*(torch.stack(x) for x in zip(*halves, strict=True)))
    return mean, var, s, sites, own, torch.where(own, 0.0, torch.ones(shape).double())


def of_factor(batch, i, j):
    """What one factor sees, as (1, 1) tensors: own and other cavity, own and other s, own and other site."""
    mean, var, s, sites, own, _ = batch
    y = int(own[:, i].nonzero())

    def at(x, k):
        return x[k, i].reshape(1, 1)

    first, second = (Site(*(at(x[half], j) for x in sites)) for half in range(2))
    cavities = cavity(at(mean, y), at(var, y), first), cavity(at(mean, j), at(var, j), second)
    return cavities, (at(s, y), at(s, j)), (first, second)


def under_q(batch):
    """What the factors of a batch see of q, their cavities, tilted moments, and weights."""
    mean, var, s, sites, own, weight = batch
    mean, var, s = both(own, mean, var, s)
    cavities = cavity(mean, var, sites)
    return mean, var, cavities, tilted(cavities, s), live_weight(cavities, weight)


def refine(batch, damping):
    """New sites of all factors, damped."""
    _, _, cavities, moments, weight = under_q(batch)
    return damped(batch[3], new_site(moments, cavities), damping, weight > 0)


def pairs(own):
    return [(i, j) for i in range(N_ROWS) for j in range(N_CLASSES) if not own[j, i]]


def test_factors_against_one_at_a_time(own):
    batch = a_batch(own)
    _, _, cavities, moments, _ = under_q(batch)
    for i, j in pairs(own):
        (first, second), s, _ = of_factor(batch, i, j)
        t = of_pair(first, second, *s)
        expected = *first, *second, *t, t.log_z, t.by_var
        of_cavities = [x[half] for half in range(2) for x in cavities]
        found = [x[j, i] for x in (*of_cavities, *moments, moments.log_z, moments.by_var)]
        np.testing.assert_allclose(found, [float(x) for x in expected], rtol=1e-13)


def test_a_factor_without_a_proper_cavity_has_no_weight(own):
    """On either class; the others keep theirs."""
    mean, var, s, sites, _, weight = a_batch(own)
    sites.precision[0, 1, 0], sites.precision[1, 2, 1] = 50.0, 50.0
    _, _, cavities, _, found = under_q((mean, var, s, sites, own, 3.0 * weight))
    expected = 3.0 * weight
    expected[1, 0] = expected[2, 1] = 0.0
    assert weight[1, 0] == weight[2, 1] == 1
    torch.testing.assert_close(found, expected)
    assert cavities.d[0, 1, 0] < 0
    assert cavities.d[1, 2, 1] < 0


@pytest.mark.parametrize("damping", [0.3, 1.0])
def test_damped_new_sites_against_one_at_a_time(own, damping):
    batch = a_batch(own)
    found = refine(batch, damping)
    for i, j in pairs(own):
        cavities, s, old = of_factor(batch, i, j)
        t = of_pair(*cavities, *s)
        for half, (before, new) in enumerate(zip(old, halves(new_site(t, stacked(*cavities))), strict=True)):
            for x, o, n in zip(found, before, new, strict=True):
                assert float(x[half, j, i]) == pytest.approx(float(damping * n + (1 - damping) * o), rel=1e-12)


def test_damping_leaves_dead_factors_alone(own):
    mean, var, s, sites, _, weight = a_batch(own)
    weight[1, 0] = 0.0
    for before, after in zip(sites, refine((mean, var, s, sites, own, weight), 0.7), strict=True):
        for old, new in zip(before, after, strict=True):  # own, other
            assert torch.equal(old[weight == 0], new[weight == 0])
            assert (old != new)[weight > 0].all()


def test_log_site_scale_against_one_at_a_time(own):
    """log Z_ij + g(cavity) − g(q) of both classes (eq. 9), each g in one dimension."""
    batch = a_batch(own)
    mean, var, *_ = batch
    of_q, of_q_var, at_all, moments, _ = under_q(batch)
    found = log_site_scale(of_q, of_q_var, batch[3], at_all, moments)
    for i, j in pairs(own):
        cavities, s, _ = of_factor(batch, i, j)
        expected = of_pair(*cavities, *s).log_z
        for k, at in zip((int(own[:, i].nonzero()), j), cavities, strict=True):
            expected = expected + 0.5 * (at.var.log() + at.mean.square() / at.var)
            expected = expected - 0.5 * (var[k, i].log() + mean[k, i].square() / var[k, i])
        assert float(found[j, i]) == pytest.approx(float(expected), rel=1e-11)


def test_collect_multiplies_the_sites_of_every_row_and_class(own):
    *_, sites, _, _ = a_batch(own)
    for x in sites:
        x[:, own] = 0.0  # no factor there
    found = [collect(x, own) for x in sites]
    expected = np.zeros((2, N_CLASSES, N_ROWS))
    for i, j in pairs(own):
        y = int(own[:, i].nonzero())
        for part in range(2):
            expected[part, y, i] += float(sites[part][0, j, i])
            expected[part, j, i] += float(sites[part][1, j, i])
    np.testing.assert_allclose(np.stack(found), expected, rtol=1e-14)
