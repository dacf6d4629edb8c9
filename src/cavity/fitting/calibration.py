"""Calibration: the sharpness of the probabilities, one number that is set on held-out rows.

q(u) may be under- or overconfident as a whole. Multiplying every latent mean by one number, the sharpness, corrects
that and keeps the order of the classes in most rows. The best sharpness maximizes the likelihood of held-out rows. If
the probabilities are still worse there than class frequencies, they are mixed with them. After a training that was cut
short, hyper-parameters are hardly learned: then they are mixed unless they are better by more than chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from cavity.data.source import row_hashes
from cavity.fitting.encoding import Encoding
from cavity.fitting.rows import TrainingRows
from cavity.gp.gaussian import Posterior
from cavity.gp.probabilities import log_p_of, moments

LOG_SD = 0.7  # of a normal prior on the log sharpness: few rows should not say much
LOG_BOUND = 2.0
LARGEST_SHRINKAGE = 1.0 - 1e-6  # so that the logarithm of the rest is finite
BLOCK_ELEMENTS = 2**20  # rows times classes
MOST_COPIES = 100  # of a row that are divided among folds one by one
Indices = NDArray[np.int64]


class HeldOut(NamedTuple):
    """The predictions of a model for held-out rows.

    Attributes:
        mean, var: moments of f.
        y, weight: labels and weights of the rows.
        epsilon: of the likelihood.
        frequencies: of the classes in the rows that the model has learned from.
    """

    mean: Float[Tensor, "C N"]
    var: Float[Tensor, "C N"]
    y: Int[Tensor, "N"]
    weight: Float[Tensor, "N"]
    epsilon: float
    frequencies: Float[Tensor, "C"]


class Calibration(NamedTuple):
    """The sharpness, and the weight of class frequencies in the probabilities."""

    sharpness: float = 1.0
    shrinkage: float = 0.0

    def apply(self, posterior: Posterior, class_weight: NDArray[np.float64]) -> Posterior:
        """Return the posterior with calibrated probabilities, given the weight of each class's rows."""
        posterior = replace(posterior, sharpness=self.sharpness)
        if not self.shrinkage:
            return posterior
        frequencies = posterior.whitened.m.new_tensor(class_weight / class_weight.sum())
        return replace(posterior, epsilon=_mixed(float(posterior.epsilon), frequencies, self.shrinkage))


def folds(
    y: Indices, count: int, seed: int, group: NDArray[np.uint64] | None = None
) -> Iterator[tuple[Indices, Indices]]:
    """Yield training and held-out indices, `count` times; every class is spread evenly over the folds.

    Rows of the same `group`, such as copies of a row, are in the same fold. A class that would have no training row
    left is not held out. Folds that hold out no row are skipped.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    in_order = order if group is None else group[order]
    _, first, member = np.unique(in_order, return_index=True, return_inverse=True)
    of_group, fold = np.empty(len(first), dtype=np.int64), np.empty(len(y), dtype=np.int64)
    of_group[np.argsort(first)] = np.arange(len(first)) % count
    fold[order] = of_group[member]
    for i in range(count):
        is_held = fold == i
        hold = np.flatnonzero(is_held & np.isin(y, y[~is_held]))
        if len(hold):
            yield np.flatnonzero(~is_held), hold


def split_rows(
    rows: TrainingRows, count: int, seed: int, has_natural_copies: bool
) -> Iterator[tuple[TrainingRows, TrainingRows]]:
    """Yield training and held-out rows, `count` times, by `folds`.

    Copies of a row are on the same side: they would tell the model what it is to predict. Where all columns have few
    values, copies are natural, and new rows will be copies as well: then the weight of a row, the number of its copies,
    is divided among the folds.
    """
    if not has_natural_copies:
        for learn, hold in folds(rows.y, count, seed, row_hashes(rows.X)):
            yield rows.take(learn), rows.take(hold)
        return
    copies = np.rint(rows.weight).clip(1, MOST_COPIES).astype(np.int64)
    row = np.repeat(np.arange(len(copies)), copies)
    for _, hold in folds(rows.y[row], count, seed):
        share = np.bincount(row[hold], minlength=len(copies)) / copies
        sides = (rows._replace(weight=rows.weight * part).take(np.flatnonzero(part)) for part in (1.0 - share, share))
        yield next(sides), next(sides)


def predict_held_out(
    posterior: Posterior, encoding: Encoding, rows: TrainingRows, class_weight: NDArray[np.float64]
) -> HeldOut:
    """Predict rows that the model has not learned from; `class_weight` is that of each class's training rows."""
    mean, var = (part.cpu() for part in moments(posterior, torch.from_numpy(encoding.transform(rows.X))))
    frequencies = torch.from_numpy(class_weight / class_weight.sum())
    y, weight = torch.from_numpy(rows.y), torch.from_numpy(rows.weight)
    return HeldOut(mean, var, y, weight, float(posterior.epsilon), frequencies)


def calibrate(parts: Sequence[HeldOut], z: float = 0.0, log_sd: float = LOG_SD) -> Calibration:
    """Return the best sharpness, and a shrinkage where class frequencies explain the held-out labels better.

    The loss of the probabilities beyond that of class frequencies is known up to a standard error. The shrinkage is 0
    if the loss plus `z` standard errors is not positive, and otherwise minimizes this bound, which is 0 at a shrinkage
    of 1. So with `z` > 0 the model has to prove that it is better. `log_sd` is that of the prior on the log sharpness.
    """
    from scipy.optimize import minimize_scalar

    sharpness = best_sharpness(parts, log_sd)

    def bound(shrinkage: float) -> float:
        excess = torch.cat([_losses(part, sharpness, shrinkage) - _losses_of_frequencies(part) for part in parts])
        weight = torch.cat([part.weight for part in parts])
        deviation = excess - weight * (excess.sum() / weight.sum())  # the copies of a row have one error together
        return float(excess.sum() + z * deviation.square().sum().sqrt())

    if not parts or bound(0.0) <= 0.0:
        return Calibration(sharpness)
    options = {"xatol": 1e-4}
    found = float(minimize_scalar(bound, bounds=(0.0, LARGEST_SHRINKAGE), method="bounded", options=options).x)
    return Calibration(sharpness, min(found, LARGEST_SHRINKAGE, key=bound))


def best_sharpness(parts: Sequence[HeldOut], log_sd: float = LOG_SD) -> float:
    """Return the sharpness that maximizes the likelihood of the held-out labels; 1 without such rows."""
    from scipy.optimize import minimize_scalar

    def loss(log_sharpness: float) -> float:
        nll = sum(float(_losses(part, math.exp(log_sharpness)).sum()) for part in parts)
        return nll + 0.5 * (log_sharpness / log_sd) ** 2

    found = minimize_scalar(loss, bounds=(-LOG_BOUND, LOG_BOUND), method="bounded", options={"xatol": 1e-3})
    return math.exp(float(found.x)) if found.fun < loss(0.0) else 1.0


def _mixed(epsilon: float, frequencies: Tensor, weight: float) -> Tensor:
    """Return the part of each class that does not depend on the row, after mixing with class frequencies."""
    return (1.0 - weight) * epsilon / len(frequencies) + weight * frequencies


def _losses_of_frequencies(part: HeldOut) -> Float[Tensor, "N"]:
    return -part.weight * torch.log(part.frequencies)[part.y]


def _losses(part: HeldOut, sharpness: float, shrinkage: float = 0.0) -> Float[Tensor, "N"]:
    """Return the negative log-likelihood of each row."""
    found = torch.empty_like(part.weight)
    for rows, log_p in log_p_blocks(part, Calibration(sharpness, shrinkage)):
        found[rows] = -part.weight[rows] * log_p.gather(0, part.y[None, rows])[0]
    return found


def log_p_blocks(part: HeldOut, calibration: Calibration) -> Iterator[tuple[slice, Float[Tensor, "C B"]]]:
    """Yield log p of held-out rows and the slice of the rows, by blocks: many classes take much memory."""
    sharpness, shrinkage = calibration
    epsilon = _mixed(part.epsilon, part.frequencies, shrinkage) if shrinkage else part.epsilon
    size = max(1, BLOCK_ELEMENTS // len(part.mean))
    for first in range(0, len(part.y), size):
        rows = slice(first, first + size)
        yield rows, log_p_of(part.mean[:, rows] * sharpness, part.var[:, rows], epsilon)
