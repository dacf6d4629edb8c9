"""What advice is drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.gp.probabilities import Uncertainty
from cavity.report.baselines import Baseline
from cavity.report.findings import Array, Course, ScoreLine
from cavity.report.intake import Places

CROWDED = 0.5  # inducing points for each training row
COPIES = 0.2  # share of rows seen before that no chance explains


@dataclass(frozen=True)
class Evidence:
    """Everything that was found out about a model and the rows it was tried on.

    Args:
        clf: the model.
        classes: what the classes are called.
        features: what the features are called.
        y: labels of the rows looked at, 0 … C−1.
        log_p: their log-probabilities, (N, C).
        n_given: rows in the data given.
        entropy: of a fair sample of the rows looked at.
        scores: the model's first, then those of `baselines` in their order.
        baselines: what they say of the same rows.
        chance: calibration errors that chance alone gives, sorted.
        course: the training curve.
        is_constant: features that are the same in every row.
        is_training: whether these are the training rows.
        n_known: rows looked at that are among the training rows given; None where none were given.
    """

    clf: Any
    classes: list[str]
    features: list[str]
    y: Places
    log_p: Array
    n_given: int
    entropy: Uncertainty
    scores: list[ScoreLine]
    baselines: list[Baseline]
    chance: Array
    course: Course
    is_constant: NDArray[np.bool_]
    is_training: bool
    n_known: int | None

    @property
    def counts(self) -> Places:
        """Rows looked at of each class."""
        return np.bincount(self.y, minlength=len(self.classes))

    @property
    def learned_counts(self) -> Places | None:
        """Training rows of each class, where they are known."""
        counts = (getattr(self.clf, "training_", None) or {}).get("class_counts")
        return None if counts is None or len(counts) != len(self.classes) else np.asarray(counts, dtype=np.int64)

    @property
    def is_known_by_heart(self) -> bool:
        """Whether these rows are the training rows, or too many of them are."""
        return self.is_training or (self.n_known or 0) > COPIES * len(self.y)

    @property
    def guess(self) -> Places:
        """The most probable class of each row."""
        return self.log_p.argmax(1)

    @property
    def n_inducing(self) -> int:
        """Inducing points of each class."""
        shape = np.shape(getattr(self.clf, "inducing_points_", ()))
        return shape[1] if len(shape) == 3 else 0

    @property
    def is_crowded(self) -> bool:
        """Whether there are almost as many inducing points as training rows."""
        learned = self.learned_counts
        return learned is not None and self.n_inducing >= CROWDED * max(int(learned.sum()), 1)

    def setting(self, name: str) -> Any:
        """An argument of the model; None where it has no such thing."""
        return getattr(self.clf, name, None)

    def named(self, which: NDArray[np.bool_], most: int = 5) -> str:
        """The classes of a choice, the first few by name."""
        return listed([name for name, chosen in zip(self.classes, which, strict=True) if chosen], most)


def listed(names: list[str], most: int = 5) -> str:
    """Names as people write them.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ('a, b and c', 'a, b and 1 more')
    """
    if len(names) > most:
        return ", ".join(names[:most]) + f" and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "class")
    ('1 row', '1,200 rows', '2 classes')
    """
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{count:,} {noun if count == 1 else plural}"
