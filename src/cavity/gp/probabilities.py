"""From marginals of f to class probabilities and their uncertainty (eq. 11)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import qmc
from torch import Tensor

from cavity.gp.gaussian import Posterior
from cavity.numerics.quadrature import max_log_probs
from cavity.runtime.threads import spin_when_idle

BLOCK_ROWS = 128  # on a CPU, at most: a single row takes as long
BLOCK_ON_CPU = 2**18  # entries of k(Z, X) on a CPU: measured from 2^16 to 2^20, larger ones are hardly faster
BLOCK_ELEMENTS = 8_000_000  # of the largest temporary: 64 MB
PIECE_ROWS = 4096  # of a quadrature on a CPU, at most
PIECE_ON_CPU, PIECE_ELSEWHERE = 2**18, 2**22  # its rows times classes: what a cache holds, or hides the overhead
WATCHED_ROWS = 256  # fewer are done before anything could be seen of a busy machine
NODES, FEW_NODES = 128, 16  # of the average over the latent functions; few where only the order of rows counts
NODES_OF_TWO = 1024  # of two classes, where that of a cost takes no quadrature


class Uncertainty(NamedTuple):
    """Entropies in nats, one number per row: `total = aleatoric + epistemic`.

    Attributes:
        total: entropy of the predicted probabilities.
        aleatoric: mean entropy of the label once the latent functions are known as well as rows can teach the model:
            classes overlap, or vary faster than the inducing points can follow.
        epistemic: the rest, which more training rows near this one would remove.
    """

    total: NDArray[np.float64]
    aleatoric: NDArray[np.float64]
    epistemic: NDArray[np.float64]


@torch.inference_mode()
def marginals(posterior: Posterior, X: Float[Tensor, "N D"]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and variance of f, each (N, C)."""
    mean, var = (torch.empty(len(X), posterior.prior.n_classes, dtype=torch.float64) for _ in range(2))
    for rows, (a, v) in _moments(posterior, X):
        mean[rows], var[rows] = a.mT, v.mT
    return mean.numpy(), var.numpy()


@torch.inference_mode()
def log_probabilities(posterior: Posterior, X: Float[Tensor, "N D"]) -> NDArray[np.float64]:
    """Return log p(y = k | x) of every row and class, (N, C); rows sum to one.

    Apart from the result, memory does not grow with the number of rows.
    """
    log_p = torch.empty(len(X), posterior.prior.n_classes, dtype=torch.float64)
    for rows, (mean, var) in _moments(posterior, X):
        log_p[rows] = log_p_of(posterior.sharpness * mean, var, posterior.epsilon).mT
    return log_p.numpy()


@torch.inference_mode()
def uncertainty(
    posterior: Posterior,
    X: Float[Tensor, "N D"],
    n_nodes: int | None = None,
    left_out: tuple[Tensor, Tensor] | None = None,
) -> Uncertainty:
    """Return the total uncertainty and its two parts.

    The average over the latent functions runs over a fixed low-discrepancy set, the same for all rows. At training
    rows, `left_out` can be mean and variance of f from the other rows, each (C, N).
    """
    found = torch.empty(2, len(X), dtype=torch.float64)
    for rows, log_p, once_known in _over_functions(posterior, X, n_nodes or NODES, left_out):
        found[:, rows] = torch.stack([_entropy(log_p), torch.stack([*map(_entropy, once_known)]).mean(0)])
    total, aleatoric = found.numpy()
    aleatoric = np.minimum(aleatoric, total)
    return Uncertainty(total, aleatoric, total - aleatoric)


@torch.inference_mode()
def value_of_rows(posterior: Posterior, X: Float[Tensor, "N D"], cost: Float[Tensor, "C A"]) -> NDArray[np.float64]:
    """Return how much less the best action would cost if the latent functions were known as well as rows can teach.

    `cost` has a row for each class and a column for each action. The probabilities before are the mean of those after,
    over the same nodes, so that the value is at least 0, and at most that of the label.
    """
    n_nodes = NODES_OF_TWO if posterior.prior.n_classes == 2 else NODES
    value, cost = torch.empty(len(X), dtype=torch.float64), cost.to(posterior.prior.Z.device)
    for rows, log_p, once_known in _over_functions(posterior, X, n_nodes):
        mean, best = log_p.new_zeros(cost.shape[1], log_p.shape[1]), log_p.new_zeros(log_p.shape[1])
        for log_p_known in once_known:
            of_actions = cost.mT @ log_p_known.exp()
            mean += of_actions
            best += of_actions.amin(0)
        value[rows] = (mean.amin(0) - best) / n_nodes
    return value.clamp_min_(0.0).numpy()


def _over_functions(
    posterior: Posterior,
    X: Float[Tensor, "N D"],
    n_nodes: int = NODES,
    left_out: tuple[Tensor, Tensor] | None = None,
) -> Iterator[tuple[slice, Float[Tensor, "C n"], Iterator[Float[Tensor, "C n"]]]]:
    """Yield log p of each piece of rows, and log p once the latent functions are known: for every node, a value of f.

    Only what more rows would remove of the variance of f is known then. The nodes are a fixed low-discrepancy set.
    """
    uniform = torch.from_numpy(qmc.Sobol(posterior.prior.n_classes, scramble=True, rng=0).random(n_nodes))
    nodes = torch.special.ndtri(uniform).to(posterior.prior.Z.device)[..., None]
    whole = _moments(posterior, X, Posterior.parts) if left_out is None else _left_out(posterior, X, *left_out)
    for rows, (mean, open_var, rest) in whole:
        mean, spread, epsilon = posterior.sharpness * mean, torch.sqrt(open_var), posterior.epsilon
        log_p = log_p_of(mean, open_var + rest, epsilon)
        if isinstance(epsilon, Tensor) and posterior.residual is not None:
            # random labels, found on held-out rows, say nothing about places that are less known than the training rows
            known = posterior.residual.typical[:, None] / (open_var + rest)
            epsilon = epsilon[:, None] * known.clamp_max(1.0).mean(0)
        # tiny probabilities add nothing
        yield rows, log_p, (log_p_of(mean + spread * node, rest, epsilon, tails=False) for node in nodes)


def log_p_of(
    mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"], epsilon: float | Tensor, tails: bool = True
) -> Float[Tensor, "C N"]:
    """Return log of (1 − ε) P(f_k is the largest) + ε/C; without `tails` the logarithm of a tiny p is wrong.

    A vector has the part ε_k of each class in place of ε/C, with ε their sum; (C, N) has one for each row.
    """
    if isinstance(epsilon, Tensor):
        log_p = max_log_probs(mean, var, tails)  # a class without rows has no part
        epsilon = epsilon.view(len(mean), -1)
        return torch.logaddexp(log_p + torch.log1p(-epsilon.sum(0)), torch.log(epsilon))
    log_p = max_log_probs(mean, var, tails and epsilon == 0.0)
    if epsilon == 0.0:
        return log_p
    return torch.logaddexp(log_p + math.log1p(-epsilon), log_p.new_tensor(math.log(epsilon / len(mean))))


def _entropy(log_p: Float[Tensor, "C N"]) -> Float[Tensor, "N"]:
    return -(torch.exp(log_p) * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(0)


@torch.inference_mode()
def moments(
    posterior: Posterior,
    X: Float[Tensor, "N D"],
    compute: Callable[[Posterior, Tensor], tuple[Tensor, ...]] = Posterior.marginals,
) -> tuple[Tensor, ...]:
    """Return mean and variance of f, or its `parts`, on the device of q. A row has the same result with any others."""
    size = _block_rows(posterior)
    found = [
        [part[:, : len(X) - first] for part in compute(posterior, block)]
        for first, block in zip(range(0, len(X), size), _blocks(posterior, X), strict=True)
    ]
    return tuple(torch.cat(parts, -1) for parts in zip(*found, strict=True))


def _moments(
    posterior: Posterior,
    X: Float[Tensor, "N D"],
    compute: Callable[[Posterior, Tensor], tuple[Tensor, ...]] = Posterior.marginals,
) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """Yield the same piece by piece, each as many whole blocks as one quadrature takes, with the slice of its rows."""
    block, elements = _block_rows(posterior), PIECE_ON_CPU if posterior.prior.Z.is_cpu else PIECE_ELSEWHERE
    size = elements // posterior.prior.n_classes
    size = min(size, PIECE_ROWS) if posterior.prior.Z.is_cpu else size
    size = block * max(1, size // block)
    with spin_when_idle() if len(X) > WATCHED_ROWS else nullcontext():
        for first in range(0, len(X), size):
            rows = slice(first, first + size)
            yield rows, moments(posterior, X[rows], compute)


def _left_out(
    posterior: Posterior, X: Float[Tensor, "N D"], mean: Float[Tensor, "C N"], var: Float[Tensor, "C N"]
) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """Yield the parts of f at training rows, given its moments from the other rows."""
    size, Z = _block_rows(posterior), posterior.prior.Z
    for first in range(0, len(X), size):
        rows = slice(first, first + size)
        yield rows, posterior.parts(X[rows].to(Z.device), (mean[:, rows].to(Z), var[:, rows].to(Z)))


def _blocks(posterior: Posterior, X: Tensor) -> Iterator[Tensor]:
    """Yield the rows in blocks of one size, which depends on the model alone; copies of a row fill up the last.

    The last bits of a product depend on its shape, and an ill-conditioned kernel magnifies them: with one shape a row
    has the same result with any other rows.
    """
    size, X = _block_rows(posterior), X.to(posterior.prior.Z.device)
    for block in X.split(size):
        yield block if len(block) == size else torch.cat([block, X[:1].expand(size - len(block), -1)])


def _block_rows(posterior: Posterior) -> int:
    Z, n_classes = posterior.prior.Z, posterior.prior.n_classes
    size = max(1, BLOCK_ELEMENTS // (n_classes * max(Z.shape[-2:])))
    if not Z.is_cpu:
        return size
    cached = max(1, BLOCK_ON_CPU // (n_classes * Z.shape[-2]))
    return min(size, BLOCK_ROWS, 2 ** (cached.bit_length() - 1))  # a power of two fills the registers of a product
