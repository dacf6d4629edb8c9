"""What experiments share: data splits, a scored fit, means with standard errors, and tables."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.datasets import load
from cavity.metrics import scores
from cavity.training.history import Event

Split = tuple[Any, NDArray[Any], Any, NDArray[Any]]  # X, y, X_test, y_test; X is an array or a frame
DIGITS = 6
LONG = 20.0  # seconds on one core from which a GPU pays off


def split(data_set: str, number: int, splits: str) -> Split:
    """Load one of the authors' splits, or with any other `splits` than "authors" hold out a random tenth.

    Raises:
        FileNotFoundError: if the data folder lacks the authors' splits.
    """
    data = load(data_set)
    if splits == "authors":
        if not data.splits:
            raise FileNotFoundError(
                f"The authors' splits of {data_set!r} are in uci_splits.npz of the data folder, which was not found. "
                "Set CAVITY_DATA to that folder."
            )
        return data.split(number)
    order = np.random.default_rng(number).permutation(len(data.X))
    test, train = np.split(order, [len(order) // 10])
    return data.X[train], data.y[train], data.X[test], data.y[test]


def device_for(seconds: float) -> str:
    """Choose the GPU, if there is one, for a fit that takes one core this long."""
    return "cuda" if seconds > LONG and torch.cuda.is_available() else "cpu"


def scored_fit(model: GPClassifier, rows: Split) -> Record:
    """Fit on the training rows. Return the scores on the test rows, times, log Z and the number of events.

    `cpu_seconds` is processor time: for a fit on one thread, the time that it takes on an idle machine.
    """
    X, y, X_test, y_test = rows
    began, cpu_began = time.perf_counter(), time.process_time()
    model.fit(X, y)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    found = scores(y_test, model.predict_log_proba(X_test), model.classes_)
    return {
        **{name: round(value, DIGITS) for name, value in found._asdict().items()},
        "log_z": round(model.log_marginal_likelihood_, DIGITS),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        **progress(model),
    }


def progress(model: GPClassifier) -> Record:
    """Return the number of epochs of a fit, and in how many something went wrong."""
    ordinary = (None, Event.CANDIDATE)
    return {"epochs": model.n_iter_, "events": sum(record["event"] not in ordinary for record in model.history_)}


class Mean(NamedTuple):
    """A mean and its standard error."""

    mean: float
    se: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.se:.3f}"

    def signed(self) -> str:
        """Format a difference.

        >>> Mean(0.25, 0.1).signed()
        '+0.250 ± 0.100'
        """
        return f"{self.mean:+.3f} ± {self.se:.3f}"


def percent_of_log(ratio: Mean) -> str:
    """Return the mean log of a ratio as a change in percent, with its standard error."""
    return f"{100 * math.expm1(ratio.mean):+.1f} ± {100 * math.exp(ratio.mean) * ratio.se:.1f} %"


def mean_of(values: Iterable[float]) -> Mean:
    """Return the mean and its standard error, which is NaN for a single value.

    >>> str(mean_of([1.0, 3.0]))
    '2.000 ± 1.000'
    """
    x = np.array(list(values), dtype=np.float64)
    return Mean(float(x.mean()), float(x.std(ddof=1) / len(x) ** 0.5) if len(x) > 1 else float("nan"))


def agree(ours: Mean, theirs: Mean) -> bool:
    """Return whether two means are within two combined standard errors.

    >>> agree(Mean(0.50, 0.03), Mean(0.40, 0.04))
    True
    """
    return abs(ours.mean - theirs.mean) <= 2.0 * float(np.hypot(ours.se, theirs.se))


def grouped(records: Iterable[Record], *names: str) -> dict[tuple[Any, ...], list[Record]]:
    """Group records by their values of some entries, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table.

    >>> print(markdown(["set", "NLL"], [["wine", "0.06"]]))
    | set | NLL |
    |---|---|
    | wine | 0.06 |
    """
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file with a header."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
