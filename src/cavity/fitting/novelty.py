"""Novelty: how unlike the training rows a row is, as the share of training rows that look as strange or stranger.

Three things make a row strange: it is far from what the inducing points cover, the model lacks rows like it to tell its
class (epistemic uncertainty), and it has levels or gaps that no training row has. Distances are those within a class,
as in linear discriminant analysis. Rows that the model has not learned from show how large each of the three usually
is. This gives each of them as a logarithm of a share; their sum is the strangeness of a row. Its rank among these rows
is uniform for rows like them, whatever the three are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from cavity.data.profile import ONE, Profile
from cavity.fitting.encoding import Encoding, TableEncoding, Unscaled, encode_training
from cavity.fitting.rows import TrainingRows
from cavity.gp.gaussian import Posterior
from cavity.gp.probabilities import FEW_NODES, moments, uncertainty
from cavity.numerics.linalg import cholesky, inverse_lower

Array = NDArray[np.float64]

MOST_ROWS = 5_000  # that show what is usual
METRIC_ROWS = 10_000  # that the metric is measured on
MOST_FEATURES = 512  # for which covariances are used; beyond, variances only
FLOOR = 0.1  # of the variance of a feature within a class, relative to the mean over features
TAIL = 0.9  # quantile from which the largest values are continued
BLOCK_NUMBERS = 2**22  # distances at a time


class Metric(NamedTuple):
    """The metric within a class: the inverse of the mean covariance of the classes.

    Attributes:
        whitening: A, which maps features to coordinates without correlations; a vector, where it is diagonal.
        means: of the features in each class, (C, F).
        step: what one row adds to the covariance is its deviation times itself and this number.
        rows: of each class, (C,).
    """

    whitening: Float[Tensor, "*_ F"]
    means: Float[Tensor, "C F"]
    step: float
    rows: Float[Tensor, "C"]

    @classmethod
    def of(cls, encoding: Encoding, rows: TrainingRows, copies: Array, n_classes: int) -> Metric:
        """Measure the metric of training rows, shrunk towards a diagonal one where few rows come on a feature."""
        if len(rows.y) > METRIC_ROWS:
            chosen = np.random.default_rng(0).permutation(len(rows.y))[:METRIC_ROWS]
            rows, copies = rows.take(chosen), copies[chosen]
        X, y, n = (torch.from_numpy(part) for part in (encode_training(encoding, rows.X), rows.y, copies))
        F, total, of_class = X.shape[1], float(n.sum()), torch.zeros(n_classes, dtype=X.dtype).index_add_(0, y, n)
        means = torch.zeros(n_classes, F, dtype=X.dtype).index_add_(0, y, n[:, None] * X)
        means = means / of_class.clamp_min(ONE - 1.0)[:, None]
        scaler = encoding.scaler if isinstance(encoding, TableEncoding) else encoding
        unit = torch.ones(F, dtype=X.dtype)
        if isinstance(scaler, Unscaled):
            sd = (n @ (X - n @ X / total).square() / total).sqrt()
            unit = torch.where(sd > 0.0, sd, 1.0)
        deviations, n_free = (X - means[y]) / unit, max(total - float((of_class > 0.0).sum()), 1.0)
        variances = n @ deviations.square() / n_free
        variances = variances + (FLOOR * float(variances.mean()) or 1.0)
        if F > MOST_FEATURES:
            return cls(variances.rsqrt() / unit, means, 0.0, of_class)
        kept = total / (total + F)
        covariance = (deviations * n[:, None]).mT @ deviations * (kept / n_free) + torch.diag((1.0 - kept) * variances)
        return cls(inverse_lower(cholesky(covariance)) / unit, means, kept / n_free, of_class)


def whiten(whitening: Float[Tensor, "*_ F"], X: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
    """Return the coordinates of features."""
    return X * whitening if whitening.ndim == 1 else X @ whitening.mT


@dataclass(frozen=True)
class Novelty:
    """What tells how unlike the training rows a row is.

    Attributes:
        profile: the columns of the training rows, one by one.
        whitening: the metric of distances (see `Metric`).
        held_out: of rows that the model has not learned from: distance, epistemic uncertainty, number of new levels and
            gaps, and how many rows each of them stands for, (4, n).
    """

    profile: Profile
    whitening: Float[Tensor, "*_ F"]
    held_out: Float[Tensor, "4 n"]

    @classmethod
    def start(cls, profile: Profile, metric: Metric) -> Novelty:
        """Return it without held-out rows."""
        return cls(profile, metric.whitening, metric.whitening.new_zeros(4, 0))

    def parts(self, posterior: Posterior, encoding: Encoding, cells: Array) -> Float[Tensor, "3 N"]:
        """Return the three things that make rows strange; `cells` have `UNKNOWN` for levels that are not known."""
        if isinstance(encoding, TableEncoding):
            known = cells.copy()
            for part in encoding.categories:
                known[known[:, part.column] < 0.0, part.column] = np.nan
        else:
            known = cells
        X = torch.from_numpy(encoding.transform(known))
        whitening = self.whitening.to(posterior.prior.Z)
        points = whiten(whitening, posterior.prior.Z.flatten(0, 1))

        def distance(posterior: Posterior, block: Tensor) -> tuple[Tensor, ...]:
            return (_nearest(whiten(whitening, block), points)[None],)

        found = moments(posterior, X, distance)[0][0].cpu()
        doubt = uncertainty(posterior, X, FEW_NODES).epistemic
        return torch.stack([found, torch.from_numpy(doubt), torch.from_numpy(self.profile.count_new(cells))])

    def with_rows(self, parts: Float[Tensor, "3 N"], copies: Array) -> Novelty:
        """Return it with further rows that the model has not learned from; the last 5,000 are kept."""
        found = torch.cat([parts, torch.from_numpy(copies)[None]])
        return replace(self, held_out=torch.cat([self.held_out, found], 1)[:, -MOST_ROWS:].clone())

    def p_values(self, parts: Float[Tensor, "3 N"]) -> Array:
        """Return the share of the held-out rows, and the row itself, that are as strange or stranger."""
        return np.asarray(_share_from(*self._usual, self._strangeness(parts.numpy())))

    @property
    def usual(self) -> Array:
        """The novelty of the held-out rows themselves, each of them as often as it stands for a row."""
        times = np.rint(self.held_out[3].numpy()).clip(1).astype(np.int64)
        return np.repeat(self.p_values(self.held_out[:3]), times)

    @cached_property
    def _usual(self) -> tuple[Array, Array]:
        held_out = self.held_out.numpy()
        return self._strangeness(held_out[:3]), held_out[3]

    def _strangeness(self, parts: Array) -> Array:
        """Return the sum of −log of the shares by each part; beyond the held-out rows distance and doubt go on."""
        *usual, copies = self.held_out.numpy()
        found = np.zeros(parts.shape[1])
        for reference, part in zip(usual, parts, strict=True):
            order = np.argsort(reference, kind="stable")
            last, total = reference[order[-1]], copies.sum()
            high = reference[order[np.searchsorted(np.cumsum(copies[order]), TAIL * total).clip(max=len(order) - 1)]]
            beyond = np.maximum(part - last, 0.0)
            rate = np.log(max((1.0 - TAIL) * total, 1.0)) / (last - high) if last > high else 0.0
            found -= np.log(_share_from(reference, copies, part)) - rate * beyond
        return found


def left_out_parts(
    posterior: Posterior,
    encoding: Encoding,
    rows: TrainingRows,
    copies: Array,
    metric: Metric,
    profile: Profile,
    moments_of_f: tuple[Tensor, Tensor],
) -> Float[Tensor, "3 N"]:
    """Return what makes each training row strange to the model of the other rows; of copies, one is left out.

    Without a row its class has another mean and covariance, and the inducing point that stands for it moves: a full
    Gaussian process has it no more, and a mean of several rows becomes the mean of the others.

    Args:
        posterior, encoding, metric, profile: of the fit, whose inducing points are rows or means of rows.
        rows: the training rows.
        copies: how many rows each of them stands for.
        moments_of_f: mean and variance of f at the rows from the others, each (C, N).
    """
    X, Z = torch.from_numpy(encode_training(encoding, rows.X)), posterior.prior.Z.cpu().flatten(0, 1)
    n, y = torch.from_numpy(copies), torch.from_numpy(rows.y)
    U, points, deviations = (whiten(metric.whitening, x) for x in (X, Z, X - metric.means[y]))
    size = max(1, BLOCK_NUMBERS // len(Z))
    blocks = [slice(first, first + size) for first in range(0, len(X), size)]
    own = torch.cat([torch.cdist(X[part], Z).argmin(1) for part in blocks])
    of_point = torch.zeros(len(Z), dtype=X.dtype).index_add_(0, own, n)[own]
    moved = torch.where(of_point > ONE, of_point / (of_point - 1.0).clamp_min(0.1), torch.inf)  # away from the row
    of_class = metric.rows[y]
    step = torch.where(of_class > ONE, metric.step * of_class / (of_class - 1.0).clamp_min(0.1), 0.0)
    step = step / (1.0 - step * deviations.square().sum(1)).clamp_min(0.01)  # of the inverse (Sherman and Morrison)
    found = []
    for part in blocks:
        d2 = torch.cdist(U[part], points, compute_mode="donot_use_mm_for_euclid_dist").square_()
        along = (deviations[part] * U[part]).sum(1, keepdim=True) - deviations[part] @ points.mT
        d2 += step[part, None] * along.square_()
        at = own[part, None]
        d2.scatter_(1, at, torch.where(moved[part, None].isinf(), torch.inf, d2.gather(1, at) * moved[part, None] ** 2))
        found.append(d2.min(1).values.sqrt())
    distance = torch.cat(found).nan_to_num(posinf=0.0)  # a single row is as near as any
    doubt = uncertainty(posterior, X, FEW_NODES, moments_of_f).epistemic
    new = profile.count_new(rows.X, is_left_out=True)
    return torch.stack([distance, torch.from_numpy(doubt), torch.from_numpy(new)])


def _nearest(U: Float[Tensor, "B F"], points: Float[Tensor, "R F"]) -> Float[Tensor, "B"]:
    """Return the distance to the nearest point."""
    return torch.cdist(U, points, compute_mode="donot_use_mm_for_euclid_dist").min(1).values


def _share_from(reference: Array, copies: Array, x: Array) -> Array:
    """Return the share of rows at or above each value, the row of the value included."""
    values, index = np.unique(reference, return_inverse=True)
    from_here = np.append(np.cumsum(np.bincount(index, copies, len(values))[::-1])[::-1], 0.0)
    return np.asarray((from_here[np.searchsorted(values, x)] + 1.0) / (copies.sum() + 1.0))
