"""The headline: one sentence on how good the model is and how far its probabilities can be trusted."""

from __future__ import annotations

import math

import numpy as np

from cavity.report.findings import Findings, Reliability, ScoreLine
from cavity.report.numerals import between, number, percent, whole

SMALL = 0.01  # calibration error that matters to no one
BLIND = 0.1  # calibration error by chance that hides too much
MEAN, SPREAD = math.sqrt(2.0 / math.pi), math.sqrt(1.0 - 2.0 / math.pi)  # of |x|, x standard normal


def verdict(found: Findings) -> str:
    """The headline."""
    right = percent(1.0 - found.scores[0].error.value)
    return f"{right} right on {whole(found.n_rows)} rows; {trust(found)}"


def trust(found: Findings) -> str:
    """Whether probabilities can be taken at their word.

    The interval of the calibration error begins above 0 only where chance does not explain it.
    """
    ece, top = found.scores[0].ece, found.reliability[0]
    if ece.low > 0.0 and ece.value > SMALL:
        return _fault(top)
    if ece.low <= 0.0 and by_chance(top) > BLIND:
        return "too few rows to judge its probabilities by"
    return "its probabilities can be taken at their word"


def by_chance(top: Reliability) -> float:
    """What calibration error one in twenty models with no fault would exceed on so many rows, about."""
    share, noise = _shares(top), np.sqrt(top.confidence * (1.0 - top.confidence) / np.maximum(top.count, 1))
    return float(MEAN * (share @ noise) + 1.645 * SPREAD * np.linalg.norm(share * noise))


def support(found: Findings) -> str:
    """What stands behind the headline: the interval, and the baselines."""
    error = found.scores[0].error
    right = error._replace(value=1 - error.value, low=1 - error.high, high=1 - error.low)
    said = f"Of new rows like these, {between(right, as_percent=True)} should be right (95 % confidence)."
    return " ".join(filter(None, [said, _beside(found.scores)]))


def _fault(top: Reliability) -> str:
    """Too sure, not sure enough, or both by turns."""
    share = _shares(top)
    excess = float(share @ (top.confidence - top.frequency))
    noise = 1.96 * math.sqrt(float(share @ (top.confidence * (1.0 - top.confidence))) / max(int(top.count.sum()), 1))
    if abs(excess) <= noise:
        return "its probabilities are too high in some rows and too low in others"
    return "it is surer than it should be" if excess > 0.0 else "it is right more often than it says"


def _shares(top: Reliability) -> np.ndarray:
    return np.asarray(top.count / max(int(top.count.sum()), 1), dtype=np.float64)


def _beside(lines: list[ScoreLine]) -> str:
    """The model beside the best of the others, by the score that judges all of the probabilities."""
    if len(lines) < 2:
        return ""
    model, rival = lines[0], min(lines[1:], key=lambda line: line.nll.value)
    ours, theirs = number(model.nll.value), number(rival.nll.value)
    if model.nll.value <= rival.nll.value:
        return f"Its negative log-likelihood is {ours}; the best baseline, {rival.name}, has {theirs}."
    return f"Its negative log-likelihood is {ours}; a baseline, {rival.name}, does better with {theirs}."
