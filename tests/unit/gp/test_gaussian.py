"""Gaussians over the inducing values, against dense formulas in u-space."""

import numpy as np
import pytest
import torch

from cavity.gp.gaussian import SERIES, Natural, Posterior, Thinned, Whitened, project_sites, sum_of_sites
from cavity.gp.prior import Conditional
from tests.problems import kappa, random_sites
from tests.reference import oracle
from tests.unit.gp.conftest import PROBLEM

C, M = PROBLEM.Z.shape[:2]


def dense_q(K, T, t):
    """Mean and covariance with precision K⁻¹ + T and precision-mean t."""
    cov = np.linalg.inv(np.linalg.inv(K) + T.numpy())
    return np.einsum("kml,kl->km", cov, t.numpy()), cov


def test_posterior_against_dense_formulas(prior, dense):
    K, upsilon, s = dense
    T, t = random_sites(C, M)
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
    torch.testing.assert_close(var, kappa(prior, prior.conditional(torch.from_numpy(PROBLEM.X))))  # s + ‖w‖² = κ


def test_whitened_projections_and_covariance(prior):
    S, r = random_sites(C, M)
    q = Whitened.from_sites(S, r)
    W = prior.conditional(torch.from_numpy(PROBLEM.X)).W
    a, h = q.project(W)
    cov = torch.linalg.inv(torch.eye(M).double() + S)
    torch.testing.assert_close(q.covariance, cov, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(a, torch.einsum("kmn,kml,kl->kn", W, cov, r), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(h, torch.einsum("kmn,kml,kln->kn", W, cov, W), rtol=1e-10, atol=1e-12)
    assert q.covariance is q.covariance  # made once
    for found, expected in zip(q.project_with_covariance(W), (a, h, cov @ W), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("axis", [(), (2,)])
def test_a_fraction_of_the_sites_is_that_of_both_their_parameters(axis):
    """P = I + keep·S and m = P⁻¹(keep·r) of each class; fractions along a further axis are as many Gaussians."""
    S, r = random_sites(C, M)
    share = torch.from_numpy(np.random.default_rng(5).uniform(0.2, 0.9, (*axis, C)))
    found = Whitened.from_sites(S, r, share)
    assert found.m.shape == (*axis, C, M)
    each = zip(map(Whitened, found.R_inverse, found.m), share, strict=True) if axis else [(found, share)]
    for q, part in each:
        expected = Whitened.from_sites(part[:, None, None] * S, part[:, None] * r)
        torch.testing.assert_close(q.R_inverse, expected.R_inverse, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(q.m, expected.m, rtol=1e-12, atol=1e-14)


def test_sites_are_left_as_they_were():
    """The diagonal gets its ones in a copy."""
    S, r = random_sites(C, M)
    before = S.clone(), r.clone()
    Whitened.from_sites(S, r)
    Whitened.from_sites(S, r, torch.full((C,), 0.5).double())
    assert torch.equal(S, before[0])
    assert torch.equal(r, before[1])


def test_whitened_on_a_device_is_the_same(prior):
    q = Whitened.from_sites(*random_sites(C, M))
    there = Posterior(prior, q).to(torch.device("cpu")).whitened
    assert torch.equal(there.R_inverse, q.R_inverse)
    assert torch.equal(there.m, q.m)


def test_log_normalizer_is_a_difference_of_dense_ones(prior, dense):
    """g(q) − g(prior) of eq. (9)."""
    T, t = random_sites(C, M)
    S, r = prior.whiten(T, t)
    found = Whitened.from_sites(S, r).log_normalizer(r)
    for k, K in enumerate(dense[0]):
        precision = np.linalg.inv(K)
        expected = oracle.g((precision + T[k].numpy(), t[k].numpy())) - oracle.g((precision, np.zeros(M)))
        assert float(found[k]) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("axis", [1, C])
def test_sum_of_sites_against_loops(prior, axis):
    """Σ_i Δ_i w_i w_iᵀ and Σ_i ν_i w_i (eq. 8)."""
    W = prior.conditional(torch.from_numpy(PROBLEM.X)).W[:axis]
    rng = np.random.default_rng(3)
    precision, linear = (torch.from_numpy(rng.standard_normal((C, 9))) for _ in range(2))
    S, r = sum_of_sites(W, precision, linear)
    for k in range(C):
        w = W[min(k, axis - 1)].numpy()
        expected = sum(float(precision[k, i]) * np.outer(w[:, i], w[:, i]) for i in range(9))
        np.testing.assert_allclose(S[k], expected, rtol=1e-12, atol=1e-13)
        expected = sum(float(linear[k, i]) * w[:, i] for i in range(9))
        np.testing.assert_allclose(r[k], expected, rtol=1e-12, atol=1e-13)


def test_posterior_on_a_device_keeps_epsilon(prior):
    q = Posterior(prior, Whitened.from_sites(*random_sites(C, M)), 0.01).to(torch.device("cpu"))
    assert q.epsilon == 0.01


def test_posterior_on_a_device_leaves_the_graph_behind(prior):
    model = PROBLEM.model()
    leaf = model.start().requires_grad_()
    there = Posterior(model.prior(leaf), Whitened.from_sites(*random_sites(C, M))).to(torch.device("cpu"))
    assert not there.prior.Z.requires_grad
    assert not any(value.requires_grad for value in there.prior.params.values())
    assert isinstance(there.prior.conditional(torch.from_numpy(PROBLEM.X)), Conditional)


# --- A fraction of the sites without another factorization ---


@pytest.mark.parametrize("keep", [None, [0.5, 0.999, 0.7]])
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_a_projection_by_a_triangular_solve_is_that_of_the_factor(prior, keep, dtype, tol):
    natural = Natural(*prior.whiten(*random_sites(*prior.L.shape[:2])))
    keep = None if keep is None else torch.tensor(keep, dtype=torch.float64)
    W = prior.conditional(torch.from_numpy(PROBLEM.X)).W[..., : prior.L.shape[-1]]  # few rows
    found = project_sites(natural, W.to(dtype), keep)
    for x, expected in zip(found, Whitened.from_sites(*natural, keep=keep).project(W), strict=True):
        assert x.dtype == torch.float64
        torch.testing.assert_close(x, expected, rtol=tol, atol=tol)


def thinned(prior, removed):
    """The Gaussian of a factorization, and that of the series, with different fractions of the classes removed."""
    natural = Natural(*prior.whiten(*random_sites(*prior.L.shape[:2])))
    keep = 1.0 - removed * torch.linspace(0.3, 1.0, len(natural.S), dtype=torch.float64)
    q, exact = Whitened.from_sites(*natural), Whitened.from_sites(*natural, keep=keep)
    ratio = exact.log_normalizer(keep[:, None] * natural.r) - q.log_normalizer(natural.r)
    return exact, ratio, Thinned(q, keep, Thinned.terms_for(keep)), natural


@pytest.mark.parametrize("removed", [1e-9, *SERIES.values()])
def test_the_series_is_as_exact_as_a_factorization(prior, removed):
    exact, ratio, series, natural = thinned(prior, removed)
    W = prior.conditional(torch.from_numpy(PROBLEM.X)).W
    for found, expected in zip(
        (series.m, *series.project_with_covariance(W)), (exact.m, *exact.project_with_covariance(W)), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=2e-10)
    torch.testing.assert_close(series.log_normalizer_ratio(natural.r), ratio, rtol=1e-9, atol=1e-12)


def test_each_term_of_the_series_counts(prior):
    exact, _, series, _ = thinned(prior, max(SERIES.values()))
    fewer = Thinned(series.q, series.keep, series.terms - 1)
    assert (fewer.m - exact.m).abs().max() > 10 * (series.m - exact.m).abs().max()


def test_many_removed_sites_need_a_factorization():
    least = 1.0 - max(SERIES.values())
    assert Thinned.terms_for(torch.tensor([1.0, 0.9 * least])) is None
    assert Thinned.terms_for(torch.tensor([1.0, 1.0 - 1e-9], dtype=torch.float64)) == min(SERIES)
