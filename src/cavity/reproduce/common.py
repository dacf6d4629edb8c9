"""What experiments share: the authors' splits, a scored fit, a curve of scores along training, means and errors."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.classifier import GPClassifier
from cavity.datasets import load
from cavity.records import Record
from cavity.report import scores
from cavity.training import Watch

Rows = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
DIGITS = 6
LARGE = 20.0  # seconds of a core that make a GPU worth while


def split(data_set: str, number: int, splits: str) -> Rows:
    """Training rows, their labels, test rows and theirs: a split of the authors, or at smoke size a random tenth."""
    data = load(data_set)
    if splits == "authors":
        if not data.splits:
            raise FileNotFoundError(
                f"the authors' splits of {data_set!r} are in uci_splits.npz of the data folder, which has not been "
                "found; set CAVITY_DATA to that folder"
            )
        return data.split(number)
    order = np.random.default_rng(number).permutation(len(data.X))
    test, train = np.split(order, [len(order) // 10])
    return data.X[train], data.y[train], data.X[test], data.y[test]


def device_for(seconds: float) -> str:
    """A GPU for what takes a core this long, where there is one."""
    return "cuda" if seconds > LARGE and torch.cuda.is_available() else "cpu"


def scored_fit(model: GPClassifier, rows: Rows) -> Record:
    """Fit on the training rows; scores on the test rows, seconds, log Z and how many steps went wrong.

    `cpu_seconds` are those the processor worked: of a fit in one thread the time it takes on a machine of its own.
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
        "epochs": model.n_iter_,
        "events": sum(record["event"] is not None for record in model.history_),
    }


def scored_curve(model: GPClassifier, rows: Rows, at: Sequence[float]) -> Record:
    """The same with a `curve`: [seconds, NLL, error] of the test rows along training; scoring is off the clock."""
    X, y, X_test, y_test = rows
    curve: list[list[float]] = []

    def look(shown: GPClassifier, seconds: float) -> None:
        found = scores(y_test, shown.predict_log_proba(X_test), shown.classes_)
        curve.append([round(seconds, 4), round(found.nll, DIGITS), round(found.error, DIGITS)])

    began = time.perf_counter()
    model.fit(X, y, watch=Watch(at, look))
    spent = time.perf_counter() - began  # with the looks
    trained = model.history_[-1]["seconds"]
    look(model, trained)
    return {"curve": curve, "nll": curve[-1][1], "error": curve[-1][2], "seconds": round(trained, 3),
            "seconds_with_scoring": round(spent, 3), "epochs": model.n_iter_}  # fmt: skip


def log_times(first: float, last: float, count: int) -> list[float]:
    """Moments of training, evenly spaced on a logarithmic axis."""
    return [round(t, 4) for t in np.geomspace(first, last, count).tolist()]


class Mean(NamedTuple):
    """Mean and its standard error."""

    mean: float
    se: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.se:.3f}"


def mean_of(values: Iterable[float]) -> Mean:
    """Mean and standard error over splits; no error is known of a single one.

    >>> str(mean_of([1.0, 3.0]))
    '2.000 ± 1.000'
    """
    x = np.array(list(values), dtype=np.float64)
    return Mean(float(x.mean()), float(x.std(ddof=1) / len(x) ** 0.5) if len(x) > 1 else float("nan"))


def agree(ours: Mean, theirs: Mean) -> bool:
    """Whether two means are within two combined standard errors.

    >>> agree(Mean(0.50, 0.03), Mean(0.40, 0.04))
    True
    """
    return abs(ours.mean - theirs.mean) <= 2.0 * float(np.hypot(ours.se, theirs.se))


def grouped(records: Iterable[Record], *names: str) -> dict[tuple[Any, ...], list[Record]]:
    """The records by their values of some entries, in the order they come."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table.

    >>> print(markdown(["set", "NLL"], [["wine", "0.06"]]))
    | set | NLL |
    |---|---|
    | wine | 0.06 |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("|---" * len(line) + "|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file with a header."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
