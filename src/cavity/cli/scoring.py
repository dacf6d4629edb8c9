"""Scores of a model, added up a block of rows at a time, and what they mean in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.cli.labels import word
from cavity.cli.tables import Array, frame
from cavity.metrics import Scores, calibration_error
from cavity.report.text import table

ROWS = 8192  # predicted at a time


class Tally:
    """What the scores need of each row, and of all rows how often each label was taken for each.

    Args:
        classes: the labels, in the order of the columns of the probabilities.
    """

    def __init__(self, classes: NDArray[Any]) -> None:
        self.classes = classes
        self.confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
        self._nll = self._brier = 0.0
        self._confidence: list[Array] = []
        self._is_right: list[NDArray[np.bool_]] = []

    def add(self, place: NDArray[np.int64], log_p: Array) -> None:
        """Rows whose labels stand at these places among the classes."""
        p, own, said = np.exp(log_p), np.arange(len(place)), log_p.argmax(1)
        np.add.at(self.confusion, (place, said), 1)
        self._nll -= float(log_p[own, place].sum())
        self._brier += float((p**2).sum() - 2.0 * p[own, place].sum() + len(place))
        self._confidence.append(p.max(1))
        self._is_right.append(said == place)

    @property
    def n_rows(self) -> int:
        """How many there were."""
        return int(self.confusion.sum())

    def scores(self) -> Scores:
        """Averages over all rows."""
        if not self.n_rows:
            raise ValueError("there are no rows to score")
        confidence, is_right = np.concatenate(self._confidence), np.concatenate(self._is_right)
        brier = max(self._brier / self.n_rows, 0.0)  # differences of large sums may fall below
        error = float(1.0 - is_right.mean())
        return Scores(error, self._nll / self.n_rows, brier, calibration_error(confidence, is_right))

    def commonest(self) -> tuple[str, float]:
        """The label that most rows have, and the error of saying nothing else."""
        counts = self.confusion.sum(1)
        return word(self.classes[counts.argmax()]), float(1.0 - counts.max() / counts.sum())

    def by_class(self) -> list[dict[str, Any]]:
        """Of each label: its rows, the share that was found, how often it was said, and rightly so."""
        right, rows, said = self.confusion.diagonal(), self.confusion.sum(1), self.confusion.sum(0)
        return [
            {"label": plain(label), "rows": int(n), "found": _share(hits, n), "said": int(k), "right": _share(hits, k)}
            for label, hits, n, k in zip(self.classes, right, rows, said, strict=True)
        ]


def score(model: Any, X: Array, place: NDArray[np.int64], names: Sequence[str] | None) -> Tally:
    """What a model says of rows in memory."""
    tally = Tally(model.classes_)
    for start in range(0, len(X), ROWS):
        part = slice(start, start + ROWS)
        tally.add(place[part], model.predict_log_proba(frame(X[part], names)))
    return tally


def in_words(tally: Tally) -> str:
    """The scores as lines of a table, each with what it means."""
    found, (label, error) = tally.scores(), tally.commonest()
    guess = math.log(len(tally.classes))
    rows = [
        ("error", percent(found.error), f"labels that are wrong; {percent(error)} if it always said {label!r}"),
        ("NLL", f"{found.nll:.3f}", f"surprise at the true label, in nats; {guess:.3f} for pure guessing"),
        ("Brier", f"{found.brier:.3f}", "squared distance of the probabilities from the truth, 0 to 2"),
        ("calibration error", percent(found.ece), "how far confidence and accuracy lie apart"),
    ]
    wide, long = (max(len(row[k]) for row in rows) for k in (0, 1))
    return "\n".join(f"  {name:<{wide}}  {value:>{long}}  {meaning}" for name, value, meaning in rows)


def class_table(tally: Tally) -> str:
    """A line for each label."""
    rows = [
        [word(one["label"]), str(one["rows"]), _percent(one["found"]), str(one["said"]), _percent(one["right"])]
        for one in tally.by_class()
    ]
    return table(["label", "rows", "found", "said", "rightly"], rows)


def percent(share: float) -> str:
    """As people write it.

    >>> percent(0.0214)
    '2.1 %'
    """
    return f"{100 * share:.1f} %"


def plain(label: Any) -> Any:
    """A label for JSON."""
    return label.item() if isinstance(label, np.generic) else label


def _percent(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _share(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None
