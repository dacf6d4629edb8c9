"""From marginals of f to class probabilities and their uncertainty (eq. 11)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import qmc
from torch import Tensor

from cavity.inducing import Posterior
from cavity.numerics.quadrature import max_log_probs

BLOCK_ROWS = 64  # on a CPU, at most: a single row costs as much
BLOCK_ELEMENTS = 8_000_000  # of the largest temporary: 64 MB
QUADRATURE_ROWS = 4096
NODES = 128  # of the average over the noise-free latent functions


class Uncertainty(NamedTuple):
    """Entropies in nats, one number a row: `total = aleatoric + epistemic`.

    Attributes:
        total: entropy of the predicted probabilities.
        aleatoric: mean entropy of the labels once the latent functions are known: noise that no data removes.
        epistemic: the rest, what more data near the row would remove.
    """

    total: NDArray[np.float64]
    aleatoric: NDArray[np.float64]
    epistemic: NDArray[np.float64]


@torch.inference_mode()
def marginals(posterior: Posterior, X: Float[Tensor, "N D"]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of f, each (N, C)."""
    mean, var = moments(posterior, X)
    return mean.mT.cpu().numpy(), var.mT.cpu().numpy()


@torch.inference_mode()
def log_probabilities(posterior: Posterior, X: Float[Tensor, "N D"]) -> NDArray[np.float64]:
    """log p(y = k | x) of every row and class, (N, C); rows sum to one."""
    parts = [log_p_of(*of_block, posterior.epsilon) for of_block in _sharp_moments(posterior, X)]
    return torch.cat(parts, 1).mT.cpu().numpy()


@torch.inference_mode()
def uncertainty(posterior: Posterior, X: Float[Tensor, "N D"]) -> Uncertainty:
    """Total uncertainty and its two parts.

    The average over the noise-free latent functions runs over a fixed low-discrepancy set, the same for all rows.
    """
    normal = _normal_nodes(posterior.prior.n_classes).to(posterior.prior.Z.device)
    noise = torch.exp(posterior.prior.log_noise)[:, None].expand(posterior.prior.n_classes, 1)
    parts = [_entropies(*of_block, noise, normal, posterior.epsilon) for of_block in _sharp_moments(posterior, X)]
    total, aleatoric = (torch.cat(p).cpu().numpy() for p in zip(*parts, strict=True))
    aleatoric = np.minimum(aleatoric, total)
    return Uncertainty(total, aleatoric, total - aleatoric)


def log_p_of(mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"], epsilon: float) -> Float[Tensor, "C N"]:
    """log of (1 − ε) P(f_k is the largest) + ε/C."""
    log_p = max_log_probs(mean, var)
    if epsilon == 0.0:
        return log_p
    return torch.logaddexp(log_p + math.log1p(-epsilon), log_p.new_tensor(math.log(epsilon / len(mean))))


def _entropies(mean: Tensor, var: Tensor, noise: Tensor, normal: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    spread = torch.sqrt((var - noise).clamp_min(0.0))
    of_f = [_entropy(mean + spread * node[:, None], noise.expand_as(var), epsilon) for node in normal]
    return _entropy(mean, var, epsilon), torch.stack(of_f).mean(0)


def _entropy(mean: Tensor, var: Tensor, epsilon: float) -> Float[Tensor, "N"]:
    log_p = log_p_of(mean, var, epsilon)
    return -(torch.exp(log_p) * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(0)


def _normal_nodes(n_classes: int) -> Float[Tensor, "S C"]:
    uniform = torch.from_numpy(qmc.Sobol(n_classes, scramble=True, rng=0).random(NODES))
    return torch.special.ndtri(uniform)


def _sharp_moments(posterior: Posterior, X: Float[Tensor, "N D"]) -> Iterator[tuple[Tensor, Tensor]]:
    """Mean and variance that the probabilities are made of, in blocks of rows."""
    mean, var = moments(posterior, X)
    mean = mean if posterior.sharpness == 1.0 else posterior.sharpness * mean
    return zip(mean.split(QUADRATURE_ROWS, 1), var.split(QUADRATURE_ROWS, 1), strict=True)


@torch.inference_mode()
def moments(posterior: Posterior, X: Float[Tensor, "N D"]) -> tuple[Float[Tensor, "C N"], Float[Tensor, "C N"]]:
    """Mean and variance of f, where q is. All that follows works row by row, whatever rows come together."""
    parts = [posterior.marginals(block) for block in _blocks(posterior, X)]
    mean, var = (torch.cat(part, 1)[:, : len(X)] for part in zip(*parts, strict=True))
    return mean, var


def _blocks(posterior: Posterior, X: Tensor) -> Iterator[Tensor]:
    """The rows in blocks of one size, which the model alone decides, the last filled up with copies of a row.

    The last bits of a product depend on its shape, and an ill-conditioned kernel magnifies them: with one shape a row
    gets the same answer whatever rows it comes with.
    """
    Z = posterior.prior.Z
    size = max(1, BLOCK_ELEMENTS // (posterior.prior.n_classes * max(Z.shape[-2:])))
    size = min(size, BLOCK_ROWS) if Z.device.type == "cpu" else size
    for block in X.split(size):
        yield torch.cat([block, X[:1].expand(size - len(block), -1)]).to(Z.device)
