"""Rows that a person should look at: sure and wrong, unlike the training rows, or where classes overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.gp.probabilities import Uncertainty
from cavity.report.findings import Array, UnsureRow
from cavity.report.intake import Places

MOST = 20
SURE = 0.8  # confidence above which a wrong row is worth a look at its label
LEAST_EPISTEMIC, LEAST_ALEATORIC = 0.2, 0.1  # nats: less is not worth a look
FAR = 0.9  # of the largest entropy
TOP = 3  # labels named
SPLIT_ROWS = 3000  # whose uncertainty is taken apart, which costs milliseconds each
SPLIT_MORE = 100  # of the others, those that look worst


class Candidates(NamedTuple):
    """Rows whose uncertainty is known: place in the data given, label, log-probabilities, entropies."""

    place: Places
    y: Places
    log_p: Array
    entropy: Uncertainty

    @property
    def best(self) -> Places:
        """Labels by probability, the likeliest first, (N, C)."""
        return np.argsort(-self.log_p, axis=1, kind="stable")


def to_split(y: Places, log_p: Array) -> tuple[Places, NDArray[np.bool_]]:
    """Rows whose uncertainty to take apart, and which of them are a fair sample: all where there are few.

    Where rows are many, a sample and beside it the rows of the largest entropy and those that are wrong at the highest
    confidence, so that none of them goes unseen.
    """
    n = len(y)
    if n <= SPLIT_ROWS:
        return np.arange(n), np.ones(n, dtype=bool)
    sample = np.random.default_rng(2).choice(n, SPLIT_ROWS, replace=False)
    wrongness = np.where(log_p.argmax(1) == y, -np.inf, log_p.max(1))
    worst = [np.argsort(-value, kind="stable")[:SPLIT_MORE] for value in (entropy(log_p), wrongness)]
    rows = np.unique(np.concatenate([sample, *worst]))
    return rows, np.isin(rows, sample)


def is_far(epistemic: Array, n_classes: int) -> NDArray[np.bool_]:
    """Rows of almost the largest entropy there is: nothing in the training rows speaks of them."""
    return epistemic > FAR * np.log(n_classes)


def entropy(log_p: Array) -> Array:
    """Of the labels of each row, in nats."""
    return -(np.exp(log_p) * np.maximum(log_p, np.finfo(float).min)).sum(1)


def unsure_rows(rows: Candidates, classes: Sequence[str], names: Sequence[object] | None = None) -> list[UnsureRow]:
    """At most twenty rows: of every kind in turn, none twice.

    Args:
        rows: to choose from.
        classes: what the classes are called.
        names: what the rows of the data given are called. Whole numbers, such as lines of a file, stand in place of
            the row's place; other names go before `why`.
    """
    return [_described(rows, i, why, classes, names) for i, why in _chosen(rows, classes)]


def _chosen(rows: Candidates, classes: Sequence[str]) -> list[tuple[int, str]]:
    """The first reason found for a row is the one that is given."""
    kinds = (_sure_and_wrong(rows, classes), _unlike(rows, classes), _overlapping(rows, classes), _wrong(rows, classes))
    taken: dict[int, str] = {}
    for several in zip_longest(*kinds):
        for i, why in filter(None, several):
            taken.setdefault(i, why)
    return list(taken.items())[:MOST]


def _sure_and_wrong(rows: Candidates, classes: Sequence[str]) -> Iterator[tuple[int, str]]:
    confidence, guess = np.exp(rows.log_p.max(1)), rows.log_p.argmax(1)
    for i in _falling(np.where(guess == rows.y, 0.0, confidence), SURE):
        sure, said = _percent(confidence[i]), classes[guess[i]]
        yield i, f"sure and wrong: {sure} for {said}, but labeled {classes[rows.y[i]]}; check the label"


def _unlike(rows: Candidates, classes: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Where most of what is unknown could be learned."""
    mostly = rows.entropy.epistemic >= rows.entropy.aleatoric
    far = is_far(rows.entropy.epistemic, len(classes))
    for i in _falling(np.where(mostly, rows.entropy.epistemic, 0.0), LEAST_EPISTEMIC):
        first, second = (classes[k] for k in rows.best[i, :2])
        lack = "unlike the training rows" if far[i] else f"too few training rows like it to tell {first} from {second}"
        yield i, f"{lack}: collect and label more like it"


def _overlapping(rows: Candidates, classes: Sequence[str]) -> Iterator[tuple[int, str]]:
    for i in _falling(rows.entropy.aleatoric, LEAST_ALEATORIC):
        first, second = rows.best[i, :2]
        is_all = rows.entropy.aleatoric[i] >= rows.entropy.epistemic[i]
        rest = "; more rows will not part them" if is_all else ", and training rows are few"
        yield i, f"classes overlap here: {classes[first]} and {classes[second]}{rest}"


def _wrong(rows: Candidates, classes: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Those that are wrong with some doubt, the most surprising first."""
    p_true = np.exp(rows.log_p[np.arange(len(rows.y)), rows.y])
    is_wrong = (rows.log_p.argmax(1) != rows.y) & (np.exp(rows.log_p.max(1)) <= SURE)
    for i in _falling(np.where(is_wrong, 1.0 - p_true, 0.0), 0.0):
        yield i, f"wrong, and not sure: labeled {classes[rows.y[i]]}, which has {_percent(p_true[i])}"


def _falling(values: Array, above: float) -> list[int]:
    """Rows by falling value, as long as it is above a limit."""
    order = np.argsort(-values, kind="stable")
    return [int(i) for i in order if values[i] > above]


def _described(rows: Candidates, i: int, why: str, classes: Sequence[str], names: Sequence[object] | None) -> UnsureRow:
    row, why = _named(int(rows.place[i]), why, names)
    top = [(classes[k], float(np.exp(rows.log_p[i, k]))) for k in rows.best[i, :TOP]]
    total, aleatoric, epistemic = (float(part[i]) for part in rows.entropy)
    return UnsureRow(row, classes[rows.y[i]], top, total, aleatoric, epistemic, why)


def _named(place: int, why: str, names: Sequence[object] | None) -> tuple[int, str]:
    name = place if names is None else names[place]
    return (int(name), why) if isinstance(name, int | np.integer) else (place, f"{name}: {why}")


def _percent(p: float) -> str:
    """A share as people write it; never a full hundred where something is missing."""
    percent = 100 * float(p)
    return "over 99.9 %" if 99.9 < percent < 100 else f"{percent:.3g} %"
