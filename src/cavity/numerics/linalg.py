"""Batched linear algebra: Cholesky factors with jitter where it is needed, triangular inverses, products."""

from __future__ import annotations

import math
import warnings
from contextvars import ContextVar
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.numerics.limits import rounding
from cavity.runtime.warnings import CavityWarning

JITTER_GROWTH = 10.0
LEAST_HALF = 45  # rows of half a matrix, from which on a CPU gains by skipping what zeros and symmetry give
LARGEST_LEAF = 64  # rows of a triangular matrix that a GPU inverts by substitution
LARGEST_JITTER = 1e-3  # of the mean diagonal; beyond that the matrix is wrong, not badly rounded


class JitterLog:
    """Records inside its context where `cholesky` adds more jitter than a rounding error; elsewhere that is a warning.

    Attributes:
        matrices: number of such factorizations.
        largest: the largest jitter, relative to the mean diagonal.
    """

    _active: ClassVar[ContextVar[JitterLog | None]] = ContextVar("jitter", default=None)

    def __init__(self) -> None:
        self.matrices, self.largest = 0, 0.0

    def __enter__(self) -> JitterLog:
        self._token = self._active.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._active.reset(self._token)

    def take(self) -> dict[str, float]:
        """Return what was recorded, and forget it."""
        found = {"matrices": self.matrices, "jitter": self.largest}
        self.matrices, self.largest = 0, 0.0
        return found

    @classmethod
    def add(cls, jitter: float) -> None:
        """Record a factorization in the active log, or warn if there is none."""
        if (log := cls._active.get()) is not None:
            log.matrices, log.largest = log.matrices + 1, max(log.largest, jitter)
        else:
            what = f"A covariance matrix was nearly singular: {jitter:.0e} of its mean diagonal was added"
            warnings.warn(f"{what}. Use fewer inducing points or more noise.", CavityWarning, stacklevel=3)


class FactorizationError(ArithmeticError):
    """A matrix could not be factorized: it holds NaN, or is far from positive definite."""


def cholesky(A: Float[Tensor, "*C M M"]) -> Float[Tensor, "*C M M"]:
    """Return the lower Cholesky factor of each matrix in `A`; add jitter to the diagonal of those that fail.

    Jitter starts from a rounding error of the mean diagonal and grows tenfold. A matrix with NaN or infinity raises a
    `FactorizationError` at once: no jitter helps.
    """
    L, info = torch.linalg.cholesky_ex(A)
    diagonal = L.diagonal(dim1=-2, dim2=-1)
    if is_recording(A):
        diagonal.masked_fill_(info[..., None] != 0, torch.nan)
        return L
    if not info.any() and math.isfinite(float(diagonal.sum())):
        return L
    if not torch.isfinite(A).all():
        raise FactorizationError("a covariance matrix holds NaN or infinity")
    scale = A.diagonal(dim1=-2, dim2=-1).mean(-1)
    jitter, relative = torch.zeros_like(scale), rounding(A.dtype)
    while relative <= LARGEST_JITTER:
        jitter = torch.where(info > 0, relative * scale, jitter)
        L, info = torch.linalg.cholesky_ex(A + torch.diag_embed(jitter[..., None].expand(A.shape[:-1])))
        if not info.any():
            if relative > rounding(A.dtype):
                JitterLog.add(relative)
            return L
        relative *= JITTER_GROWTH
    raise FactorizationError(
        f"{int((info > 0).sum())} of {info.numel()} covariance matrices are not positive definite, "
        f"even with {LARGEST_JITTER:g} of their mean diagonal added"
    )


def is_recording(x: Tensor) -> bool:
    """Return whether a CUDA graph is being recorded: nothing may wait for the device, so a failure shows as NaN."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def inverse_lower(L: Float[Tensor, "*C M M"]) -> Float[Tensor, "*C M M"]:
    """Return L⁻¹. A product with it is several times faster than a triangular solve, and as exact for a factor this
    well conditioned (`limits.least_diagonal`).
    """
    return inverse_by_halves(L) if L.is_cuda else _inverse_by_substitution(L)


def inverse_by_halves(L: Float[Tensor, "*C M M"]) -> Float[Tensor, "*C M M"]:
    """Apply [A 0; B D]⁻¹ = [A⁻¹ 0; −D⁻¹BA⁻¹ D⁻¹] recursively: mostly products, so twice as fast on a GPU."""
    M = L.shape[-1]
    if M <= LARGEST_LEAF:
        return _inverse_by_substitution(L)
    half, inverse = M // 2, torch.zeros_like(L)
    parts = L[..., :half, :half], L[..., half:, half:]
    first, second = inverse_by_halves(torch.stack(parts)) if M % 2 == 0 else map(inverse_by_halves, parts)
    inverse[..., :half, :half], inverse[..., half:, half:] = first, second
    inverse[..., half:, :half] = (second @ (L[..., half:, :half] @ first)).neg_()
    return inverse


def _inverse_by_substitution(L: Tensor) -> Tensor:
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)


def congruence(L: Float[Tensor, "#C M M"], A: Float[Tensor, "*#C M M"]) -> Float[Tensor, "*_ M M"]:
    """Return LᵀAL for a lower triangular L and a symmetric A. On a CPU only the half that is not known is computed.

    With L = [F, (0; G)], where F is the left half, the blocks of the result are FᵀAF, Gᵀ(AF)₂ and GᵀA₂₂G: nine
    sixteenths of two products.
    """
    half = L.shape[-1] // 2
    if L.is_cuda or half < LEAST_HALF:
        return L.mT @ A @ L
    left, corner = L[..., :half], L[..., half:, half:]
    product = torch.matmul(A, left)
    result = product.new_empty(*product.shape[:-1], L.shape[-1])
    result[..., :half, :half] = torch.matmul(left.mT, product)
    torch.matmul(corner.mT, product[..., half:, :], out=(below := result[..., half:, :half]))
    result[..., :half, half:] = below.mT
    result[..., half:, half:] = corner.mT @ (A[..., half:, half:] @ corner)
    return result


def square_of_lower(L: Float[Tensor, "*C M M"]) -> Float[Tensor, "*C M M"]:
    """Return LᵀL for a lower triangular L, on a CPU by half of a product."""
    half = L.shape[-1] // 2
    if L.is_cuda or half < LEAST_HALF:
        return torch.matmul(L.mT, L)
    left, corner = L[..., :half], L[..., half:, half:]
    result = torch.empty_like(L)
    torch.matmul(left.mT, left, out=result[..., :half, :half])
    torch.matmul(corner.mT, left[..., half:, :], out=(below := result[..., half:, :half]))
    result[..., :half, half:] = below.mT
    torch.matmul(corner.mT, corner, out=result[..., half:, half:])
    return result


def lower_times(L: Float[Tensor, "*#C M M"], X: Float[Tensor, "*#C M B"]) -> Float[Tensor, "*_ M B"]:
    """Return L X for a lower triangular L; on a CPU without its upper right quarter, which is zero."""
    half = L.shape[-1] // 2
    if L.is_cuda or half < LEAST_HALF:
        return torch.matmul(L, X)
    upper = torch.matmul(L[..., :half, :half], X[..., :half, :])
    return torch.cat([upper, torch.matmul(L[..., half:, :], X)], -2)


def times_vector(A: Float[Tensor, "*#C M N"], x: Float[Tensor, "*#C N"]) -> Float[Tensor, "*_ M"]:
    """Return A x of every matrix. (As a batched product it takes twice as long on a CPU.)"""
    return (A * x[..., None, :]).sum(-1)


def vector_times(x: Float[Tensor, "*#C M"], A: Float[Tensor, "*#C M N"]) -> Float[Tensor, "*_ N"]:
    """Return xᵀA of every matrix."""
    return torch.matmul(x[..., None, :], A).squeeze(-2)


def add_to_diagonal_(A: Float[Tensor, "*C M M"], x: Tensor | float) -> Float[Tensor, "*C M M"]:
    """Add x to the diagonals of A, in place."""
    A.diagonal(dim1=-2, dim2=-1).add_(x)
    return A


def symmetrize(A: Float[Tensor, "*C M M"]) -> Float[Tensor, "*C M M"]:
    """Return (A + Aᵀ)/2."""
    return 0.5 * (A + A.mT)


def sum_to(x: Tensor, shape: torch.Size) -> Tensor:
    """Sum `x` over the leading axes that `shape` holds once: the adjoint of broadcasting over classes."""
    return x if x.shape == shape else x.sum_to_size(shape)
