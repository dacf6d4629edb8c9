"""The oracle against stored values of other programs, closed forms, brute-force integrals and MCMC."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from . import mcmc, oracle

DATA = Path(__file__).parent / "data"
NAMES = ("Z", "log_lengthscale", "log_variance", "log_noise")
METHODS = pytest.mark.parametrize("method", ["ep", "sep", "gfitc"])


def load(name):
    with np.load(DATA / name) as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def wine():
    return load("wine_fixed.npz")


@pytest.fixture(scope="module")
def theta(wine):
    logs = {f"log_{name}": np.log(wine[name]) for name in ("lengthscale", "variance", "noise")}
    return {"Z": wine["Z"], **logs}


@pytest.fixture(scope="module")
def fits(wine, theta):
    problem = wine["X"], wine["y"], *oracle.unpack(theta)
    return {name: fixed_point(*problem, damping=0.8) for name, fixed_point in oracle.FIXED_POINT.items()}


# --- Values of an independent program ---


@METHODS
def test_reproduces_the_stored_fixed_point(wine, theta, fits, method):
    fit = fits[method]
    assert fit.converged
    assert fit.log_z == pytest.approx(wine[f"{method}_log_z"], abs=1e-10)
    np.testing.assert_allclose(fit.mean, wine[f"{method}_mean"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(fit.cov, wine[f"{method}_cov"], rtol=0, atol=1e-10)
    log_prob = oracle.predict_log_proba(fit, wine["X_new"], *oracle.unpack(theta))
    np.testing.assert_allclose(log_prob, wine[f"{method}_log_prob_new"], rtol=0, atol=1e-9)


def test_latent_moments_agree_with_gpflow(wine, theta):
    vi = load("wine_vi.npz")
    cov = vi["q_chol"] @ vi["q_chol"].transpose(0, 2, 1)
    q = oracle.Result(None, vi["q_mean"], cov, np.nan, 0, True)
    mean, variance = oracle.latent_moments(q, wine["X_new"], *oracle.unpack(theta))
    np.testing.assert_allclose(mean.T, vi["f_mean_new"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(variance.T, vi["f_var_new"], rtol=0, atol=1e-9)


def test_bound_agrees_with_gpflow(wine, theta):
    vi, hyper = load("wine_vi.npz"), oracle.unpack(theta)
    cov = vi["q_chol"] @ vi["q_chol"].transpose(0, 2, 1)
    K, _, _ = oracle.prior(wine["X"], *hyper)
    assert oracle.vi_kl(K, vi["q_mean"], cov) == pytest.approx(float(vi["kl"]), abs=1e-8)
    bound = oracle.vi_bound(wine["X"], wine["y"], *hyper, vi["q_mean"], cov, epsilon=float(vi["epsilon"]))
    assert bound == pytest.approx(float(vi["elbo"]), abs=1e-8)


# --- Gradients: every entry of a block takes part, with a random sign ---


def signs(theta, name):
    return {name: np.random.default_rng(3).choice([-1.0, 1.0], theta[name].shape)}


def stored(wine, direction, method="ep"):
    return sum(np.sum(wine[f"{method}_grad_{name}"] * step) for name, step in direction.items())


@pytest.mark.parametrize("method", ["ep", "gfitc"])
def test_gradient_after_convergence(wine, theta, fits, method):
    direction = {name: step for each in NAMES for name, step in signs(theta, each).items()}
    options = {"start": fits[method].sites, "damping": 0.8, "tol": 1e-6}  # log Z is stationary in the sites

    def log_z(moved):
        return oracle.log_z_fixed_point(moved, wine["X"], wine["y"], method, **options)

    slope = oracle.directional_derivative(log_z, theta, direction)
    assert slope == pytest.approx(stored(wine, direction, method), abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_at_the_fixed_point_inner_gradients_equal_the_outer_one(wine, theta, fits, name):
    X, y, sites, direction = wine["X"], wine["y"], fits["ep"].sites, signs(theta, name)
    for log_z in (
        lambda moved: oracle.log_z_fixed_sites(moved, X, y, sites),
        lambda moved: oracle.log_z_fixed_cavities(moved, X, y, sites, theta),
    ):
        slope = oracle.directional_derivative(log_z, theta, direction)
        assert slope == pytest.approx(stored(wine, direction), abs=1e-7)


@pytest.mark.parametrize("method", ["ep", "sep"])
def test_log_z_of_fixed_sites_at_their_own_hyper_parameters(wine, theta, fits, method):
    log_z = oracle.log_z_fixed_sites(theta, wine["X"], wine["y"], fits[method].sites)
    assert log_z == pytest.approx(fits[method].log_z, abs=1e-12)


# --- First principles ---


@pytest.mark.parametrize("row", [0, 40, 88])
def test_ep_matches_the_moments_of_the_tilted_distribution(wine, theta, fits, row):
    """Moments of Φ(α) × cavity over (υᵀu^y, υᵀu^k) on a grid, against those of q."""
    K, upsilon, s = oracle.prior(wine["X"], *oracle.unpack(theta))
    y, sites = wine["y"], fits["ep"].sites
    q = oracle.ep_q(K, y, sites, np.ones(len(y)))
    grid = np.linspace(-9, 9, 361)
    for i, yi, k in oracle.factors(y, len(K)):
        if i != row:
            continue
        cavity_y, cavity_k = oracle.ep_cavity(q, sites, i, yi, k)
        a_y, h_y = oracle.project(cavity_y, upsilon[yi, i])
        a_k, h_k = oracle.project(cavity_k, upsilon[k, i])
        f_y, f_k = a_y + np.sqrt(h_y) * grid[:, None], a_k + np.sqrt(h_k) * grid[None, :]
        mass = np.exp(-0.5 * grid[:, None] ** 2 - 0.5 * grid**2) * ndtr((f_y - f_k) / np.sqrt(s[yi, i] + s[k, i]))
        mass /= mass.sum()
        for f, j in ((f_y, yi), (f_k, k)):
            mean = np.sum(mass * f)
            variance = np.sum(mass * (f - mean) ** 2)
            np.testing.assert_allclose(oracle.project(q[j], upsilon[j, i]), (mean, variance), rtol=0, atol=1e-9)


def test_gfitc_matches_the_moments_of_the_tilted_distribution(wine, theta, fits):
    """Moments of Θ(f^y − f^k) × cavity over f itself: class k is integrated out in closed form, class y on a grid."""
    y, sites, hyper = wine["y"], fits["gfitc"].sites, oracle.unpack(theta)
    mean, cov = oracle.moments(oracle.gfitc_q(oracle.gfitc_prior(wine["X"], *hyper), y, sites, np.ones(len(y))))
    grid, M = np.linspace(-12, 12, 4001), wine["Z"].shape[1]
    for i, yi, k in oracle.factors(y, 3)[::13]:
        q_y, cavity_y, q_k, cavity_k = oracle.gfitc_cavities(mean, cov, sites, M, i, yi, k)
        (a_y, h_y), (a_k, h_k) = (oracle.project(cavity, np.ones(1)) for cavity in (cavity_y, cavity_k))
        for q, a, h, b, v, sign in ((q_y, a_y, h_y, a_k, h_k, 1), (q_k, a_k, h_k, a_y, h_y, -1)):
            f = a + np.sqrt(h) * grid
            mass = np.exp(-0.5 * grid**2) * ndtr(sign * (f - b) / np.sqrt(v))
            mass /= mass.sum()
            first = np.sum(mass * f)
            expected = first, np.sum(mass * (f - first) ** 2)
            np.testing.assert_allclose(oracle.project(q, np.ones(1)), expected, rtol=0, atol=1e-9)


def test_log_z_of_a_single_factor_is_exact():
    X, Z = np.array([[0.3]]), np.array([[[0.0], [1.0]], [[0.5], [2.0]]])
    for fixed_point in oracle.FIXED_POINT.values():
        fit = fixed_point(X, np.array([1]), Z, np.ones((2, 1)), np.array([1.0, 2.0]), np.array([0.1, 0.2]))
        assert fit.log_z == pytest.approx(np.log(0.5), abs=1e-12)


def test_class_probabilities_of_two_classes_are_closed_form():
    mean = np.array([[0.0, 0.0], [1.0, -0.5], [-30.0, 20.0], [0.001, 0.0]])
    variance = np.array([[1.0, 1.0], [1e-6, 3.0], [2.0, 1.0], [1e-6, 1e-6]])
    z = (mean[:, 0] - mean[:, 1]) / np.sqrt(variance.sum(axis=1))
    expected = np.stack([log_ndtr(z), log_ndtr(-z)], axis=1)
    np.testing.assert_allclose(oracle.log_class_probabilities(mean, variance), expected, rtol=1e-10, atol=1e-12)


def test_class_probabilities_sum_to_one_at_very_different_variances():
    rng = np.random.default_rng(0)
    mean, variance = 2 * rng.standard_normal((20, 4)), 10 ** rng.uniform(-6, 1, (20, 4))
    total = np.exp(oracle.log_class_probabilities(mean, variance)).sum(axis=1)
    np.testing.assert_allclose(total, 1, rtol=0, atol=1e-12)


# --- Weights ---


def weighted_and_repeated(wine, theta, method, max_sweeps):
    """Some rows with integer weights and the same rows copied: their X and y, and the fits to both."""
    X, y, weights = wine["X"][::4], wine["y"][::4], np.arange(23) % 3 + 1
    copies = tuple(np.repeat(v, weights, axis=0) for v in (X, y))
    hyper, options = oracle.unpack(theta), {"tol": 1e-10, "max_sweeps": max_sweeps}
    fits = [oracle.FIXED_POINT[method](*rows, *hyper, weights=w, **options)
            for rows, w in (((X, y), weights), (copies, None))]  # fmt: skip
    return (X, y), copies, weights, fits


@pytest.fixture(scope="module")
def fewer_points(theta):
    return {**theta, "Z": theta["Z"][:, :4]}


@METHODS
@pytest.mark.parametrize("max_sweeps", [3, 2000])
def test_integer_weights_equal_repeated_rows(wine, fewer_points, method, max_sweeps):
    *_, (a, b) = weighted_and_repeated(wine, fewer_points, method, max_sweeps)
    assert a.converged == b.converged == (max_sweeps > 3)
    assert a.log_z == pytest.approx(b.log_z, abs=1e-8)
    np.testing.assert_allclose(a.mean, b.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(a.cov, b.cov, rtol=0, atol=1e-8)
    log_p = [oracle.predict_log_proba(fit, wine["X_new"], *oracle.unpack(fewer_points)) for fit in (a, b)]
    np.testing.assert_allclose(*log_p, rtol=0, atol=1e-8)


@pytest.mark.parametrize("method", ["ep", "sep"])
def test_integer_weights_of_fixed_sites_equal_repeated_rows(wine, fewer_points, method):
    rows, copies, weights, (a, b) = weighted_and_repeated(wine, fewer_points, method, max_sweeps=3)
    moved = {name: value + 0.05 for name, value in fewer_points.items()}
    for log_z, extra in ((oracle.log_z_fixed_sites, ()), (oracle.log_z_fixed_cavities, (fewer_points,))):
        weighted = log_z(moved, *rows, a.sites, *extra, weights=weights)
        assert weighted == pytest.approx(log_z(moved, *copies, b.sites, *extra), abs=1e-8)


# --- MCMC ---


def test_sampler_finds_a_known_gaussian_posterior():
    """Prior N(0,1), likelihood N(1|x,½): posterior mean 2/3, variance 1/3."""
    rng = np.random.default_rng(0)
    x = mcmc.sample(lambda x: -np.sum((1 - x) ** 2, axis=(1, 2)), (2, 3), rng, chains=40, burn_in=100, kept=500, thin=3)
    np.testing.assert_allclose(x.mean(axis=(0, 1)), 2 / 3, rtol=0, atol=0.03)
    np.testing.assert_allclose(x.var(axis=(0, 1)), 1 / 3, rtol=0, atol=0.03)


def test_likelihoods_of_the_sampler():
    rng = np.random.default_rng(0)
    m, s = 2 * rng.standard_normal((5, 3, 7)), rng.uniform(0.15, 2.5, (3, 7))
    p = mcmc.win_probabilities(m, s)
    for one, expected in zip(m, p, strict=True):
        np.testing.assert_allclose(np.exp(oracle.log_class_probabilities(one.T, s.T)), expected, rtol=0, atol=1e-9)
    y = rng.integers(0, 2, 7)
    exact = mcmc.log_likelihood_exact(m[:, :2], s[:2], y)  # of two classes both targets are one
    np.testing.assert_allclose(exact, mcmc.log_likelihood_pairwise(m[:, :2], s[:2], y), rtol=1e-8)


@pytest.mark.parametrize("target", ["pairwise", "exact"])
def test_ep_predictions_agree_with_mcmc(target):
    """The Monte Carlo error of the stored probabilities is an order below the tolerance."""
    p = load("mcmc_small.npz")
    assert p[f"{target}_r_hat_max"] < 1.01
    assert p[f"{target}_prob_se"].max() < 0.005
    fit = oracle.ep_fixed_point(p["X"], p["y"], *mcmc.hyper(p), damping=0.9, tol=1e-6)
    assert fit.converged
    prob = np.exp(oracle.predict_log_proba(fit, p["X_new"], *mcmc.hyper(p)))
    assert np.abs(prob - p[f"{target}_prob"]).mean() < 0.02
