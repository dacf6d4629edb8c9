"""Scaled distances and their gradient, against loops and autograd."""

import numpy as np
import pytest
import torch

from cavity.numerics.distances import SquaredDistances

C, M, B, D = 3, 5, 7, 2
SHARED = [(C, C), (1, C), (C, 1), (1, 1)]  # classes of 1/ℓ² and of Z


def problem(n_precisions=C, n_Z=C, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    Z, X = rng.standard_normal((n_Z, M, D)) + offset, rng.standard_normal((B, D)) + offset
    return tuple(torch.from_numpy(a) for a in (Z, X, rng.uniform(0.3, 3.0, (n_precisions, D))))


def plain(Z, X, precision):
    """r² entry by entry, differentiable."""
    return ((Z[:, :, None, :] - X[..., None, :, :]).square() * precision[:, None, None, :]).sum(-1)


@pytest.mark.parametrize(("n_precisions", "n_Z"), SHARED)
def test_distances_against_loops(n_precisions, n_Z):
    Z, X, precision = problem(n_precisions, n_Z)
    distances = SquaredDistances(Z, precision, torch.float64)
    torch.testing.assert_close(distances.within, plain(Z, Z, precision), rtol=0, atol=1e-13)
    torch.testing.assert_close(distances.to(X), plain(Z, X[None], precision), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("n_precisions", "n_Z"), SHARED)
def test_gradient_is_that_of_autograd(n_precisions, n_Z):
    Z, X, precision = problem(n_precisions, n_Z)
    Z, precision = Z.requires_grad_(), precision.requires_grad_()
    generator, n_classes = torch.Generator().manual_seed(0), max(n_precisions, n_Z)
    by_within, by_to = (torch.randn(n_classes, M, n, generator=generator, dtype=torch.float64) for n in (M, B))
    by_within = by_within + by_within.mT
    total = (by_within * plain(Z, Z, precision)).sum() + (by_to * plain(Z, X[None], precision)).sum()
    expected = torch.autograd.grad(total, (Z, precision))
    distances = SquaredDistances(Z.detach(), precision.detach(), torch.float64)
    for found, by in zip(distances.gradient(X, by_within, by_to), expected, strict=True):
        torch.testing.assert_close(found, by, rtol=1e-12, atol=1e-12)


def test_far_from_the_origin_no_digits_are_lost():
    near, far = problem(), problem(offset=1e6)
    near, far = ((SquaredDistances(Z, precision, torch.float64), X) for Z, X, precision in (near, far))
    torch.testing.assert_close(near[0].within, far[0].within, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(near[0].to(near[1]), far[0].to(far[1]), rtol=1e-8, atol=1e-8)


def test_a_point_is_at_no_distance_from_itself():
    Z, _, precision = problem(seed=1)
    within = SquaredDistances(1e3 * Z, precision, torch.float32).within
    assert torch.equal(within.diagonal(dim1=-2, dim2=-1), torch.zeros(C, M))
    assert (within >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_overflows_is_far_away(dtype):
    Z, X, _ = problem()
    distances = SquaredDistances(1e100 * Z, torch.full((C, D), 1e200, dtype=torch.float64), dtype)
    within, to = distances.within, distances.to(1e100 * X)
    off_diagonal = ~torch.eye(M, dtype=torch.bool).expand(C, M, M)
    assert torch.isinf(within[off_diagonal]).all()
    assert torch.isinf(to).all()
    assert not within.diagonal(dim1=-2, dim2=-1).any()


def test_single_precision_is_single():
    Z, X, precision = problem()
    single, double = (SquaredDistances(Z, precision, dtype) for dtype in (torch.float32, torch.float64))
    assert single.within.dtype == torch.float32
    assert 0 < (single.within - double.within).abs().max() < 1e-5
    assert 0 < (single.to(X.float()) - double.to(X)).abs().max() < 1e-5


def test_gradient_is_finite_where_single_precision_overflows():
    Z = torch.full((1, 2, 1), 5e-324, dtype=torch.float64)
    distances = SquaredDistances(Z, torch.full((1, 1), 1e60, dtype=torch.float64), torch.float32)
    X, by = Z[0].float(), torch.ones(1, 2, 2, dtype=torch.float64)
    distances.to(X)
    assert all(torch.isfinite(x).all() for x in distances.gradient(X, by.clone(), by.clone()))


def test_distances_are_never_negative():
    Z = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 50, 3)))
    distances = SquaredDistances(Z, torch.ones(1, 3, dtype=Z.dtype), torch.float64)
    assert distances.within.min() >= 0
    assert distances.to(Z[0]).min() >= 0


def test_with_tiny_length_scales_a_copy_of_a_point_is_at_no_distance():
    """Rounding of a² + b² − 2ab, divided by ℓ², would put a row infinitely far from its own copy."""
    Z = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 40, 7)))
    r2 = SquaredDistances(Z, torch.full((1, 7), 1e60, dtype=torch.float64), torch.float64).to(Z[0])[0]
    assert torch.equal(r2.diagonal(), torch.zeros(40, dtype=torch.float64))
    assert bool((r2[~torch.eye(40, dtype=torch.bool)] > 1e50).all())
