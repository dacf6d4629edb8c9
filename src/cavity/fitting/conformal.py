"""Prediction sets: the labels that cannot be ruled out, by the scores of held-out rows (split conformal prediction).

Each label of a row gets a score, the larger the better it fits. The scores of the true labels of held-out rows say how
small a score of a true label can be. If a new row is exchangeable with the held-out rows, its label is in the set with
at least the probability that was asked for, whatever the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.fitting.calibration import Calibration, HeldOut, log_p_blocks

Array = NDArray[np.float64]

SCORES = ("adaptive", "threshold")
CONDITIONS = (None, "class", "confidence")
MOST_SCORES = 10_000  # of held-out rows that are kept
MOST_GROUPS, OUTSIDE = 5, 10  # of rows by confidence, and held-out rows of a group whose label is not in the set
ROUNDING = 1e-9  # of the number of rows that a coverage leaves out


class HeldOutScores(NamedTuple):
    """The scores of the true labels of held-out rows.

    Attributes:
        y: labels, as indices.
        weight: copies of each row, without class weights.
        confidence: probability of the most probable label.
        adaptive, threshold: the two kinds of scores.
    """

    y: NDArray[np.int64]
    weight: Array
    confidence: Array
    adaptive: Array
    threshold: Array

    @classmethod
    def of_labels(cls, log_p: Array, y: NDArray[np.int64], weight: Array) -> HeldOutScores:
        """Score the labels of rows, given log p of all labels, (N, C)."""
        of_kinds = (np.take_along_axis(label_scores(log_p, kind), y[:, None], 1)[:, 0] for kind in SCORES)
        return cls(y, weight, np.exp(log_p.max(1)), *of_kinds)

    @classmethod
    def of_parts(
        cls, parts: Sequence[HeldOut], calibration: Calibration, row_weight: Array, seed: int
    ) -> HeldOutScores | None:
        """Score held-out rows as the calibrated model does; None without such rows.

        Args:
            parts: predictions for held-out rows.
            calibration: found on these rows.
            row_weight: of one row of each class: exchangeable rows have no class weights.
            seed: of the draw of rows, where there are more than can be kept.
        """
        found = [
            cls.of_labels(log_p.mT.numpy(), part.y[rows].numpy(), part.weight[rows].numpy())
            for part in parts
            for rows, log_p in log_p_blocks(part, calibration)
        ]
        if not found:
            return None
        whole = cls(*map(np.concatenate, zip(*found, strict=True)))
        whole = whole._replace(weight=whole.weight / row_weight[whole.y])
        if len(whole.y) <= MOST_SCORES:
            return whole
        drawn = np.sort(np.random.default_rng(seed).permutation(len(whole.y))[:MOST_SCORES])
        return cls(**{name: part[drawn] for name, part in whole._asdict().items()})

    def rule(
        self,
        coverage: Any,
        n_classes: int,
        conditional: Any = None,
        score: Any = "adaptive",
        allow_empty: bool = False,
    ) -> SetRule:
        """Return which labels sets of a coverage have (arguments as of `GPClassifier.predict_set`)."""
        if not (isinstance(coverage, int | float | np.number) and 0.0 < coverage < 1.0):
            raise ValueError(f"coverage must be a number above 0 and below 1, got {coverage!r}")
        if conditional not in CONDITIONS:
            raise ValueError(f"conditional must be None, 'class' or 'confidence', got {conditional!r}")
        if score not in SCORES:
            raise ValueError(f"score must be 'adaptive' or 'threshold', got {score!r}")
        coverage, limits = float(coverage), np.empty(0)
        scores = self.adaptive if score == "adaptive" else self.threshold
        group, count = np.zeros_like(self.y), 1
        if conditional == "class":
            group, count = self.y, n_classes
        elif conditional == "confidence":
            limits = self._limits(coverage)
            group, count = np.searchsorted(limits, self.confidence, side="right"), len(limits) + 1
        rows = (np.flatnonzero(group == k) for k in range(count))
        least = np.array([_least(scores[own], self.weight[own], coverage) for own in rows])
        return SetRule(least, limits, score, allow_empty)

    def _limits(self, coverage: float) -> Array:
        """Return the confidences that separate groups of as many held-out rows each, increasing."""
        order = np.argsort(self.confidence, kind="stable")
        cumulative = np.cumsum(self.weight[order])
        count = int(np.clip(cumulative[-1] * (1.0 - coverage) / OUTSIDE, 1, MOST_GROUPS))
        ends = np.searchsorted(cumulative, cumulative[-1] * np.arange(1, count) / count)
        return np.unique(self.confidence[order[ends]])


class SetRule(NamedTuple):
    """Which labels a set has.

    Attributes:
        least: the least score of a label: one for all, for each class, or for each group of rows by confidence. It is
            -inf where held-out rows are too few to rule out any label.
        limits: the confidences that separate the groups; none without groups.
        score: "adaptive" or "threshold".
        allow_empty: whether a set may lack the most probable labels.
    """

    least: Array
    limits: Array
    score: str
    allow_empty: bool

    def sets(self, log_p: Array) -> NDArray[np.bool_]:
        """Return which labels are in the set of each row, (N, C), given log p of all labels."""
        least = self.least
        if len(self.limits):
            least = least[np.searchsorted(self.limits, np.exp(log_p.max(1)), side="right"), None]
        found = label_scores(log_p, self.score) >= least
        if not self.allow_empty:
            found |= log_p == log_p.max(1, keepdims=True)
        return np.asarray(found)


def _least(scores: Array, weight: Array, coverage: float) -> float:
    """Return the least score that is not among the lowest 1 − coverage, with the new row as one of the rows."""
    excluded = (1.0 - coverage) * (weight.sum() + 1.0) - 1.0 + ROUNDING  # of the rows may have a lower score
    if excluded < 0.0 or not len(scores):
        return -np.inf
    order = np.argsort(scores, kind="stable")
    return float(scores[order[np.searchsorted(np.cumsum(weight[order]), excluded, side="right")]])


def label_scores(log_p: Array, score: str) -> Array:
    """Return the score of every label of every row, (N, C).

    "threshold" is log p. "adaptive" is the logarithm of a p-value, the total probability of all labels that are no more
    probable: if the model is right, the labels with a p-value above α are the smallest set that covers 1 − α of the
    rows like this one. For the most probable label that is always 1; its score is instead its probability, above 0, so
    that of all rows those lose it first where it is least probable.
    """
    if score == "threshold":
        return log_p
    log_p = np.ascontiguousarray(log_p)
    in_order = np.sort(log_p, axis=1)
    tails = np.logaddexp.accumulate(in_order, axis=1)
    places = (torch.searchsorted(*(torch.from_numpy(x) for x in (in_order, log_p)), right=True) - 1).numpy()
    top = in_order[:, -1:]
    return np.where(log_p == top, np.exp(top), np.minimum(np.take_along_axis(tails, places, 1), 0.0))
