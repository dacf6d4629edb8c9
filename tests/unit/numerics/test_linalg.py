"""Batched linear algebra: Cholesky with jitter where it is needed, triangular inverses."""

import math

import numpy as np
import pytest
import torch

from cavity.numerics.limits import rounding
from cavity.numerics.linalg import (
    LARGEST_JITTER,
    LEAST_HALF,
    FactorizationError,
    JitterLog,
    add_to_diagonal_,
    cholesky,
    congruence,
    inverse_by_halves,
    inverse_lower,
    is_recording,
    lower_times,
    square_of_lower,
    sum_to,
    symmetrize,
    times_vector,
    vector_times,
)
from cavity.runtime.warnings import CavityWarning


def random(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def positive_definite(n_classes=3, size=5):
    A = random(n_classes, size, size)
    return A @ A.mT + 0.1 * torch.eye(size, dtype=A.dtype)


def with_eigenvalue(value, size=4):
    """Symmetric, mean diagonal 1 to within `value`, all eigenvalues 4/3 but one."""
    Q, _ = torch.linalg.qr(random(size, size, seed=1))
    return Q @ torch.diag(torch.tensor([4 / 3] * (size - 1) + [value], dtype=Q.dtype)) @ Q.T


# --- Cholesky ---


def factor_and_jitter(A):
    """The factor, and what was added to the diagonal of each matrix before it was factorized."""
    with JitterLog():
        L = cholesky(A)
    added = (L @ L.mT - A).diagonal(dim1=-2, dim2=-1)
    return L, added.mean(-1)


def test_a_positive_definite_batch_needs_no_jitter():
    A = positive_definite()
    L = cholesky(A)
    torch.testing.assert_close(L @ L.mT, A)
    assert torch.equal(L, L.tril())
    assert torch.equal(L, torch.linalg.cholesky(A))


def test_jitter_beyond_rounding_is_a_warning_or_is_recorded():
    first, second = with_eigenvalue(-0.5 * rounding(torch.float64)), with_eigenvalue(-5 * rounding(torch.float64))
    cholesky(first)  # a rounding error of the mean diagonal is nothing to speak of
    with pytest.warns(CavityWarning, match=r"nearly singular: 2e-11 of its mean diagonal was added"):
        cholesky(second)
    with JitterLog() as log:
        cholesky(first)
        assert log.matrices == 0
        cholesky(second)
        cholesky(second)
    assert log.take() == {"matrices": 2, "jitter": pytest.approx(10 * rounding(torch.float64))}
    assert log.matrices == 0


def test_a_single_matrix_needs_no_class_axis():
    assert cholesky(positive_definite()[0]).shape == (5, 5)


def test_jitter_goes_to_the_failing_classes_only():
    good = positive_definite()
    A = torch.stack([good[0], torch.ones(5, 5, dtype=good.dtype), good[1]])
    L, jitter = factor_and_jitter(A)
    assert 0 < jitter[1] <= LARGEST_JITTER
    assert torch.equal(L[[0, 2]], torch.linalg.cholesky(A[[0, 2]]))
    torch.testing.assert_close(L[1] @ L[1].mT, A[1] + jitter[1] * torch.eye(5, dtype=A.dtype), rtol=0, atol=1e-14)


@pytest.mark.parametrize("negative", [1e-9, 1e-6, 1e-4])
def test_jitter_grows_no_further_than_tenfold_past_what_is_needed(negative):
    _, jitter = factor_and_jitter(with_eigenvalue(-negative))
    assert negative * 0.99 < jitter < 10.5 * negative


def test_each_failing_class_stops_at_its_own_jitter():
    _, jitter = factor_and_jitter(torch.stack([with_eigenvalue(-1e-9), with_eigenvalue(-1e-5)]))
    assert jitter[0] < 2e-8 < jitter[1]


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_jitter_scales_with_the_diagonal(scale):
    _, jitter = factor_and_jitter(scale * with_eigenvalue(-1e-6))
    assert 0.99e-6 < jitter / scale < 1.05e-5


@pytest.mark.parametrize(("bad", "column"), [(math.nan, 2), (math.nan, 1), (math.inf, 1), (-math.inf, 2)])
def test_a_number_that_is_not_finite_is_told_from_a_matrix_that_is_not_positive_definite(bad, column):
    A = positive_definite()
    A[1, 2, column] = A[1, column, 2] = bad
    with pytest.raises(FactorizationError, match="NaN or infinity"):
        cholesky(A)


def test_a_matrix_far_from_positive_definite_raises_and_says_how_many():
    A = positive_definite()
    A[0] -= 100 * torch.eye(5, dtype=A.dtype)
    with pytest.raises(FactorizationError, match="1 of 3 covariance matrices are not positive definite"):
        cholesky(A)


# --- The rest ---


def test_inverse_lower():
    L = cholesky(positive_definite())
    inverse = inverse_lower(L)
    torch.testing.assert_close(inverse @ L, torch.eye(5, dtype=L.dtype).expand(3, 5, 5), rtol=0, atol=1e-13)
    assert torch.equal(inverse, inverse.tril())


@pytest.mark.parametrize("axes", [((), ()), ((2,), (2,)), ((1,), (2,)), ((2,), (1,)), ((3, 2), (3, 2))])
def test_products_with_a_vector_against_loops(axes):
    """A x and xᵀA; matrix and vector may be shared by all classes."""
    A, right, left = random(*axes[0], 3, 4), random(*axes[1], 4, seed=1), random(*axes[1], 3, seed=2)
    shape = np.broadcast_shapes(*axes)
    all_A, all_right, all_left = A.expand(*shape, 3, 4), right.expand(*shape, 4), left.expand(*shape, 3)
    for k in np.ndindex(shape):
        expected = [sum(float(all_A[k][m, n] * all_right[k][n]) for n in range(4)) for m in range(3)]
        np.testing.assert_allclose(times_vector(A, right)[k], expected, rtol=1e-13, atol=1e-15)
        expected = [sum(float(all_A[k][m, n] * all_left[k][m]) for m in range(3)) for n in range(4)]
        np.testing.assert_allclose(vector_times(left, A)[k], expected, rtol=1e-13, atol=1e-15)
    assert times_vector(A, right).shape == (*shape, 3)
    assert vector_times(left, A).shape == (*shape, 4)


@pytest.mark.parametrize("M", [1, 2, 2 * LEAST_HALF - 1, 2 * LEAST_HALF, 2 * LEAST_HALF + 1])
@pytest.mark.parametrize(("n_factors", "n_classes"), [(3, 3), (1, 3), (3, 1)])
def test_the_zeros_of_a_triangle_are_not_needed(M, n_factors, n_classes):
    generator = torch.Generator().manual_seed(0)
    L = torch.randn(n_factors, M, M, generator=generator, dtype=torch.float64).tril()
    X = torch.randn(n_classes, M, 5, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(lower_times(L, X), L @ X, rtol=1e-12, atol=1e-12)
    above = 2 * LEAST_HALF <= M
    L[..., 0, -1] = torch.nan if above else 0.0
    assert torch.isfinite(lower_times(L, X)).all()


@pytest.mark.parametrize("x", [2.5, random(2, 1), random(2, 3)])
def test_add_to_diagonal_against_loops(x):
    """In place: a number, one of each matrix, or one of each entry."""
    A, added = random(2, 3, 3), torch.as_tensor(x).expand(2, 3)
    before = A.clone()
    assert add_to_diagonal_(A, x) is A
    for k in range(2):
        for m in range(3):
            for n in range(3):
                assert A[k, m, n] == before[k, m, n] + (added[k, m] if m == n else 0.0)


def test_nothing_is_recorded_on_a_cpu():
    assert not is_recording(random(2))


def test_symmetrize():
    A = random(2, 3, 3)
    S = symmetrize(A)
    assert torch.equal(S, S.mT)
    torch.testing.assert_close(2 * S - A, A.mT)


def test_sum_to_is_the_adjoint_of_broadcasting():
    small, large = random(1, 2, 3), random(4, 2, 3, seed=1)
    inner = (small.expand(4, 2, 3) * large).sum()
    torch.testing.assert_close((small * sum_to(large, small.shape)).sum(), inner)
    assert sum_to(large, large.shape) is large


@pytest.mark.parametrize("M", [1, 64, 65, 128, 131, 200])
def test_inverse_by_halves_is_the_inverse(M):
    """Whatever the size, odd halves included; above the diagonal exactly 0."""
    rng = np.random.default_rng(M)
    A = rng.standard_normal((2, M, M))
    L = torch.linalg.cholesky(torch.from_numpy(A @ A.swapaxes(1, 2) / M + np.eye(M)))
    found = inverse_by_halves(L)
    torch.testing.assert_close(found @ L, torch.eye(M, dtype=L.dtype).expand_as(L), rtol=0, atol=1e-12)
    assert torch.equal(found, found.tril())


# --- Products with triangular and symmetric matrices ---

AROUND = [1, 2, 7, 2 * LEAST_HALF - 1, 2 * LEAST_HALF, 2 * LEAST_HALF + 1]  # sizes without and with a skipped part


@pytest.mark.parametrize("size", AROUND)
@pytest.mark.parametrize("n_factors", [1, 3])
def test_a_congruence_is_two_products(size, n_factors):
    L, A = random(n_factors, size, size).tril(), symmetrize(random(3, size, size, seed=1))
    found = congruence(L, A)
    torch.testing.assert_close(found, L.mT @ A @ L, rtol=1e-11, atol=1e-11)
    assert found.is_contiguous()


@pytest.mark.parametrize("size", AROUND)
@pytest.mark.parametrize("axis", [(), (2,)])
def test_the_square_of_a_factor_is_symmetric(size, axis):
    L = random(*axis, 3, size, size).tril()
    found = square_of_lower(L)
    torch.testing.assert_close(found, L.mT @ L, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found, found.mT, rtol=1e-13, atol=1e-13)
