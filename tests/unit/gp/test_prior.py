"""The sparse prior and Gaussians over the inducing values, against dense formulas in u-space."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.gp.prior import (
    Gradient,
    Posterior,
    Prior,
    Rows,
    Whitened,
    prior_mismatch,
    rows_gradient,
    sum_of_sites,
    whitened_gradient,
)
from cavity.kernels import RBF
from cavity.numerics.limits import least_diagonal, rounding
from tests.problems import random_problem
from tests.reference import oracle

PROBLEM = random_problem(seed=1, n_rows=9)
C, M = PROBLEM.Z.shape[:2]


@pytest.fixture(scope="module")
def dense():
    """K, υ and s of the rows, from the loop oracle."""
    return oracle.prior(PROBLEM.X, *PROBLEM.hyper)


@pytest.fixture
def prior():
    return PROBLEM.prior()


def random_sites(seed=0, n_classes=C, size=M):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n_classes, size, size))
    return torch.from_numpy(A @ A.transpose(0, 2, 1)), torch.from_numpy(rng.standard_normal((n_classes, size)))


# --- Prior ---


def test_rows_against_loops(prior, dense):
    """W = L⁻¹k(Z,X), s = κ − ‖w‖² (eqs. 4, 5); υ = L⁻ᵀw."""
    K, upsilon, s = dense
    rows = prior.rows(torch.from_numpy(PROBLEM.X))
    np.testing.assert_allclose(prior.K, K, rtol=1e-13)
    np.testing.assert_allclose(prior.L @ prior.L.mT, K, rtol=1e-13)
    np.testing.assert_allclose(prior.L_inverse.mT @ rows.W, upsilon.transpose(0, 2, 1), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(rows.s, s, rtol=1e-10)
    np.testing.assert_allclose(rows.kappa, np.repeat((PROBLEM.variance + PROBLEM.noise)[:, None], 9, 1), rtol=1e-14)
    assert prior.jitter == 0


def test_noise_stands_on_k_and_kappa_but_not_between_rows_and_inducing_points(prior):
    quiet = Prior(prior.kernel, prior.params, prior.log_noise - 700, prior.Z, C)
    at_inducing = torch.from_numpy(PROBLEM.Z[0])
    loud, silent = prior.rows(at_inducing), quiet.rows(at_inducing)
    noise = torch.from_numpy(PROBLEM.noise)
    assert torch.equal(loud.cross, silent.cross)
    torch.testing.assert_close(loud.kappa - silent.kappa, noise[:, None].expand(C, M))
    torch.testing.assert_close(prior.K - quiet.K, torch.diag_embed(noise[:, None].expand(C, M)))


def test_shared_kernel_and_points_equal_repeated_ones():
    params = {"log_lengthscale": torch.tensor([[0.1, 0.4]]).double(), "log_variance": torch.tensor([0.3]).double()}
    noise, Z = torch.tensor([-1.5]).double(), torch.from_numpy(PROBLEM.Z[:1])
    shared = Prior(RBF(), params, noise, Z, C)
    repeated = Prior(
        RBF(), {k: v.expand(C, *v.shape[1:]) for k, v in params.items()}, noise.expand(C), Z.expand(C, -1, -1), C
    )
    X = torch.from_numpy(PROBLEM.X)
    one, many = shared.rows(X), repeated.rows(X)
    assert len(one.W) == 1
    assert one.s.shape == many.s.shape == (C, 9)
    torch.testing.assert_close(one.W.expand_as(many.W), many.W)
    torch.testing.assert_close(one.s, many.s)
    T, t = random_sites()
    for a, b in zip(shared.whiten(T, t), repeated.whiten(T, t), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_without_noise_the_diagonal_gets_its_least_weight(dtype):
    """All inducing points equal and noise 0: K has rank one, and only the floor makes it a covariance."""
    Z = torch.from_numpy(np.repeat(PROBLEM.Z[:, :1], M, axis=1))
    model = PROBLEM.prior()
    prior = Prior(model.kernel, model.params, torch.full((C,), -math.inf).double(), Z, C, dtype)
    expected = torch.from_numpy(PROBLEM.variance * least_diagonal(dtype))
    added = (prior.L @ prior.L.mT - prior.K).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(added, expected[:, None].expand(C, M), rtol=1e-6, atol=0)
    assert prior.jitter == 0  # the floor was enough
    rows = prior.rows(torch.cat([torch.from_numpy(PROBLEM.X), Z[0]]))
    assert torch.isfinite(rows.W).all()
    assert (rows.s > 0).all()


def test_a_conditional_variance_below_rounding_is_floored():
    """400 equal inducing points, one of them a row, single precision: κ − ‖w‖² is below the rounding of ‖w‖²."""
    kernel = RBF(0.37, np.array([0.3, 1.7, 2.9]))
    Z = torch.tensor([0.3, 0.7]).double().expand(3, 400, 2)
    prior = Prior(kernel, kernel.start(3, 2, 1.0), torch.full((3,), -math.inf).double(), Z, 3, torch.float32)
    rows = prior.rows(Z[0, :1])
    rounded = rows.kappa * rounding(torch.float32)
    assert (rows.kappa - rows.W.square().sum(1) < 0.1 * rounded).all()
    torch.testing.assert_close(rows.s, rounded)


def test_the_floor_fills_up_what_is_missing_and_nothing_more(prior):
    """Noise at half the floor gets the other half; noise above it gets nothing."""
    least = least_diagonal(torch.float64)
    for share, added in ((0.5, 0.5), (2.0, 0.0)):
        log_noise = torch.log(share * least * torch.from_numpy(PROBLEM.variance))
        low = Prior(prior.kernel, prior.params, log_noise, prior.Z, C)
        found = (low.L @ low.L.mT - low.K).diagonal(dim1=-2, dim2=-1) / torch.from_numpy(PROBLEM.variance)[:, None]
        torch.testing.assert_close(found, torch.full_like(found, added * least), rtol=0, atol=1e-14)


def test_whiten_and_unwhiten_undo_each_other(prior):
    T, t = random_sites()
    for first, second in ((prior.whiten, prior.unwhiten), (prior.unwhiten, prior.whiten)):
        T_again, t_again = second(*first(T, t))
        torch.testing.assert_close(T_again, T, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(t_again, t, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(T_again, T_again.mT, rtol=1e-12, atol=1e-13)
    kept, _ = prior.unwhiten(T, t)
    assert torch.equal(kept, kept.mT)  # sums that stay in a state do not drift


def test_whiten_against_its_formula(prior):
    """LᵀTL and Lᵀt."""
    T, t = random_sites()
    S, r = prior.whiten(T, t)
    for k in range(C):
        L = prior.L[k].numpy()
        np.testing.assert_allclose(S[k], L.T @ T[k].numpy() @ L, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(r[k], L.T @ t[k].numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shared", [(False, False), (True, False), (False, True), (True, True)])
def test_pull_back_is_the_chain_rule_through_the_kernel_blocks(shared):
    """Against autograd through Σ⟨adjoint, block⟩ with every block at the size of all classes."""
    model = replace(PROBLEM, noise=np.array(0.2)).model(kernel=RBF(1.3, 2.0), shared=shared)
    rng, X = np.random.default_rng(2), torch.from_numpy(PROBLEM.X)
    shapes = (C, M, M), (C, M, 9), (C, 9)
    gram, cross, kappa = (torch.from_numpy(rng.standard_normal(s)) for s in shapes)
    gram = gram + gram.mT
    prior = model.prior(model.start())
    found = prior.pull_back(prior.rows(X), Gradient(gram, cross, kappa))
    leaves = {name: value.clone().requires_grad_() for name, value in model.values.items()}
    params = {name.removeprefix("kernel."): v for name, v in leaves.items() if name.startswith("kernel.")}
    noise, L_inverse = leaves["log_noise"].exp()[:, None], prior.L_inverse
    K = prior.kernel.gram(params, leaves["Z"]) + noise[..., None] * torch.eye(M)
    total = ((L_inverse.mT @ gram @ L_inverse) * K).sum()
    total = total + ((L_inverse.mT @ cross) * prior.kernel.cross(params, leaves["Z"], X[None])).sum()
    total = total + (kappa * (prior.kernel.diag(params, X[None]) + noise)).sum()
    expected = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-10)


def test_single_precision_touches_only_the_cross_covariance():
    prior = PROBLEM.prior(dtype=torch.float32)
    rows = prior.rows(torch.from_numpy(PROBLEM.X).float())
    exact = PROBLEM.prior().rows(torch.from_numpy(PROBLEM.X))
    assert prior.K.dtype == prior.L.dtype == rows.cross.dtype == rows.W.dtype == torch.float64
    assert 0 < (rows.cross - exact.cross).abs().max() < 1e-6


# --- Gaussians over u ---


def dense_q(K, T, t):
    """Mean and covariance with precision K⁻¹ + T and precision-mean t."""
    cov = np.linalg.inv(np.linalg.inv(K) + T.numpy())
    return np.einsum("kml,kl->km", cov, t.numpy()), cov


def test_posterior_against_dense_formulas(prior, dense):
    K, upsilon, s = dense
    T, t = random_sites()
    mean, cov = dense_q(K, T, t)
    posterior = Posterior(prior, Whitened.from_sites(*prior.whiten(T, t)))
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(posterior.cov, cov, rtol=1e-9, atol=1e-11)
    f_mean, f_var = posterior.marginals(torch.from_numpy(PROBLEM.X))
    np.testing.assert_allclose(f_mean, np.einsum("knm,km->kn", upsilon, mean), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(f_var, s + np.einsum("knm,kml,knl->kn", upsilon, cov, upsilon), rtol=1e-9)


def test_without_sites_q_is_the_prior(prior):
    nothing = torch.zeros(C, M, M).double(), torch.zeros(C, M).double()
    posterior = Posterior(prior, Whitened.from_sites(*nothing))
    np.testing.assert_allclose(posterior.cov, prior.K, rtol=1e-12)
    mean, var = posterior.marginals(torch.from_numpy(PROBLEM.X))
    assert not mean.any()
    torch.testing.assert_close(var, prior.rows(torch.from_numpy(PROBLEM.X)).kappa)  # s + ‖w‖² = κ


def test_whitened_projections_and_covariance(prior):
    S, r = random_sites()
    q = Whitened.from_sites(S, r)
    W = prior.rows(torch.from_numpy(PROBLEM.X)).W
    a, h = q.project(W)
    cov = torch.linalg.inv(torch.eye(M).double() + S)
    torch.testing.assert_close(q.covariance, cov, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(a, torch.einsum("kmn,kml,kl->kn", W, cov, r), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(h, torch.einsum("kmn,kml,kln->kn", W, cov, W), rtol=1e-10, atol=1e-12)
    assert q.covariance is q.covariance  # made once
    for found, expected in zip(q.gather(W), (a, h, cov @ W), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("axis", [(), (2,)])
def test_a_share_of_the_sites_is_that_of_both_their_parameters(axis):
    """P = I + share·S and m = P⁻¹(share·r) of each class; shares along a further axis are as many Gaussians."""
    S, r = random_sites()
    share = torch.from_numpy(np.random.default_rng(5).uniform(0.2, 0.9, (*axis, C)))
    found = Whitened.from_sites(S, r, share)
    assert found.m.shape == (*axis, C, M)
    each = zip(found.unbind(), share, strict=True) if axis else [(found, share)]
    for q, part in each:
        expected = Whitened.from_sites(part[:, None, None] * S, part[:, None] * r)
        torch.testing.assert_close(q.R_inverse, expected.R_inverse, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(q.m, expected.m, rtol=1e-12, atol=1e-14)


def test_sites_are_left_as_they_were():
    """The diagonal gets its ones in a copy."""
    S, r = random_sites()
    before = S.clone(), r.clone()
    Whitened.from_sites(S, r)
    Whitened.from_sites(S, r, torch.full((C,), 0.5).double())
    assert torch.equal(S, before[0])
    assert torch.equal(r, before[1])


def test_whitened_on_a_device_is_the_same():
    q = Whitened.from_sites(*random_sites())
    there = q.to(torch.device("cpu"))
    assert torch.equal(there.R_inverse, q.R_inverse)
    assert torch.equal(there.m, q.m)


def test_prior_mismatch_leaves_the_covariance_alone():
    q = Whitened.from_sites(*random_sites())
    before = q.covariance.clone()
    prior_mismatch(q)
    assert torch.equal(q.covariance, before)


def test_log_normalizer_is_a_difference_of_dense_ones(prior, dense):
    """g(q) − g(prior) of eq. (9)."""
    T, t = random_sites()
    S, r = prior.whiten(T, t)
    found = Whitened.from_sites(S, r).log_normalizer(r)
    for k, K in enumerate(dense[0]):
        precision = np.linalg.inv(K)
        expected = oracle.g((precision + T[k].numpy(), t[k].numpy())) - oracle.g((precision, np.zeros(M)))
        assert float(found[k]) == pytest.approx(expected, rel=1e-10)


def test_prior_mismatch_is_the_gradient_of_the_log_normalizer(dense):
    """Lᵀ (∂/∂K [g(q) − g(prior)]) L with T, t fixed in u-space: the first term of eq. (10)."""
    T, t = random_sites()
    K = torch.from_numpy(dense[0]).requires_grad_()
    precision = torch.linalg.inv(K) + T
    g = 0.5 * (t * torch.linalg.solve(precision, t)).sum() - 0.5 * (torch.logdet(precision) + torch.logdet(K)).sum()
    (by_K,) = torch.autograd.grad(g, K)
    L = torch.linalg.cholesky(K.detach())
    q = Whitened.from_sites(L.mT @ T @ L, (L.mT @ t[..., None]).squeeze(-1))
    torch.testing.assert_close(prior_mismatch(q), L.mT @ by_K @ L, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("axis", [1, C])
def test_sum_of_sites_against_loops(prior, axis):
    """Σ_i Δ_i w_i w_iᵀ and Σ_i ν_i w_i (eq. 8)."""
    W = prior.rows(torch.from_numpy(PROBLEM.X)).W[:axis]
    rng = np.random.default_rng(3)
    precision, linear = (torch.from_numpy(rng.standard_normal((C, 9))) for _ in range(2))
    S, r = sum_of_sites(W, precision, linear)
    for k in range(C):
        w = W[min(k, axis - 1)].numpy()
        expected = sum(float(precision[k, i]) * np.outer(w[:, i], w[:, i]) for i in range(9))
        np.testing.assert_allclose(S[k], expected, rtol=1e-12, atol=1e-13)
        expected = sum(float(linear[k, i]) * w[:, i] for i in range(9))
        np.testing.assert_allclose(r[k], expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("made", [rows_gradient, whitened_gradient])
@pytest.mark.parametrize("shared", [False, True])
def test_gradient_of_the_rows_is_the_chain_rule_through_the_factor_of_k(made, shared):
    """Σ A a + ½ B h + D s by K, k(Z,X) and κ, against autograd with q fixed in u-space or in whitened coordinates.

    In u-space it is added to a gradient by K that is there already.
    """
    rng, X = np.random.default_rng(4), torch.from_numpy(PROBLEM.X)
    problem = replace(PROBLEM, lengthscale=np.ones(2), variance=np.array(1.5), noise=np.array(0.2))
    prior = problem.prior(shared=(shared, shared))
    rows = prior.rows(X)
    assert len(rows.W) == (1 if shared else C)
    A, B, D = (torch.from_numpy(rng.standard_normal((C, 9))) for _ in range(3))
    q = Whitened.from_sites(*random_sites())
    before = torch.from_numpy(rng.standard_normal((C, M, M)))
    before = before + before.mT if made is rows_gradient else torch.zeros_like(before)
    gram = [before.clone()] if made is rows_gradient else []
    found = made(q, q.gather(rows.W)[2], rows.W, A, B, D, *gram)
    blocks = prior.K.expand(C, M, M), rows.cross.expand(C, M, 9), rows.kappa.expand(C, 9)
    K, cross, kappa = (x.detach().clone().requires_grad_() for x in blocks)
    L = torch.linalg.cholesky(K)
    fixed = L.detach() if made is rows_gradient else L  # u = Lv: what stays put is u, or v
    half = torch.linalg.solve_triangular(L, cross, upper=False)
    w = fixed.mT @ torch.cholesky_solve(cross, L)
    a, h = (q.m[:, None, :] @ w).squeeze(1), (w * (q.covariance @ w)).sum(1)
    total = (A * a + 0.5 * B * h + D * (kappa - half.square().sum(1))).sum()
    by_K, by_cross, by_kappa = torch.autograd.grad(total, (K, cross, kappa))
    L = L.detach()
    by_gram = before + L.mT @ (0.5 * (by_K + by_K.mT)) @ L
    torch.testing.assert_close(found.gram, by_gram, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.cross, L.mT @ by_cross, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.kappa, by_kappa)


def test_posterior_on_a_device_keeps_epsilon(prior):
    q = Posterior(prior, Whitened.from_sites(*random_sites()), 0.01).to(torch.device("cpu"))
    assert q.epsilon == 0.01


def test_posterior_on_a_device_leaves_the_graph_behind(prior):
    model = PROBLEM.model()
    leaf = model.start().requires_grad_()
    there = Posterior(model.prior(leaf), Whitened.from_sites(*random_sites())).to(torch.device("cpu"))
    assert not there.prior.Z.requires_grad
    assert not any(value.requires_grad for value in there.prior.params.values())
    assert isinstance(there.prior.rows(torch.from_numpy(PROBLEM.X)), Rows)
