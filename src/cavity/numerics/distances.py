"""Squared distances r² = Σ_d (z_d − x_d)² / ℓ_d² of inducing points and rows, and their gradient, as matrix products.

r² is a difference of squares, which loses as many digits as the points are far from the origin: all are moved to the
center of Z first. Only Z is scaled, by 1/ℓ²: X stays one matrix for all classes, and nothing is larger than C × M × D.
On a CPU the classes are computed block by block: what a product makes is still in the cache when the next one reads it.
"""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.numerics.limits import largest_to_square
from cavity.numerics.linalg import sum_to

BLOCK_ENTRIES = 2**18  # of the points of the classes that are computed together on a CPU: 2 MiB, a part of its cache


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
        self._Z, self._precision, self._dtype, self._scale = Z, precision, dtype, scale
        self._center = Z.mean((0, 1))
        self._rounded = None if dtype == Z.dtype else self._centered(Z)
        self.within: Float[Tensor, "_ M M"]
        if scale is None:
            product = _joined([torch.matmul(scaled, own.mT) for own, scaled in map(self._points, self._blocks())])
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
        scaled = (scaled for _, scaled in map(self._points, self._blocks()))
        product = _joined([torch.matmul(z.flatten(0, 1), X.mT).view(*z.shape[:2], len(X)) for z in scaled])
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
        return self._points(slice(None))[1].flatten(0, 1)

    def gradient(
        self, X: Float[Tensor, "B D"], by_within: Float[Tensor, "C M M"], by_to: Float[Tensor, "C M B"]
    ) -> tuple[Float[Tensor, "_ M D"], Float[Tensor, "_ D"]]:
        """Return the gradient by Z and by 1/ℓ², from that by `within` (symmetric) and by `to(X)`.

        The derivatives may be overwritten.
        """
        X, Z, precision = self._centered(X), self._Z, self._precision
        inner, by_to = by_within.to(self._dtype).mul_(2.0), by_to.to(self._dtype)
        inner.diagonal(dim1=-2, dim2=-1).sub_(by_to.sum(-1) + inner.sum(-1))  # inner Z = Σ_j weight_j (z_j − z)
        of_rows = torch.matmul(by_to.sum(-2), X.square()).to(precision.dtype)
        by_Z, by_precision = precision.new_empty(len(by_to), *Z.shape[1:]), torch.empty_like(of_rows)
        for block in self._blocks():
            own, _ = self._points(block)
            pull = torch.matmul(by_to[block].flatten(0, 1), X).view(-1, *own.shape[1:])
            product = pull * own
            moment = product.sum(-2)
            pull.baddbmm_(inner[block], own.expand(len(pull), -1, -1), beta=-1.0, alpha=-1.0)
            by_precision[block] = of_rows[block] + torch.mul(pull, own, out=product).sum(-2) - moment
            torch.mul(pull, (2.0 * precision[block])[:, None, :], out=by_Z[block])  # 1/ℓ² may be infinite in single
        return sum_to(by_Z, Z.shape), sum_to(by_precision, precision.shape)

    def _blocks(self) -> list[slice]:
        """Return the classes that are computed together; on a GPU, and where Z or 1/ℓ² is shared, all of them."""
        C, M, D = self._Z.shape
        if self._Z.is_cuda or len(self._precision) != C:
            return [slice(None)]
        size = max(1, BLOCK_ENTRIES // max(1, M * D))
        return [slice(first, first + size) for first in range(0, C, size)]

    def _points(self, block: slice) -> tuple[Float[Tensor, "_ M D"], Float[Tensor, "_ M D"]]:
        """Return Z around its center, and −2 Z/ℓ²."""
        own = self._Z[block] - self._center if self._rounded is None else self._rounded[block]
        return own, own * (-2.0 * self._precision[block]).to(self._dtype)[:, None, :]

    def _scaled_first(self, scale: Tensor, X: Tensor, dtype: torch.dtype) -> Tensor:
        largest = largest_to_square(dtype)
        Z, X = ((x.to(dtype) * scale.to(dtype)[:, None, :]).clamp(-largest, largest) for x in (self._Z, X))
        center = Z.mean(-2, keepdim=True)
        Z, X = Z - center, X - center
        squares = Z.square().sum(-1)[..., :, None] + X.square().sum(-1)[..., None, :]
        return squares.sub_(torch.matmul(Z, X.mT).mul_(2.0)).clamp_min_(0.0)

    def _centered(self, X: Tensor) -> Tensor:
        return (X - self._center.to(X.dtype)).to(self._dtype)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


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
