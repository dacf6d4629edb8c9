"""What labels would teach: the information in the labels of rows about the latent functions f, jointly.

The information in one label is the epistemic part of `probabilities.uncertainty`. Two similar rows teach much the same,
so the value of a row depends on those already chosen. Under q the open parts of f at all rows are one Gaussian per
class. In place of the label of a chosen row, f there is measured with a Gaussian error, which leaves the share 1 − t of
its variance. Such a measurement has a covariance that depends on no label: each is a rank-one change t/v c cᵀ of the
covariance, with c its column at the row and v its variance there. The share t is such that a second label of the same
row has as much information left as after the label itself, which needs only sums over f at that row. (The variance that
EP expects to remain would leave too much: a label that says which f_k is the largest, and little else, is no longer
asked for next door.)

The information left in a row is then E H(m + δ, r + s) − E H(m + ε, s): r is the open variance that is left, s the
variance that no row removes, and δ and ε are draws from what the chosen rows have taught and from all that is open. It
falls from the whole to 0 as r does. The share that is left needs less accuracy than the whole: coarse sums over few
nodes, a hundred times faster than `probabilities.uncertainty`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats import qmc
from torch import Tensor

from cavity.gp.gaussian import Posterior
from cavity.gp.probabilities import _moments, moments, uncertainty
from cavity.numerics.limits import rounding

BLOCK_ROWS = 1024  # of the candidates at a time
PAIR_NODES = 64  # half the nodes of the average over f at the row of two labels
SHARES = 17  # at which the information that a measurement leaves is computed
LIKELY = 16  # classes of a row that coarse sums take into account
POINTS, REACH, LEAST_CDF = 12, 4.0, 1e-10  # of a coarse sum over f: number, standard deviations, least Φ divided by


@torch.inference_mode()
def screened_information(posterior: Posterior, X: Float[Tensor, "N D"]) -> NDArray[np.float64]:
    """Return the information in the label of each row, (N,), by coarse sums that rank rows nearly as exact ones do."""
    found, nodes = np.empty(len(X)), _nodes(posterior)
    for rows, (mean, open_var, rest) in _moments(posterior, X, Posterior.parts):
        mean, open_var, rest = _of_likely(posterior.sharpness * mean, open_var, rest)
        total = _entropy(mean, open_var + rest)
        found[rows] = (total - _mean_entropy(mean, open_var, rest, nodes)).clamp_min(0.0).cpu().numpy()
    return found


@torch.inference_mode()
def choose_rows(
    posterior: Posterior, X: Float[Tensor, "N D"], n: int, targets: Float[Tensor, "T D"] | None = None
) -> tuple[NDArray[np.int64], Float[NDArray[np.float64], "n N"]]:
    """Choose n rows one after the other, given those before.

    Without targets each is the row with the most information I. With targets it is the row that teaches most about
    them: a label takes the share 1 − exp(−2I) of the variance of f at its row, and that times the squared correlation
    at a target. The score is the sum over the targets of the share taken times the information left there: to first
    order, how much of it the label takes away.

    Returns:
        The indices of the rows, and the score of every row at each choice, NaN for the rows chosen before.
    """
    N, X = len(X), (X if targets is None else torch.cat([X, targets])).to(posterior.prior.Z.device)
    mean, open_var, rest = moments(posterior, X, Posterior.parts)
    mean, joint, nodes = posterior.sharpness * mean, _OpenPart(posterior, X, open_var), _nodes(posterior)
    pair_nodes = _nodes(posterior, PAIR_NODES)
    own_mean, own_open, own_rest = _of_likely(mean, open_var, rest)
    known = _mean_entropy(own_mean, own_open, own_rest, nodes)
    initial = (_entropy(own_mean, own_open + own_rest) - known).clamp_min(0.0)
    whole, cross = initial, None
    if targets is None:
        whole = torch.from_numpy(uncertainty(posterior, X).epistemic).clamp_min(0.0).to(X.device)
    else:
        cross = joint.columns(torch.arange(N, len(X), device=X.device))[:, :, :N]
    taught = open_var.new_zeros(n, *open_var.shape)
    left, chosen, scores = open_var.clone(), np.empty(n, dtype=np.int64), np.empty((n, N))
    for step in range(n):
        information = initial
        if step:
            *_, taught_var, var = _of_likely(mean, open_var, rest, open_var - left, left + rest)
            information = _mean_entropy(own_mean, taught_var, var, nodes) - known
        share = torch.where(initial > 0.0, information / initial, 0.0).clamp(0.0, 1.0)
        score = whole * share
        if cross is not None:
            inverse = torch.where(left > rounding(left.dtype) * open_var, 1.0 / left, 0.0)
            explained = torch.einsum("ctn,ct,t->cn", cross.square(), inverse[:, N:], score[N:])
            score = -torch.expm1(-2.0 * score[:N]) * (explained * inverse[:, :N]).mean(0)
        scores[step] = score.cpu().numpy()
        scores[step, chosen[:step]] = np.nan
        i = chosen[step] = int(np.nanargmax(scores[step]))
        column = joint.columns(torch.tensor([i], device=X.device))[:, 0]
        column = column - (taught[:step, :, i, None] * taught[:step]).sum(0)
        learned = _share_learned(mean[:, i], open_var[:, i], rest[:, i], left[:, i], nodes, pair_nodes)
        change = taught[step] = column * torch.where(left[:, i] > 0.0, learned / left[:, i], 0.0).sqrt()[:, None]
        left = (left - change.square()).clamp_min(0.0)
        if cross is not None:
            cross = cross - change[:, N:, None] * change[:, None, :N]
    return chosen, scores


class _OpenPart:
    """The joint Gaussian of what is open of f at some rows: its covariance, some columns at a time.

    It is that of q(u), wᵀP⁻¹w', and of the residual k(x, x') − wᵀw', of which the rows have the open share. Where
    `Posterior.parts` takes less for open than this, correlations stay.
    """

    def __init__(self, posterior: Posterior, X: Float[Tensor, "N D"], open_var: Float[Tensor, "C N"]) -> None:
        self._posterior, self._X = posterior, X
        blocks = [posterior.prior.conditional(block, in_double=True) for block in X.split(BLOCK_ROWS)]
        self._W = torch.cat([f.W for f in blocks], -1)
        s, diag = torch.cat([f.s for f in blocks], -1), torch.cat([f.blocks.diag for f in blocks], -1)
        residual = (s - posterior.prior.noise[:, None]).clamp_min(0.0)
        share = torch.ones_like(residual)
        if posterior.residual is not None:
            share = posterior.residual.open_share(residual, diag.expand_as(residual))
        self._root_share = share.sqrt()
        variance = posterior.whitened.project(self._W)[1] + share * residual
        self._scale = torch.where(variance > 0.0, open_var / variance, 0.0).sqrt()
        self._diagonal = open_var

    def columns(self, at: Int[Tensor, "n"]) -> Float[Tensor, "C n N"]:
        """Return the covariance of every row with those at some indices."""
        prior, factor = self._posterior.prior, self._posterior.whitened.R_inverse
        w = self._W[..., at]
        cov_w = torch.matmul(factor.mT, torch.matmul(factor, w))
        cross = prior.kernel.bind(prior.params, self._X[None, at], self._X.dtype).blocks(self._X).cross
        found = torch.matmul(w.mT, self._W).neg_().add(cross) * self._root_share[:, at, None]
        found = torch.matmul(cov_w.mT, self._W) + found * self._root_share[:, None]
        found *= self._scale[:, at, None] * self._scale[:, None]
        place = torch.arange(len(at), device=at.device)
        found[:, place, at] = self._diagonal[:, at]
        return found


def _share_learned(
    mean: Float[Tensor, "C"],
    open_var: Float[Tensor, "C"],
    rest: Float[Tensor, "C"],
    left: Float[Tensor, "C"],
    nodes: Float[Tensor, "n L 1"],
    pair_nodes: Float[Tensor, "m L 1"],
) -> Float[Tensor, "C"]:
    """Return the share t of what is left open of each f_k that the label of a row teaches; 0 for unlikely classes."""
    found = torch.zeros_like(mean)
    likely = (mean + (open_var + rest).sqrt()).topk(nodes.shape[1]).indices
    mean, open_var, rest, left = (part[likely, None] for part in (mean, open_var, rest, left))
    known = mean + (open_var - left).clamp_min(0.0).sqrt() * nodes[..., 0].mT
    f = known[:, :, None] + left.sqrt()[:, :, None] * pair_nodes[..., 0].mT[:, None]  # (L, n, m)
    p = _probabilities(f.flatten(1), rest.expand(-1, f[0].numel())).view_as(f)
    label, pair = p.mean(-1), torch.einsum("ajl,bjl->abj", p, p) / p.shape[-1]
    of_label, of_known, of_pair = (-torch.xlogy(x, x).sum() / len(nodes) for x in (label, p / p.shape[-1], pair))
    of_known = of_known - math.log(p.shape[-1])
    wanted = (of_pair - of_label - of_known) / (of_label - of_known)
    shares = torch.linspace(0.0, 1.0, SHARES, dtype=mean.dtype, device=mean.device)
    remaining = left * (1.0 - shares)
    rows = [part.expand(-1, SHARES) for part in (mean, open_var, rest)]
    entropy = _mean_entropy(rows[0], rows[1] - remaining, remaining + rows[2], nodes)
    ratio = (entropy - entropy[-1]) / (entropy[0] - entropy[-1])
    at = int((ratio > wanted).sum().clamp(1, SHARES - 1))
    position = ((ratio[at - 1] - wanted) / (ratio[at - 1] - ratio[at])).clamp(0.0, 1.0)
    found[likely] = torch.nan_to_num(torch.lerp(shares[at - 1], shares[at], position), nan=0.0)
    return found


def _nodes(posterior: Posterior, half: int = 8) -> Float[Tensor, "n L 1"]:
    """Return a few standard normal vectors, the same for all rows, with mean 0 and covariance I.

    They are a low-discrepancy set and its mirror image, whitened: sums are exact for cubic functions, as those of small
    variances nearly are, and not far off for large ones.
    """
    L = min(posterior.prior.n_classes, LIKELY)
    uniform = torch.from_numpy(qmc.Sobol(L, scramble=True, rng=0).random(max(half, 2 ** (L - 1).bit_length())))
    z = torch.special.ndtri(uniform)
    factor = torch.linalg.cholesky(z.mT @ z / len(z))
    z = torch.linalg.solve_triangular(factor, z.mT, upper=False).mT
    return torch.cat([z, -z]).to(posterior.prior.Z.device)[..., None]


def _of_likely(
    mean: Float[Tensor, "C N"], open_var: Float[Tensor, "C N"], rest: Float[Tensor, "C N"], *more: Float[Tensor, "C N"]
) -> tuple[Float[Tensor, "L N"], ...]:
    """Return all of these for the classes that are likely at each row."""
    parts = (mean, open_var, rest, *more)
    if len(mean) <= LIKELY:
        return parts
    likely = (mean + (open_var + rest).sqrt()).topk(LIKELY, 0).indices
    return tuple(part.gather(0, likely) for part in parts)


def _mean_entropy(
    mean: Float[Tensor, "L N"], shifted: Float[Tensor, "L N"], var: Float[Tensor, "L N"], nodes: Float[Tensor, "n L 1"]
) -> Float[Tensor, "N"]:
    """Return the mean entropy of the label where the mean of f is drawn with the variance `shifted`."""
    spread = shifted.clamp_min(0.0).sqrt()
    return torch.stack([_entropy(mean + spread * node, var) for node in nodes]).mean(0)


def _entropy(mean: Float[Tensor, "L N"], var: Float[Tensor, "L N"]) -> Float[Tensor, "N"]:
    """Return the entropy of which f_k is the largest."""
    p = _probabilities(mean, var)
    return -torch.xlogy(p, p).sum(0)


def _probabilities(mean: Float[Tensor, "L N"], var: Float[Tensor, "L N"]) -> Float[Tensor, "L N"]:
    """Return the probability that f_k is the largest, by a coarse sum over where the maximum lies."""
    sd = var.sqrt()
    start, end = (mean - REACH * sd).amax(0), (mean + REACH * sd).amax(0)
    place = torch.linspace(0.0, 1.0, POINTS, dtype=mean.dtype, device=mean.device)[:, None, None]
    z = (torch.lerp(start, end, place) - mean) / sd  # (points, L, N)
    cdf = torch.special.ndtr(z).clamp_min_(LEAST_CDF)
    p = (torch.exp(-0.5 * z.square()) / cdf * cdf.prod(1, keepdim=True)).sum(0) / sd
    return p / p.sum(0)
