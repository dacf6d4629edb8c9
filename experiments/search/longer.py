"""A search that continues to learn for as long as it predicts rows better that it has not learned from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.fitting import search
from cavity.fitting.calibration import HeldOut
from cavity.fitting.encoding import encode_training
from cavity.fitting.rows import TrainingRows
from cavity.fitting.search import Candidate, FullGP, Learned, Search, covariance, log_density
from cavity.numerics.limits import floor_positive
from cavity.training.parameters import ParametricPrior

LEAST_UNUSED, MOST_UNUSED = 100, 1000  # rows that decide


@contextmanager
def longer(steps: int, rounds: int) -> Iterator[None]:
    """Let a search make up to `rounds` times as many more steps, each time only if the last ones helped."""
    if not rounds:
        yield
        return
    choose = Search.choose

    def chosen(self: Search, candidates: Any) -> Candidate:
        best = choose(self, candidates)
        some = self._draw(search.LEARN_ROWS, search.LEARN_WORK)
        others = np.setdiff1d(np.arange(len(self.rows.y)), some)
        if len(others) < LEAST_UNUSED:
            return best
        others = np.random.default_rng(self.seed).permutation(others)[:MOST_UNUSED]
        gp, unused = self._on(self.rows.take(some), best.choice, search.DTYPE), self.rows.take(others)
        features = encode_training(best.choice.encoding, unused.X)
        score = unused_density(gp, best.model, best.learned, unused, features)
        for _ in range(rounds):
            more = self._begin(gp, best.model, best.learned, best.choice, steps, search.RATE)
            self._advance(more, steps)
            found = unused_density(gp, more.model, more.learned, unused, features)
            if not found > score:
                break
            best, score = more, found
        return best

    with patch.object(Search, "choose", chosen):
        yield


def unused_density(
    gp: FullGP, model: ParametricPrior, learned: Learned, rows: TrainingRows, features: NDArray[np.float64]
) -> float:
    """Return the mean log density of rows from the process on other rows."""
    assert learned.ep is not None
    prior = model.prior(learned.theta)
    q = learned.ep.latent(covariance(prior))
    blocks = prior.bound.blocks(torch.as_tensor(features, dtype=gp.dtype, device=gp.device))
    cross = blocks.cross.expand(gp.n_classes, -1, -1)
    mean = (q.pull[:, None, :].to(cross) @ cross)[:, 0]
    half = q.root[..., None].to(cross) * cross
    diag = blocks.diag.expand_as(mean)
    var = floor_positive(diag - (half * (q.inverse @ half)).sum(-2), diag, gp.dtype) + search.NOISE
    y, weight = torch.from_numpy(rows.y), torch.from_numpy(rows.weight)
    part = HeldOut(mean.double().cpu(), var.double().cpu(), y, weight, 0.0, weight[:0])
    return log_density(part, learned.sharpness)
