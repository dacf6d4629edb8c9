"""The part of f that the inducing values do not determine, and how much of it the training rows leave open.

Given u, f(x) has the variance c(x) = k(x, x) − w(x)ᵀw(x) beside the noise. A sparse model treats it as noise at every
row, so no number of rows removes it. The full model does learn it, from rows nearby: n rows at x, each of which
measures f with precision Δ, leave the share 1 / (1 + n Δ c) of it open. That share is what separates epistemic from
aleatoric uncertainty. It is measured once, between training rows, and kept as a function of c: rows that lie apart from
the inducing points have a larger c and fewer neighbors. Beyond the training rows the share rises to one, where c is all
of k(x, x).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.prior import Prior
from cavity.numerics.linalg import inverse_lower

if TYPE_CHECKING:
    from cavity.gp.gaussian import Posterior

SAMPLE_ROWS = 512  # that are compared with each other
BLOCK_ELEMENTS = 2**18  # of their covariances at a time
BINS, BIN_ROWS = 8, 4  # of c, at most; rows of a bin, at least


class Residual(NamedTuple):
    """The share of c that the training rows leave open, for every class.

    Attributes:
        variance: increasing values of c.
        share: the share at each of them.
        typical: the median variance of f at the training rows.
    """

    variance: Float[Tensor, "C K"]
    share: Float[Tensor, "C K"]
    typical: Float[Tensor, "C"]

    def is_valid(self) -> bool:
        """Whether a measurement can have given these numbers."""
        ascends = (self.variance >= 0).all() and (self.variance.diff() >= 0).all()
        return bool(ascends and ((self.share >= 0) & (self.share <= 1)).all() and (self.typical > 0).all())

    def open_share(self, c: Float[Tensor, "C N"], prior: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
        """Return the share at rows of residual variance c and prior variance k(x, x)."""
        last = self.variance[:, -1:]
        right = torch.searchsorted(self.variance, c.contiguous()).clamp(1, self.variance.shape[1] - 1)
        x0, x1 = (self.variance.gather(1, at) for at in (right - 1, right))
        y0, y1 = (self.share.gather(1, at) for at in (right - 1, right))
        inside = torch.lerp(y0, y1, _position(c, x0, x1))
        return torch.where(c <= last, inside, torch.lerp(y1, torch.ones_like(y1), _position(c, last, prior)))


def full_residual(var: Float[Tensor, "C n"], prior_var: Float[Tensor, "C n"]) -> Residual:
    """Return the residual of a full GP, given the variances of f at its rows: all of it is open to learning."""
    variance = torch.stack([torch.zeros_like(prior_var[:, 0]), prior_var.amax(-1)], -1)
    return Residual(variance, torch.ones_like(variance), var.median(-1).values)


def _position(x: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Return where x lies from start (0) to end (1)."""
    return ((x - start) / (end - start).clamp_min(torch.finfo(x.dtype).tiny)).clamp(0.0, 1.0)


@torch.inference_mode()
def measure_residual(
    posterior: Posterior, X: Float[Tensor, "R D"], weight: Float[Tensor, "R"], total_weight: float
) -> Residual:
    """Measure the share between training rows.

    Args:
        posterior: q(u).
        X: a random sample of the training rows.
        weight: of each of them; a row of weight w counts as w copies of it.
        total_weight: of all training rows.
    """
    prior, C = posterior.prior, posterior.prior.n_classes
    n = min(len(X), SAMPLE_ROWS)
    X, weight = X[:n].to(prior.Z), weight[:n].to(prior.Z)
    f = prior.conditional(X, in_double=True)
    c = (f.s - prior.noise[:, None]).clamp_min(torch.finfo(f.s.dtype).tiny)
    # each row as a new one beside the others: its own copies but one, and all other rows, sampled or not
    squares = torch.cat([_squares(prior, f.W, X, rows) @ weight for rows in _blocks(n, C * n)], -1)
    scale = (total_weight - weight) / (weight.sum() - weight).clamp_min(torch.finfo(weight.dtype).tiny)
    neighbors = scale * (squares / c - weight * c).clamp_min(0.0) + (weight - 1.0).clamp_min(0.0) * c
    # Σ_i Δ_i w_i w_iᵀ = P − I gives the mean of Δ
    factor = posterior.whitened.R_inverse
    factor = factor.mT if bool(factor.triu(1).any()) else factor  # upper triangular in the VI of the paper
    gain = inverse_lower(factor).square().sum((-2, -1)) - f.W.shape[-2]
    known, whole = ((part * weight).sum(-1) * (total_weight / weight.sum()) for part in (f.W.square().sum(-2), f.s))
    is_known = known > torch.finfo(known.dtype).eps * whole  # elsewhere, rows far from all of Z say nothing about f
    precision = torch.where(is_known, gain.clamp_min(0.0) / known, 0.0)[:, None]
    share = 1.0 / (1.0 + precision * neighbors)
    order = c.argsort(-1)
    c, share = (part.expand(C, -1).gather(1, order) for part in (c, share))
    bins = torch.arange(n, device=c.device).tensor_split(max(1, min(BINS, n // BIN_ROWS)))
    centers = [c[:, part].median(-1).values for part in bins]
    means = [share[:, part].mean(-1) for part in bins]
    typical = (posterior.whitened.project(f.W)[1] + f.s).median(-1).values
    return Residual(torch.stack([*centers, c[:, -1]], -1), torch.stack([*means, means[-1]], -1), typical)


def _blocks(n: int, elements: int) -> Iterator[slice]:
    """Yield slices of n rows, each of which takes `elements` numbers, that fit into BLOCK_ELEMENTS."""
    size = max(1, BLOCK_ELEMENTS // elements)
    return (slice(first, first + size) for first in range(0, n, size))


def _squares(prior: Prior, W: Tensor, X: Tensor, rows: slice) -> Tensor:
    """Return the squared covariances of the residual at some of the rows with that at all of them."""
    cross = prior.kernel.bind(prior.params, X[None, rows], X.dtype).blocks(X).cross
    return (cross - W[:, :, rows].mT @ W).square_()
