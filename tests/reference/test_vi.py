"""VI of the package against GPflow's values, a bound in plain numpy, finite differences and the evidence itself."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, ndtr

from cavity.gp import probabilities as predict
from cavity.gp.gaussian import Natural
from cavity.gp.gradients import pull_back
from cavity.inference import VI, PlainVI, vi
from cavity.inference.vi import EPSILON, kl_from_prior
from cavity.kernels import Constant, Linear, Matern32
from cavity.training.loop import Trainer
from cavity.training.parameters import HyperPrior
from tests.problems import PLAN, Problem, converge, objective, random_problem
from tests.reference import oracle

DATA = Path(__file__).parent / "data"
BLOCKS = {"Z": "Z", "kernel.log_lengthscale": "log_lengthscale", "kernel.log_variance": "log_variance",
          "log_noise": "log_noise"}  # fmt: skip
METHODS = pytest.mark.parametrize("method", [VI, PlainVI])
WEIGHTS = pytest.mark.parametrize("weighted", [False, True])


def state_of(method, K, mean, cov):
    """q(u) = N(mean, cov) as a method keeps it."""
    if method is VI:
        return Natural(*(torch.from_numpy(x) for x in oracle.natural(K, mean, cov)))
    return torch.from_numpy(oracle.flat(mean, cov))


def a_problem(seed, weighted=False, **sizes):
    problem = random_problem(seed=seed, **sizes)
    weight = np.random.default_rng(7).uniform(0.3, 2.5, len(problem.X))
    return replace(problem, weight=weight) if weighted else problem


def bound(method, prior, state, data):
    return float(objective(method, prior, prior.conditional(data.X), state, data.full).log_z)


def five_point(f, step):
    return (8 * (f(step) - f(-step)) - (f(2 * step) - f(-2 * step))) / (12 * step)


# --- Wine: GPflow's values ---


@pytest.fixture(scope="module")
def wine():
    with np.load(DATA / "wine_fixed.npz") as archive:
        fields = {name: archive[name] for name in ("X", "y", "Z", "lengthscale", "variance", "noise")}
        X_new = archive["X_new"]
    with np.load(DATA / "wine_vi.npz") as archive:
        return dict(archive), Problem(**fields), X_new


@METHODS
def test_wine_bound_and_marginals(wine, method):
    """The KL alone, the bound, and the marginals at new rows."""
    stored, problem, X_new = wine
    cov = stored["q_chol"] @ stored["q_chol"].transpose(0, 2, 1)
    prior, made = problem.prior(), method()
    state = state_of(method, oracle.prior(problem.X, *problem.hyper)[0], stored["q_mean"], cov)
    q = made.posterior(prior, state)
    np.testing.assert_allclose(q.mean, stored["q_mean"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(q.cov, cov, rtol=0, atol=1e-10)
    assert float(kl_from_prior(q.whitened).sum()) == pytest.approx(float(stored["kl"]), rel=1e-10)
    mean, var = predict.marginals(q, torch.from_numpy(X_new))
    np.testing.assert_allclose(mean.T, stored["f_mean_new"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(var.T, stored["f_var_new"], rtol=0, atol=1e-9)
    assert float(stored["epsilon"]) == EPSILON
    assert bound(made, prior, state, problem.data()) == pytest.approx(float(stored["elbo"]), rel=1e-10)


# --- The bound in plain numpy ---


@METHODS
@WEIGHTS
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_bound_follows_the_oracle(method, weighted, n_classes):
    problem = a_problem(51, weighted, n_classes=n_classes)
    K, _, _ = oracle.prior(problem.X, *problem.hyper)
    for seed in range(3):
        mean, cov = oracle.random_q(K, seed, size=3.0)
        expected = oracle.vi_bound(problem.X, problem.y, *problem.hyper, mean, cov, problem.weights)
        found = bound(method(), problem.prior(), state_of(method, K, mean, cov), problem.data())
        assert found == pytest.approx(expected, rel=1e-10)


# --- Gradients ---


def signs(shape, seed=3):
    return np.random.default_rng(seed).choice([-1.0, 1.0], shape)


def gradient_by_name(method, model, state, data):
    prior = model.prior(model.start())
    rows = prior.conditional(data.X)
    found = objective(method, prior, rows, state, data.full)
    return pull_back(prior, rows, found.gradient)


@METHODS
@WEIGHTS
def test_gradient_by_the_hyper_parameters_is_the_slope_of_the_oracle(method, weighted):
    """VI holds q fixed in whitened coordinates, so u moves with the Cholesky factor of K; PlainVI holds q(u) fixed."""
    problem = a_problem(52, weighted, n_rows=9)
    K, _, _ = oracle.prior(problem.X, *problem.hyper)
    mean, cov = oracle.random_q(K, size=2.0)
    L = np.linalg.cholesky(K)

    def moved_bound(theta):
        hyper = oracle.unpack(theta)
        K_moved, _, _ = oracle.prior(problem.X, *hyper)
        move = (np.linalg.cholesky(K_moved) if method is VI else L) @ np.linalg.inv(L)
        q = np.einsum("kml,kl->km", move, mean), move @ cov @ move.transpose(0, 2, 1)
        return oracle.vi_bound(problem.X, problem.y, *hyper, *q, problem.weights)

    gradient = gradient_by_name(method(), problem.model(), state_of(method, K, mean, cov), problem.data())
    for block, value in gradient.items():
        direction = {BLOCKS[block]: signs(value.shape)}
        expected = oracle.directional_derivative(moved_bound, problem.theta, direction)
        assert np.sum(value.numpy() * direction[BLOCKS[block]]) == pytest.approx(expected, rel=1e-6, abs=1e-6), block


KERNEL = Matern32(1.4, 1.2) * (Constant(0.5) + Linear([1.2, 0.8]))


@METHODS
@pytest.mark.parametrize("shared", [(False, False), (True, False), (False, True), (True, True)])
def test_gradient_with_shared_kernel_and_points(method, shared):
    """At one q for all θ: whitened for VI, in u-space for PlainVI."""
    problem = a_problem(53, weighted=True, n_rows=8, n_inducing=3)
    problem = replace(problem, noise=np.array(0.3)) if shared[0] else problem
    model, data = problem.model(kernel=KERNEL, shared=shared), problem.data()
    start, made = model.start(), method()
    K = np.broadcast_to(model.prior(start).K.numpy(), (3, 3, 3))
    state = state_of(method, K, *oracle.random_q(K))
    for block, value in gradient_by_name(made, model, state, data).items():
        direction, step = torch.zeros_like(start), torch.from_numpy(signs(value.shape))
        model.split(direction)[block].copy_(step)
        slope = five_point(lambda e, d=direction: bound(made, model.prior(start + e * d), state, data), 1e-3)
        assert float((value * step).sum()) == pytest.approx(slope, rel=1e-7, abs=1e-8), block


@WEIGHTS
def test_gradient_by_q(weighted):
    """Every mean and every entry of every factor."""
    problem = a_problem(54, weighted, n_rows=8, n_inducing=3)
    prior, data = problem.prior(), problem.data()
    K = prior.K.numpy()
    state = state_of(PlainVI, K, *oracle.random_q(K))
    found = objective(PlainVI(), prior, prior.conditional(data.X), state, data.full).by_q
    steps = torch.eye(len(state), dtype=torch.float64)
    expected = [five_point(lambda e, d=d: bound(PlainVI(), prior, state + e * d, data), 1e-3) for d in steps]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * float(found.abs().max()))


def test_gradient_by_everything_at_once():
    """As training sees it: θ ends with q, and the gradient is that of one function of all of it."""
    problem = a_problem(55, n_rows=8, n_inducing=3)
    model, data = problem.model(), problem.data()
    K = problem.prior().K.numpy()
    model = model.with_q(state_of(PlainVI, K, *oracle.random_q(K)))
    run = Trainer(model, PlainVI(), data, PLAN, HyperPrior(model, {}))
    theta = model.start()
    _, _, gradient = run.evaluate(theta, None, data.full, 0)
    direction = torch.from_numpy(signs(len(theta)))
    slope = five_point(lambda e: float(run.evaluate(theta + e * direction, None, data.full, 0)[1]), 1e-3)
    assert float(gradient @ direction) == pytest.approx(slope, rel=1e-8)


# --- The evidence ---


def log_evidence(problem, nodes):
    """log ∫ p(u) Π_i p(y_i|u) du on a product of Gauss–Hermite rules.

    p(y|u) = (1 − ε) P(f^y is the largest | u) + ε/C, the probability by the trapezoidal rule over f^y given u.
    """
    K, upsilon, s = oracle.prior(problem.X, *problem.hyper)
    C, M, sd = *K.shape[:2], np.sqrt(s)
    x, weight = np.polynomial.hermite_e.hermegauss(nodes)
    v = np.stack(np.meshgrid(*[x] * (C * M), indexing="ij"), -1).reshape(-1, C, M)
    log_weight = np.log(np.stack(np.meshgrid(*[weight / weight.sum()] * (C * M), indexing="ij")).reshape(C * M, -1))
    g = np.einsum("nkm,klm,kil->nki", v, np.linalg.cholesky(K), upsilon)
    t, step = np.linspace(-7, 7, 57, retstep=True)
    density = np.exp(-0.5 * t**2) * step / np.sqrt(2 * np.pi)
    log_lik = np.zeros(len(v))
    for i, y in enumerate(problem.y):
        f = g[:, y, i, None] + sd[y, i] * t
        others = [ndtr((f - g[:, k, i, None]) / sd[k, i]) for k in range(C) if k != y]
        log_lik += np.log((1 - vi.EPSILON) * np.prod(others, axis=0) @ density + vi.EPSILON / C)
    return float(logsumexp(log_weight.sum(0) + log_lik))


SIZES = [(2, 1, 5, 30), (2, 2, 5, 12), (3, 1, 6, 20)]  # classes, inducing points, rows, nodes
GAPS = {EPSILON: 30.0, 0.3: 4.0, 0.9: 0.1}  # measured: 8 to 25, 1.2 to 3.0, 0.019 to 0.055


@pytest.mark.parametrize("epsilon", GAPS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("n_classes", "n_inducing", "n_rows", "nodes"), SIZES)
def test_the_bound_is_below_the_evidence(epsilon, seed, n_classes, n_inducing, n_rows, nodes, monkeypatch):
    """For any q; at the best q by a gap of some nats a row, for log p(y|f) is averaged over f, not p(y|f) itself.

    A larger ε takes the steepness from the likelihood, so that hardly any gap remains.
    """
    monkeypatch.setattr(vi, "EPSILON", epsilon)
    problem = a_problem(60 + seed, n_rows=n_rows, n_classes=n_classes, n_inducing=n_inducing)
    prior, data = problem.prior(), problem.data()
    K, evidence = prior.K.numpy(), log_evidence(problem, nodes)
    best = bound(VI(), prior, converge(VI(), prior, data, tol=1e-9), data)
    others = [bound(VI(), prior, state_of(VI, K, *oracle.random_q(K, seed)), data) for seed in range(5)]
    assert max(others) < best < evidence
    assert evidence - best < GAPS[epsilon]


def test_the_evidence_does_not_depend_on_the_nodes():
    """Right to 1e-6, far below any gap above; without steps in it, p(y) of one row among equals is 1/C."""
    for n_classes, n_inducing, n_rows, nodes in SIZES:
        problem = a_problem(60, n_rows=n_rows, n_classes=n_classes, n_inducing=n_inducing)
        assert log_evidence(problem, nodes) == pytest.approx(log_evidence(problem, nodes + 4), abs=1e-6)
    alike = replace(
        a_problem(60, n_rows=1, n_inducing=1), Z=np.zeros((3, 1, 2)), lengthscale=np.ones((3, 2)),
        variance=np.ones(3), noise=np.full(3, 0.2),
    )  # fmt: skip
    assert log_evidence(alike, 24) == pytest.approx(-np.log(3), abs=1e-8)
