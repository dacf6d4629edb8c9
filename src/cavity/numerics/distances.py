"""Squared distances r² = Σ_d (z_d − x_d)² / ℓ_d² of inducing points and rows, and their gradient, as matrix products.

r² is a difference of squares, which loses as many digits as the points are far from the origin: all are moved to the
center of Z first. Only Z is scaled, by 1/ℓ²: X stays one matrix for all classes, and nothing is larger than C × M × D.
"""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.numerics.limits import largest_to_square
from cavity.numerics.linalg import sum_to


class SquaredDistances:
    """Squared distances to inducing points.

    Args:
        Z: inducing points.
        precision: 1/ℓ² of every feature.
        dtype: of the products.
        scale: 1/ℓ of every feature, to scale all points first. Slower: the first version did so for sums and products
            of kernels, and predictions of their model files stay the same to the last bit.

    Attributes:
        within: r² of every pair of inducing points, exactly 0 on the diagonal; the caller may overwrite it.
    """

    def __init__(
        self,
        Z: Float[Tensor, "_ M D"],
        precision: Float[Tensor, "_ D"],
        dtype: torch.dtype,
        scale: Float[Tensor, "_ D"] | None = None,
    ) -> None:
        self._original_Z, self._scale, self._center = Z, scale, Z.mean((0, 1))
        self._precision, self._dtype, self._Z = precision, dtype, (Z - self._center).to(dtype)
        self._scaled: Tensor | None = None
        self.within: Float[Tensor, "_ M M"]
        if scale is None:
            product = torch.matmul(self._scaled_Z(), self._Z.mT)
            self._squares = -0.5 * product.diagonal(dim1=-2, dim2=-1)
            self.within = _difference(product, self._squares[..., :, None], self._squares[..., None, :])
        else:
            self.within = self._scaled_first(scale, Z, Z.dtype)
        self.within.diagonal(dim1=-2, dim2=-1).zero_()

    def to(self, X: Float[Tensor, "B D"]) -> Float[Tensor, "_ M B"]:
        """Return r² of every inducing point and every row."""
        if self._scale is not None:
            return self._scaled_first(self._scale, X, self._dtype)
        X = self._centered(X)
        squares = torch.matmul(self._precision, X.to(self._precision.dtype).square().mT).to(self._dtype)
        scaled = self._scaled_Z()
        product = torch.matmul(scaled.flatten(0, 1), X.mT).view(*scaled.shape[:2], len(X))
        return _difference(product, self._squares[..., :, None], squares[:, None, :])

    def to_predict(self, X: Float[Tensor, "B D"]) -> Float[Tensor, "_ M B"]:
        """Return the same for one of many small blocks of rows: the scaled points are kept, and the rows come first.

        This order of a product is faster where there are fewer rows than points.
        """
        if self._scale is not None:
            return self.to(X)
        X = self._centered(X)
        squares = torch.matmul(X.square(), self._precision.to(self._dtype).mT)
        product = torch.matmul(X, self._kept.mT).view(len(X), *self._squares.shape)
        return _difference(product, self._squares, squares[..., None]).permute(1, 2, 0)

    @cached_property
    def _kept(self) -> Float[Tensor, "_ D"]:
        """The scaled points of all classes, one after the other."""
        return (self._Z * (-2.0 * self._precision).to(self._dtype)[:, None, :]).flatten(0, 1)

    def gradient(
        self, X: Float[Tensor, "B D"], by_within: Float[Tensor, "C M M"], by_to: Float[Tensor, "C M B"]
    ) -> tuple[Float[Tensor, "_ M D"], Float[Tensor, "_ D"]]:
        """Return the gradient by Z and by 1/ℓ², from that by `within` (symmetric) and by `to(X)`."""
        X, Z = self._centered(X), self._Z
        by_within, by_to = by_within.to(self._dtype), by_to.to(self._dtype)
        C, M, B = by_to.shape
        pull = torch.matmul(by_to.reshape(C * M, B), X).view(C, M, -1)
        scratch, self._scaled = self._scaled_Z(), None  # new memory would take longer than the arithmetic
        moment = torch.mul(pull, Z, out=scratch).sum(-2)
        pull.baddbmm_(by_within, Z.expand(C, -1, -1), beta=-1.0, alpha=-2.0)
        weight = by_to.sum(-1) + 2.0 * by_within.sum(-1)
        pull.addcmul_(weight[..., None], Z)  # Σ_j weight_j (z − x_j), twice within Z
        of_rows = torch.matmul(by_to.sum(-2), X.square())
        by_precision = torch.mul(pull, Z, out=scratch).sum(-2) + of_rows - moment
        by_Z = sum_to(pull.to(self._precision.dtype).mul_(2.0 * self._precision[:, None, :]), Z.shape)
        return by_Z, sum_to(by_precision.to(self._precision.dtype), self._precision.shape)

    def _scaled_Z(self) -> Float[Tensor, "_ M D"]:
        """Return −2 Z/ℓ², kept until `gradient` takes its memory."""
        if self._scaled is None:
            self._scaled = self._Z * (-2.0 * self._precision).to(self._dtype)[:, None, :]
        return self._scaled

    def _scaled_first(self, scale: Tensor, X: Tensor, dtype: torch.dtype) -> Tensor:
        largest = largest_to_square(dtype)
        Z, X = ((x.to(dtype) * scale.to(dtype)[:, None, :]).clamp(-largest, largest) for x in (self._original_Z, X))
        center = Z.mean(-2, keepdim=True)
        Z, X = Z - center, X - center
        squares = Z.square().sum(-1)[..., :, None] + X.square().sum(-1)[..., None, :]
        return squares.sub_(torch.matmul(Z, X.mT).mul_(2.0)).clamp_min_(0.0)

    def _centered(self, X: Tensor) -> Tensor:
        return (X - self._center.to(X.dtype)).to(self._dtype)


def _difference(product: Tensor, a2: Tensor, b2: Tensor) -> Tensor:
    """a² + b² − 2ab from −2ab, in place; what overflows is infinitely far away."""
    r2 = product.add_(a2).add_(b2)
    if r2.is_cuda:  # to ask a GPU would be to wait for it
        return r2.nan_to_num_(nan=torch.inf, posinf=torch.inf).clamp_min_(0.0)
    rounding = 8.0 * torch.finfo(r2.dtype).eps
    largest = float(a2.max() + b2.max()) if r2.numel() else 0.0
    if not largest * rounding < 0.01:  # points at the same place may seem far apart, and K would be no covariance
        r2.nan_to_num_(nan=torch.inf, posinf=torch.inf)
        r2.masked_fill_(r2 < rounding * (a2 + b2), 0.0)
    return r2.clamp_min_(0.0)
