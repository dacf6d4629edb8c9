"""The sparse prior, against dense formulas in u-space."""

import math

import numpy as np
import pytest
import torch

from cavity.gp.prior import Prior
from cavity.kernels import RBF
from cavity.numerics.limits import least_diagonal, rounding
from tests.problems import kappa, random_sites
from tests.unit.gp.conftest import PROBLEM

C, M = PROBLEM.Z.shape[:2]


def test_rows_against_loops(prior, dense):
    """W = L⁻¹k(Z,X), s = κ − ‖w‖² (eqs. 4, 5); υ = L⁻ᵀw."""
    K, upsilon, s = dense
    rows = prior.conditional(torch.from_numpy(PROBLEM.X))
    np.testing.assert_allclose(prior.K, K, rtol=1e-13)
    np.testing.assert_allclose(prior.L @ prior.L.mT, K, rtol=1e-13)
    np.testing.assert_allclose(prior.L_inverse.mT @ rows.W, upsilon.transpose(0, 2, 1), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(rows.s, s, rtol=1e-10)
    expected = np.repeat((PROBLEM.variance + PROBLEM.noise)[:, None], 9, 1)
    np.testing.assert_allclose(kappa(prior, rows), expected, rtol=1e-14)
    assert torch.equal(prior.L, torch.linalg.cholesky(prior.K))  # no jitter


def test_noise_stands_on_k_and_kappa_but_not_between_rows_and_inducing_points(prior):
    quiet = Prior(prior.kernel, prior.params, prior.log_noise - 700, prior.Z, C)
    at_inducing = torch.from_numpy(PROBLEM.Z[0])
    loud, silent = prior.conditional(at_inducing), quiet.conditional(at_inducing)
    noise = torch.from_numpy(PROBLEM.noise)
    assert torch.equal(loud.blocks.cross, silent.blocks.cross)
    torch.testing.assert_close(kappa(prior, loud) - kappa(quiet, silent), noise[:, None].expand(C, M))
    torch.testing.assert_close(prior.K - quiet.K, torch.diag_embed(noise[:, None].expand(C, M)))


def test_shared_kernel_and_points_equal_repeated_ones():
    params = {"log_lengthscale": torch.tensor([[0.1, 0.4]]).double(), "log_variance": torch.tensor([0.3]).double()}
    noise, Z = torch.tensor([-1.5]).double(), torch.from_numpy(PROBLEM.Z[:1])
    shared = Prior(RBF(), params, noise, Z, C)
    repeated = Prior(
        RBF(), {k: v.expand(C, *v.shape[1:]) for k, v in params.items()}, noise.expand(C), Z.expand(C, -1, -1), C
    )
    X = torch.from_numpy(PROBLEM.X)
    one, many = shared.conditional(X), repeated.conditional(X)
    assert len(one.W) == 1
    assert one.s.shape == many.s.shape == (C, 9)
    torch.testing.assert_close(one.W.expand_as(many.W), many.W)
    torch.testing.assert_close(one.s, many.s)
    T, t = random_sites(C, M)
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
    rows = prior.conditional(torch.cat([torch.from_numpy(PROBLEM.X), Z[0]]))
    assert torch.isfinite(rows.W).all()
    assert (rows.s > 0).all()


def test_a_conditional_variance_below_rounding_is_floored():
    """400 equal inducing points, one of them a row, single precision: κ − ‖w‖² is below the rounding of ‖w‖²."""
    kernel = RBF(0.37, np.array([0.3, 1.7, 2.9]))
    Z = torch.tensor([0.3, 0.7]).double().expand(3, 400, 2)
    prior = Prior(kernel, kernel.start(3, 2, 1.0), torch.full((3,), -math.inf).double(), Z, 3, torch.float32)
    rows = prior.conditional(Z[0, :1])
    total = kappa(prior, rows)
    rounded = total * rounding(torch.float32)
    assert (total - rows.W.square().sum(1) < 0.1 * rounded).all()
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
    T, t = random_sites(C, M)
    for first, second in ((prior.whiten, prior.unwhiten), (prior.unwhiten, prior.whiten)):
        T_again, t_again = second(*first(T, t))
        torch.testing.assert_close(T_again, T, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(t_again, t, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(T_again, T_again.mT, rtol=1e-12, atol=1e-13)
    kept, _ = prior.unwhiten(T, t)
    assert torch.equal(kept, kept.mT)  # sums that stay in a state do not drift


def test_whiten_against_its_formula(prior):
    """LᵀTL and Lᵀt."""
    T, t = random_sites(C, M)
    S, r = prior.whiten(T, t)
    for k in range(C):
        L = prior.L[k].numpy()
        np.testing.assert_allclose(S[k], L.T @ T[k].numpy() @ L, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(r[k], L.T @ t[k].numpy(), rtol=1e-12, atol=1e-13)


def test_single_precision_touches_only_the_cross_covariance():
    prior = PROBLEM.prior(dtype=torch.float32)
    rows = prior.conditional(torch.from_numpy(PROBLEM.X).float())
    exact = PROBLEM.prior().conditional(torch.from_numpy(PROBLEM.X))
    assert prior.K.dtype == prior.L.dtype == rows.blocks.cross.dtype == rows.W.dtype == torch.float64
    assert 0 < (rows.blocks.cross - exact.blocks.cross).abs().max() < 1e-6
