"""Gradients of log Z_q by the kernel blocks (eqs. 10, 12), and from there by the hyper-parameters."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.gaussian import Thinned, Whitened
from cavity.gp.prior import KERNEL, Conditional, Prior
from cavity.numerics.linalg import add_to_diagonal_, congruence, sum_to


class Gradient(NamedTuple):
    """∂ log Z_q by the three kernel blocks, whitened where that saves a solve.

    `cross` is Lᵀ ∂/∂k(Z,X), `gram` is Lᵀ (∂/∂K) L, `kappa` is ∂/∂κ.
    """

    gram: Float[Tensor, "C M M"]
    cross: Float[Tensor, "C M B"]
    kappa: Float[Tensor, "C B"]


class RowDerivatives(NamedTuple):
    """∂ log Z of every row by the mean υᵀm, by w through P⁻¹w, and by the conditional variance s."""

    mean: Float[Tensor, "C B"]
    projection: Float[Tensor, "C B"]
    var: Float[Tensor, "C B"]


def prior_mismatch(q: Whitened, share: float = 1.0) -> Float[Tensor, "C M M"]:
    """Return (η − η_prior)ᵀ ∂θ_prior, whitened: ½(P⁻¹ + mmᵀ − I), the first term of eq. (10), times `share`."""
    second_moment = torch.baddbmm(q.covariance, q.m[:, :, None], q.m[:, None, :])
    return add_to_diagonal_(second_moment.mul_(0.5 * share), -0.5 * share)


def rows_gradient(
    q: Whitened | Thinned, covW: Float[Tensor, "C M B"], W: Float[Tensor, "_ M B"], by: RowDerivatives, gram: Tensor
) -> Gradient:
    """Add to `gram` the terms of the rows, the sum of eq. (10) or its batch estimate of eq. (12), whitened.

    `covW` is P⁻¹W; it and `gram` are overwritten.
    """
    by_var = by.var[:, None, :].to(W.dtype)
    by_W = _through_moments(q, covW, by).addcmul_(W, by_var, value=-1.0)
    gram -= torch.matmul(by_W, W.mT.expand(len(covW), -1, -1))
    return Gradient(torch.lerp(gram, gram.mT, 0.5), by_W.addcmul_(W, by_var, value=-1.0), by.var)


def whitened_gradient(
    q: Whitened, covW: Float[Tensor, "C M B"], W: Float[Tensor, "_ M B"], by: RowDerivatives
) -> Gradient:
    """Return the gradient of the rows where q is fixed in whitened coordinates: K matters through W = L⁻¹k(Z,X) alone.

    dW = −Φ(L⁻¹ dK L⁻ᵀ) W, where Φ takes the lower triangle and half of the diagonal. `covW` is overwritten.
    """
    by_W = _through_moments(q, covW, by).addcmul_(W, by.var[:, None, :].to(W.dtype), value=-2.0)
    lower = torch.matmul(by_W, W.mT.expand(len(covW), -1, -1)).to(by.var.dtype).tril()
    return Gradient(-0.5 * (lower + lower.tril(-1).mT), by_W, by.var)


def _through_moments(q: Whitened | Thinned, covW: Float[Tensor, "C M B"], by: RowDerivatives) -> Float[Tensor, "C M B"]:
    """Return the derivative by the columns of W through the moments of q, in the memory of covW."""
    projection, m, mean = (x.to(covW.dtype) for x in (by.projection, q.m, by.mean))
    return covW.mul_(projection[:, None, :]).addcmul_(m[:, :, None], mean[:, None, :])


def pull_back(prior: Prior, f: Conditional, gradient: Gradient) -> dict[str, Tensor]:
    """Return the gradient by each hyper-parameter, by name, from that by the kernel blocks of a batch."""
    L_inverse, noise = prior.L_inverse, prior.noise
    if len(L_inverse) == 1:  # all classes share it, so their sum takes one product
        gradient = Gradient(*(by.sum(0, keepdim=True) for by in gradient))
    by_gram = congruence(L_inverse, gradient.gram)
    by_cross = torch.matmul(prior.whitening(gradient.cross.dtype).mT, gradient.cross)
    by_diagonal, raised = by_gram.diagonal(dim1=-2, dim2=-1).sum(-1), prior.least_noise
    by_noise = torch.where(prior.is_raised, raised * by_diagonal, by_diagonal) + gradient.kappa.sum(-1)
    by_noise = noise * sum_to(by_noise, noise.shape)
    by_mean = torch.where(prior.is_raised, raised / by_gram.shape[-1] * by_diagonal, 0.0)
    add_to_diagonal_(by_gram, by_mean[:, None])
    by_params, by_Z = prior.bound.pull_back(f.blocks, by_gram, by_cross, gradient.kappa)
    return {"Z": by_Z, "log_noise": by_noise} | {KERNEL + name: by for name, by in by_params.items()}
