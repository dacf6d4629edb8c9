"""Rows to review: confident errors, rows unlike the training rows, and rows where classes overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from cavity.gp.probabilities import Uncertainty
from cavity.metrics import Array, Indices, Mask
from cavity.report.findings import UncertainRow

MAX_LISTED = 20
CONFIDENT = 0.8  # above, the label of a wrong row may be wrong itself
MIN_EPISTEMIC, MIN_ALEATORIC = 0.2, 0.1  # nats
FAR = 0.9  # of the largest possible entropy
TOP = 3  # labels listed
SAMPLE_ROWS = 3000  # whose uncertainty is computed, at milliseconds each
WORST_ROWS = 100  # computed in addition, of the largest entropy and of the most confident errors


def choose_candidates(y: Indices, log_p: Array) -> tuple[Indices, Mask]:
    """Choose rows whose uncertainty to compute, and tell which of them are a random sample.

    Of many rows, those of the largest entropy and the most confident errors are chosen in addition to the sample.
    """
    n = len(y)
    if n <= SAMPLE_ROWS:
        return np.arange(n), np.ones(n, dtype=bool)
    sample = np.random.default_rng(2).choice(n, SAMPLE_ROWS, replace=False)
    entropy = -(np.exp(log_p) * np.maximum(log_p, np.finfo(float).min)).sum(1)
    wrongness = np.where(log_p.argmax(1) == y, -np.inf, log_p.max(1))
    worst = [np.argsort(-value, kind="stable")[:WORST_ROWS] for value in (entropy, wrongness)]
    rows = np.unique(np.concatenate([sample, *worst]))
    return rows, np.isin(rows, sample)


def is_far(epistemic: Array, n_classes: int) -> Mask:
    """Whether rows have almost the largest entropy there is: no training row is near."""
    return epistemic > FAR * np.log(n_classes)


def uncertain_rows(
    index: Indices,
    y: Indices,
    log_p: Array,
    entropy: Uncertainty,
    classes: Sequence[str],
    names: Sequence[Any] | None,
    values: Callable[[int], tuple[tuple[str, str], ...]] = lambda row: (),
    speaks: Callable[[Indices], Sequence[tuple[tuple[str, str, float], ...]]] = lambda rows: ((),) * len(rows),
) -> list[UncertainRow]:
    """List at most 20 rows to review, by their index in the given data, taking the kinds in turn.

    Integers in `names`, such as line numbers, replace the index of a row; other names are put in front of `why`.
    `values` returns names and values of columns of the row at an index, `speaks` what speaks for the labels of several.
    """
    _, aleatoric, epistemic = entropy
    confidence, predicted, far = np.exp(log_p.max(1)), log_p.argmax(1), is_far(epistemic, len(classes))
    is_wrong, p_true = predicted != y, np.exp(log_p[np.arange(len(y)), y])
    ranking = np.argsort(-log_p, axis=1, kind="stable")
    first, second, labels = ([classes[k] for k in part] for part in (ranking[:, 0], ranking[:, 1], y))
    far_or_few = ["unlike the training rows" if far[i] else f"too few similar training rows to tell {a} from {b}"
                  for i, (a, b) in enumerate(zip(first, second, strict=True))]  # fmt: skip
    rest = np.where(aleatoric >= epistemic, "; more rows will not separate them", ", and similar training rows are few")
    kinds = [
        [(i, f"confident but wrong: {_percent(confidence[i])} for {first[i]}, labeled {labels[i]}; check the label")
         for i in _decreasing(np.where(is_wrong, confidence, 0.0), CONFIDENT)],
        [(i, f"{far_or_few[i]}: collect and label similar rows")
         for i in _decreasing(np.where(epistemic >= aleatoric, epistemic, 0.0), MIN_EPISTEMIC)],
        [(i, f"classes {first[i]} and {second[i]} overlap here{rest[i]}")
         for i in _decreasing(aleatoric, MIN_ALEATORIC)],
        [(i, f"wrong with low confidence: {_percent(p_true[i])} for the label {labels[i]}")
         for i in _decreasing(np.where(is_wrong & (confidence <= CONFIDENT), 1.0 - p_true, 0.0), 0.0)],
    ]  # fmt: skip
    reasons: dict[int, str] = {}
    for several in zip_longest(*kinds):
        for i, why in filter(None, several):
            reasons.setdefault(i, why)  # the first reason counts
    found, listed = [], list(reasons.items())[:MAX_LISTED]
    spoken = speaks(index[[i for i, _ in listed]]) if listed else ()
    for (i, why), own in zip(listed, spoken, strict=True):
        row = int(index[i])
        name, shown = row if names is None else names[row], values(row)
        row, why = (int(name), why) if isinstance(name, int | np.integer) else (row, f"{name}: {why}")
        top = [(classes[k], float(np.exp(log_p[i, k]))) for k in ranking[i, :TOP]]
        parts = [float(part[i]) for part in entropy]
        found.append(UncertainRow(row, labels[i], top, parts[0], parts[1], parts[2], why, shown, own))
    return found


def _decreasing(values: Array, above: float) -> list[int]:
    """Rows whose value is above a limit, by decreasing value."""
    order = np.argsort(-values, kind="stable")
    return [int(i) for i in order if values[i] > above]


def _percent(p: float) -> str:
    """A probability below 1 is never written as 100 %."""
    percent = 100 * float(p)
    return "over 99.9 %" if 99.9 < percent < 100 else f"{percent:.3g} %"
