"""Every small number of the library, scaled by the precision of the tensors it is used with."""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_INPUT = 1e15  # of scaled inputs: their squares are finite in single precision too
LEAST_LENGTHSCALE = 1e-15  # chosen from the data: so is its inverse squared
LARGEST_PARAMETER = 1e30  # of a kernel or noise, to start from; its inverse is the least. Finite in single precision


def largest_to_square(dtype: torch.dtype) -> float:
    """Return a bound below which sums of squares stay finite in `dtype`."""
    return float(torch.finfo(dtype).max ** 0.4)


def tiny(x: Tensor) -> float:
    """Return the least positive number that is safe to divide by."""
    return 1e-100 if x.dtype == torch.float64 else 1e-30


def rounding(dtype: torch.dtype) -> float:
    """Return the relative size of a rounding error that has been through a factorization."""
    return float(torch.finfo(dtype).eps) ** 0.75


def floor_positive(x: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Raise `x` to at least a rounding error of `scale` in `dtype`: for variances that must not vanish."""
    return torch.maximum(x, scale * rounding(dtype))


def least_diagonal(dtype: torch.dtype) -> float:
    """Return the least relative weight of noise plus jitter on the diagonal of k(Z, Z).

    The gradient with respect to K multiplies rounding errors by 1/λ_min(K), so λ_min is kept well above them;
    a cross-covariance evaluated in single precision needs more.
    """
    return 1e-8 if dtype == torch.float64 else 1e-5


def proper(denominator: Tensor) -> Tensor:
    """Return where `1 − τh` leaves a proper cavity, with room for rounding."""
    return denominator > rounding(denominator.dtype)
