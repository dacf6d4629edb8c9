"""The parts of the bound, and what a natural-gradient step may and may not do to q."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from cavity.gp.gaussian import Natural, Whitened
from cavity.inference import VI, PlainVI
from cavity.inference.vi import EPSILON, expected_log_lik, kl_from_prior
from cavity.training.fixed_point import relative_change
from tests.problems import converge, objective, random_problem, update
from tests.reference import oracle

PROBLEM = random_problem(seed=71, n_rows=12)
C, M = PROBLEM.Z.shape[:2]
EYE = torch.eye(M, dtype=torch.float64)


@pytest.fixture(scope="module")
def prior():
    return PROBLEM.prior()


@pytest.fixture(scope="module")
def rows(prior):
    return prior.conditional(torch.from_numpy(PROBLEM.X))


def random_state(seed=0, size=1.0, spread=1.0):
    """Some P and Pm, the eigenvalues of P within `spread` decades of one, the means of this size."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((C, M, M)))
    P = (Q * 10 ** rng.uniform(-spread, spread, (C, 1, M))) @ Q.transpose(0, 2, 1)
    m = size * rng.standard_normal((C, M))
    return Natural(torch.from_numpy(P) - EYE, torch.from_numpy(np.einsum("kml,kl->km", P, m)))


# --- The parts of the bound ---


def test_expected_log_lik_is_linear_in_the_win_probability():
    """p log(1 − ε + ε/C) + (1 − p) log(ε/C) of every row, by weight and scale; p by another quadrature."""
    rng = np.random.default_rng(0)
    mean, var = 2 * rng.standard_normal((C, 12)), rng.uniform(0.2, 3.0, (C, 12))
    weight = rng.uniform(0.3, 2.5, 12)
    batch = PROBLEM.data().full._replace(weight=torch.from_numpy(weight), scale=2.5)
    found = expected_log_lik(torch.from_numpy(mean), torch.from_numpy(var), batch)
    expected = 0.0
    for w, log_p, y in zip(weight, oracle.log_class_probabilities(mean.T, var.T), PROBLEM.y, strict=True):
        p = math.exp(log_p[y])
        expected += 2.5 * w * (p * math.log(1 - EPSILON + EPSILON / C) + (1 - p) * math.log(EPSILON / C))
    assert float(found.log_lik) == pytest.approx(expected, rel=1e-11)


def test_derivatives_of_the_expected_log_lik():
    rng = np.random.default_rng(1)
    mean, var = (torch.from_numpy(x) for x in (2 * rng.standard_normal((C, 12)), rng.uniform(0.2, 3.0, (C, 12))))
    batch = PROBLEM.data().full._replace(weight=torch.from_numpy(rng.uniform(0.3, 2.5, 12)), scale=2.5)
    found = expected_log_lik(mean, var, batch)
    for value, at in ((found.by_mean, 0), (found.by_var, 1)):
        move = torch.from_numpy(rng.choice([-1.0, 1.0], (C, 12)))

        def f(e, at=at, move=move):
            shifted = [mean + e * move, var] if at == 0 else [mean, var + e * move]
            return float(expected_log_lik(*shifted, batch).log_lik)

        slope = (8 * (f(1e-3) - f(-1e-3)) - (f(2e-3) - f(-2e-3))) / 12e-3
        assert float((value * move).sum()) == pytest.approx(slope, rel=1e-8)


def test_kl_from_prior_is_that_of_two_gaussians():
    state = random_state()
    q = Whitened.from_sites(*state)
    expected = kl_divergence(
        MultivariateNormal(q.m, precision_matrix=state.S + EYE), MultivariateNormal(torch.zeros(M).double(), EYE)
    )
    torch.testing.assert_close(kl_from_prior(q), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("method", [VI, PlainVI])
@pytest.mark.parametrize("shared", [False, True])
def test_before_any_data_q_is_the_prior(method, shared):
    problem = replace(PROBLEM, noise=np.array(0.3), lengthscale=np.ones(2), variance=np.array(1.5))
    prior = problem.prior(shared=(shared, shared))
    q = method().posterior(prior, method().init(prior, PROBLEM.data().own_weight, 12))
    np.testing.assert_allclose(q.mean, 0, atol=1e-15)
    np.testing.assert_allclose(q.cov, np.broadcast_to(prior.K.numpy(), (C, M, M)), rtol=1e-12)
    torch.testing.assert_close(kl_from_prior(q.whitened), torch.zeros(C).double(), rtol=0, atol=1e-12)
    assert q.epsilon == EPSILON


def test_plain_state_and_q_are_one_to_one(prior):
    """Means, then lower triangles with the logarithm of the diagonal, whatever K is."""
    mean, cov = oracle.random_q(prior.K.numpy())
    q = PlainVI().posterior(prior, torch.from_numpy(oracle.flat(mean, cov)))
    np.testing.assert_allclose(q.mean, mean, rtol=1e-11)
    np.testing.assert_allclose(q.cov, cov, rtol=1e-10, atol=1e-12)


def test_plain_vi_leaves_its_state_to_the_optimizer(prior, rows):
    state = torch.from_numpy(oracle.flat(*oracle.random_q(prior.K.numpy())))
    batch = PROBLEM.data().full
    assert update(PlainVI(), prior, rows, state, batch, 0.5) is state
    assert objective(PlainVI(), prior, rows, state, batch).by_q.shape == state.shape
    assert objective(VI(), prior, rows, random_state(), batch).by_q is None
    assert (VI.learns_q, PlainVI.learns_q) == (False, True)


def test_change_is_relative_to_the_size_of_a_state():
    a = random_state()
    assert relative_change(a, a) == 0
    b = Natural(a.S, 10 * a.r)
    assert relative_change(a, b) == pytest.approx(0.9 * float(b.r.abs().max()) / max(1.0, float(b.r.abs().max())))
    assert relative_change(torch.tensor([0.0, 4.0]), torch.tensor([1.0, 5.0])) == pytest.approx(0.2)


# --- Natural-gradient steps ---


def hostile(problem, m):
    """Rows labeled with the class that q thinks least likely."""
    a = torch.einsum("km,kmn->kn", m, problem.prior().conditional(torch.from_numpy(problem.X)).W)
    return replace(problem, y=a.argmin(0).numpy(), weight=np.full(len(problem.X), 3.0))


def naive(prior, rows, state, batch, damping):
    """P after a plain step towards the target, and the target's site precisions."""
    q = Whitened.from_sites(*state)
    a, h = q.project(rows.W)
    precision = -2.0 * expected_log_lik(a, rows.s + h, batch).by_var
    target = EYE + torch.einsum("kmi,ki,kni->kmn", rows.W, precision, rows.W)
    return torch.lerp(state.S + EYE, target, damping), precision


@pytest.mark.parametrize("damping", [1e-3, 0.1, 0.5, 0.9, 1.0])
def test_a_step_keeps_the_precision_positive_definite(prior, rows, damping):
    """The step is ½P + ½(P − ρG)P⁻¹(P − ρG), so at least half of P stays, whatever the sites."""
    for seed in range(12):
        state = random_state(seed, size=3.0)
        problem = hostile(PROBLEM, Whitened.from_sites(*state).m) if seed % 2 else PROBLEM
        found = update(VI(), prior, rows, state, problem.data().full, damping)
        left = found.S + EYE - 0.5 * (state.S + EYE)
        assert torch.linalg.eigvalsh(left).min() > -1e-10
        assert torch.linalg.eigvalsh(found.S + EYE).min() > 0
        assert torch.isfinite(found.r).all()


def test_without_the_correction_it_would_not_be():
    """What makes the test above able to fail: misclassified rows have negative site precisions."""
    lost = 0
    for seed in range(12):
        state = random_state(seed, size=3.0)
        problem = hostile(PROBLEM, Whitened.from_sites(*state).m)
        prior = problem.prior()
        P, precision = naive(prior, prior.conditional(torch.from_numpy(problem.X)), state, problem.data().full, 0.9)
        assert precision.min() < -0.1
        lost += int((torch.linalg.eigvalsh(P).min(-1).values < 0).any())
    assert lost > 6


def test_many_full_steps_on_hostile_rows_stay_finite(prior, rows):
    problem = hostile(PROBLEM, Whitened.from_sites(*random_state(1, size=5.0)).m)
    state, batch = random_state(1, size=5.0, spread=3.0), problem.data().full
    for _ in range(200):
        state = update(VI(), prior, rows, state, batch, 1.0)
    assert torch.linalg.eigvalsh(state.S + EYE).min() > 0
    assert torch.isfinite(objective(VI(), prior, rows, state, batch).log_z)


def pull_of_a_step(prior, rows, state, batch):
    """G = P − P̂ and the pull on the mean, read off two steps: P − ρG + ½ρ²GP⁻¹G at ρ = 1 and ½."""
    whole, half = (update(VI(), prior, rows, state, batch, damping) for damping in (1.0, 0.5))
    m = Whitened.from_sites(*state).m
    moved = torch.einsum("kml,kl->km", whole.S + EYE, m)
    return 3.0 * state.S + whole.S - 4.0 * half.S, whole.r - moved + m


def test_a_step_follows_the_gradient_by_the_moments(prior, rows):
    """dP = −2ρ ∂bound/∂V and P dm = ρ ∂bound/∂m: natural parameters move along the gradient by the moments."""
    state, batch, rng = random_state(2), PROBLEM.data().full, np.random.default_rng(4)
    G, pull = pull_of_a_step(prior, rows, state, batch)
    m, V = Whitened.from_sites(*state).m, torch.linalg.inv(state.S + EYE)
    dm, dV = torch.from_numpy(rng.standard_normal((C, M))), torch.from_numpy(rng.standard_normal((C, M, M)))
    dV = 0.1 * (dV + dV.mT)

    def bound(by_m, by_V):
        P = torch.linalg.inv(V + by_V * dV)
        moved = Natural(P - EYE, torch.einsum("kml,kl->km", P, m + by_m * dm))
        return float(objective(VI(), prior, rows, moved, batch).log_z)

    step = 1e-3
    for slope, at in ((0.5 * (G * dV).sum(), (0, step)), (((pull - m) * dm).sum(), (step, 0))):
        near = bound(*at) - bound(*(-x for x in at))
        far = bound(*(2 * x for x in at)) - bound(*(-2 * x for x in at))
        assert float(slope) == pytest.approx((8 * near - far) / (12 * step), rel=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_a_short_step_raises_the_bound(prior, rows, seed):
    state, batch = random_state(seed), PROBLEM.data().full
    before, after = (
        float(objective(VI(), prior, rows, s, batch).log_z)
        for s in (state, update(VI(), prior, rows, state, batch, 1e-2))
    )
    assert after > before + 1e-4


def test_without_evidence_q_goes_back_to_the_prior():
    problem = replace(PROBLEM, weight=np.full(12, 1e-12))
    state = converge(VI(), problem.prior(), problem.data(), tol=1e-13, start=random_state(3))
    assert state.S.abs().max() < 1e-10
    assert state.r.abs().max() < 1e-10


def test_at_the_fixed_point_the_target_is_q_itself(prior, rows):
    state = converge(VI(), prior, PROBLEM.data(), tol=1e-12)
    G, pull = pull_of_a_step(prior, rows, state, PROBLEM.data().full)
    assert G.abs().max() < 1e-9
    torch.testing.assert_close(pull, Whitened.from_sites(*state).m, rtol=0, atol=1e-9)
