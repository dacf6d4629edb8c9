"""The small constants: safe, and scaled by the precision of what they meet."""

import pytest
import torch

from cavity.numerics.limits import floor_positive, largest_to_square, least_diagonal, proper, rounding, tiny

both = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


@both
def test_tiny_can_be_divided_by(dtype):
    one = torch.ones(1, dtype=dtype)
    assert tiny(one) > torch.finfo(dtype).tiny  # not subnormal
    assert torch.isfinite(one / tiny(one))
    assert 1 + tiny(one) == 1


@both
def test_order_of_the_constants(dtype):
    """A rounding error < one that a factorization has grown < the weight that K keeps on its diagonal."""
    eps = torch.finfo(dtype).eps
    assert eps < rounding(dtype) < eps**0.5
    assert rounding(dtype) < least_diagonal(dtype) < 1e-3


@both
def test_floor_positive_lifts_only_what_is_below(dtype):
    x = torch.tensor([-1.0, 0.0, 0.5, 2.0], dtype=dtype)
    scale = torch.tensor([1.0, 4.0, 1.0, 1.0], dtype=dtype)
    floored = floor_positive(x, scale, x.dtype)
    assert floored.dtype == dtype
    assert torch.equal(floored[2:], x[2:])
    assert floored[0] > 0
    torch.testing.assert_close(floored[1], 4 * floored[0])


@both
def test_proper_leaves_room_for_rounding(dtype):
    eps = torch.finfo(dtype).eps
    d = torch.tensor([-1.0, 0.0, eps, 0.01, 1.0], dtype=dtype)
    assert proper(d).tolist() == [False, False, False, True, True]


@both
def test_largest_to_square_leaves_room_for_sums_of_squares(dtype):
    largest = torch.tensor(largest_to_square(dtype), dtype=dtype)
    assert largest > 1e10
    assert torch.isfinite(1e4 * largest.square())
