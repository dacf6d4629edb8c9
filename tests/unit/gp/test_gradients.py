"""Gradients by the kernel blocks and by hyper-parameters, against autograd."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavity.gp import prior as prior_module
from cavity.gp.gaussian import Whitened
from cavity.gp.gradients import Gradient, RowDerivatives, prior_mismatch, pull_back, rows_gradient, whitened_gradient
from cavity.inference import EP, GFITC
from cavity.kernels import RBF
from tests.autograd_kernels import ByAutograd
from tests.problems import converge, kappa, objective, random_sites
from tests.unit.gp.conftest import PROBLEM

C, M = PROBLEM.Z.shape[:2]


@pytest.mark.parametrize("shared", [(False, False), (True, False), (False, True), (True, True)])
def test_pull_back_is_the_chain_rule_through_the_kernel_blocks(shared):
    """Against autograd through Σ⟨adjoint, block⟩ with every block at the size of all classes."""
    model = replace(PROBLEM, noise=np.array(0.2)).model(kernel=RBF(1.3, 2.0), shared=shared)
    rng, X = np.random.default_rng(2), torch.from_numpy(PROBLEM.X)
    shapes = (C, M, M), (C, M, 9), (C, 9)
    gram, cross, kappa = (torch.from_numpy(rng.standard_normal(s)) for s in shapes)
    gram = gram + gram.mT
    prior = model.prior(model.start())
    found = pull_back(prior, prior.conditional(X), Gradient(gram, cross, kappa))
    leaves = {name: value.clone().requires_grad_() for name, value in model.values.items()}
    params = {name.removeprefix("kernel."): v for name, v in leaves.items() if name.startswith("kernel.")}
    noise, L_inverse = leaves["log_noise"].exp()[:, None], prior.L_inverse
    kernel = ByAutograd(prior.kernel)
    K = kernel.gram(params, leaves["Z"]) + noise[..., None] * torch.eye(M)
    total = ((L_inverse.mT @ gram @ L_inverse) * K).sum()
    total = total + ((L_inverse.mT @ cross) * kernel.cross(params, leaves["Z"], X[None])).sum()
    total = total + (kappa * (kernel.diag(params, X[None]) + noise)).sum()
    expected = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", [EP, GFITC])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-5), (torch.float32, 2e-3)])
@pytest.mark.parametrize("shared", [(False, False), (True, True)])
def test_the_gradient_where_the_diagonal_floor_is_active(monkeypatch, method, dtype, rtol, shared):
    """Against finite differences of the converged log Z. The floor is raised so that it matters: 0.3 of the mean."""
    monkeypatch.setattr(prior_module, "least_diagonal", lambda dtype: 0.3)
    model = replace(PROBLEM, noise=np.array(0.1)).model(RBF(1.3, 2.0), shared=shared, dtype=dtype)
    data, theta, method = PROBLEM.data(), model.start(), method()
    prior = model.prior(theta)
    assert prior.is_raised.all()
    f, state = prior.conditional(data.X), converge(method, prior, data)
    parts = model.split(model.join(pull_back(prior, f, objective(method, prior, f, state, data.full).gradient)))

    def log_z(theta):
        prior = model.prior(theta)
        state = converge(method, prior, data)
        return float(objective(method, prior, prior.conditional(data.X), state, data.full).log_z)

    for name in ("log_noise", "kernel.log_variance"):
        step = model.join({name: torch.full_like(model.values[name], 1e-3 if dtype == torch.float64 else 2e-2)})
        difference = (log_z(theta + step) - log_z(theta - step)) / (2 * float(step.max()))
        assert float(parts[name].sum()) == pytest.approx(difference, rel=rtol)


def test_prior_mismatch_leaves_the_covariance_alone():
    q = Whitened.from_sites(*random_sites(C, M))
    before = q.covariance.clone()
    prior_mismatch(q)
    assert torch.equal(q.covariance, before)


def test_prior_mismatch_is_the_gradient_of_the_log_normalizer(dense):
    """Lᵀ (∂/∂K [g(q) − g(prior)]) L with T, t fixed in u-space: the first term of eq. (10)."""
    T, t = random_sites(C, M)
    K = torch.from_numpy(dense[0]).requires_grad_()
    precision = torch.linalg.inv(K) + T
    g = 0.5 * (t * torch.linalg.solve(precision, t)).sum() - 0.5 * (torch.logdet(precision) + torch.logdet(K)).sum()
    (by_K,) = torch.autograd.grad(g, K)
    L = torch.linalg.cholesky(K.detach())
    q = Whitened.from_sites(L.mT @ T @ L, (L.mT @ t[..., None]).squeeze(-1))
    torch.testing.assert_close(prior_mismatch(q), L.mT @ by_K @ L, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("made", [rows_gradient, whitened_gradient])
@pytest.mark.parametrize("shared", [False, True])
def test_gradient_of_the_rows_is_the_chain_rule_through_the_factor_of_k(made, shared):
    """Σ A a + ½ B h + D s by K, k(Z,X) and κ, against autograd with q fixed in u-space or in whitened coordinates.

    In u-space it is added to a gradient by K that is there already.
    """
    rng, X = np.random.default_rng(4), torch.from_numpy(PROBLEM.X)
    problem = replace(PROBLEM, lengthscale=np.ones(2), variance=np.array(1.5), noise=np.array(0.2))
    prior = problem.prior(shared=(shared, shared))
    rows = prior.conditional(X)
    assert len(rows.W) == (1 if shared else C)
    A, B, D = (torch.from_numpy(rng.standard_normal((C, 9))) for _ in range(3))
    q = Whitened.from_sites(*random_sites(C, M))
    before = torch.from_numpy(rng.standard_normal((C, M, M)))
    before = before + before.mT if made is rows_gradient else torch.zeros_like(before)
    gram = [before.clone()] if made is rows_gradient else []
    found = made(q, q.project_with_covariance(rows.W)[2], rows.W, RowDerivatives(A, B, D), *gram)
    blocks = prior.K.expand(C, M, M), rows.blocks.cross.expand(C, M, 9), kappa(prior, rows).expand(C, 9)
    K, cross, of_rows = (x.detach().clone().requires_grad_() for x in blocks)
    L = torch.linalg.cholesky(K)
    fixed = L.detach() if made is rows_gradient else L  # u = Lv: what stays put is u, or v
    half = torch.linalg.solve_triangular(L, cross, upper=False)
    w = fixed.mT @ torch.cholesky_solve(cross, L)
    a, h = (q.m[:, None, :] @ w).squeeze(1), (w * (q.covariance @ w)).sum(1)
    total = (A * a + 0.5 * B * h + D * (of_rows - half.square().sum(1))).sum()
    by_K, by_cross, by_kappa = torch.autograd.grad(total, (K, cross, of_rows))
    L = L.detach()
    by_gram = before + L.mT @ (0.5 * (by_K + by_K.mT)) @ L
    torch.testing.assert_close(found.gram, by_gram, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.cross, L.mT @ by_cross, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.kappa, by_kappa)
