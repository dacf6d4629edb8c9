"""Time to quality: NLL and error on held-out rows against seconds of training.

Training alone is on the clock: k-means, building a model, compiling it and its steps, but neither imports nor scoring.
`setup` is what has passed after the first step, so that a curve can be read without it.
cavity lets its learning rate fall along the time it is given, so each of its points is a whole fit of its own; a
rival's points lie on one run at a constant rate.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.bench.problems import Options, Start
from cavity.bench.rivals import Make, available
from cavity.bench.tasks import Task, find_start, task
from cavity.bench.timing import once
from cavity.classifier import GPClassifier
from cavity.kernels import RBF
from cavity.records import Record

METHODS = {"satellite": ("sep", "ep"), "mnist": ("sep",), "digits": ("sep", "ep")}
THRESHOLDS = {
    "satellite": (0.5, 0.4, 0.35, 0.3, 0.28),
    "mnist": (0.3, 0.2, 0.15, 0.1, 0.08),
    "digits": (0.5, 0.3, 0.2, 0.1),
}
EPOCHS = 1_000_000  # more than any budget allows: seconds are the limit
LEAST_SECONDS = 0.05


class Point(NamedTuple):
    """How good the probabilities are after so many seconds of training; `budget` is what was asked for."""

    budget: float
    setup: float
    seconds: float
    nll: float
    error: float


def quality(options: Options) -> Iterator[Record]:
    """The curve of every competitor from the same start, point by point."""
    data, dtype = task(options.data), options.dtype or "float64"
    M, B = options.size.M, min(options.size.B, len(data.X))
    start = find_start(data.X, int(data.y.max()) + 1, M, options.lengthscale)
    options = options._replace(dtype=dtype, size=options.size._replace(B=B))
    common = {"case": "quality", "data": data.name, "dtype": dtype, "device": options.device, "M": M, "B": B,
              "lengthscale": round(start.lengthscale, 3),
              "rows": len(data.X), "test_rows": len(data.X_test)}  # fmt: skip
    for method in filter(lambda m: options.takes_part(f"cavity {m}"), METHODS[data.name]):
        for point in cavity_curve(method, data, start, options):
            yield common | {"what": f"cavity {method}", "rate": options.own_rate} | _rounded(point)
    for name, make in available(dtype, options.device).items():
        if not options.takes_part(name):
            continue
        try:
            for point in rival_curve(name, make, data, start, options):
                yield common | {"what": name, "rate": options.rate} | _rounded(point)
        except Exception as error:  # whatever breaks in a rival, the others go on
            yield common | {"what": name, "skipped": f"{type(error).__name__}: {error}"}


def cavity_curve(method: str, data: Task, start: Start, options: Options) -> Iterator[Point]:
    """A fit for each budget, the start's share of it taken off."""
    for budget in sorted(options.seconds):
        model = GPClassifier(
            method, kernel=RBF(start.lengthscale, start.variance), inducing_points=start.Z, n_inducing=options.size.M,
            scaling=None, batch_size=options.size.B, max_epochs=EPOCHS, tol=0.0,
            max_seconds=max(budget - start.seconds, LEAST_SECONDS), learning_rate=options.own_rate,
            device=options.device, dtype=options.dtype or "float64", random_state=0,
        )  # fmt: skip
        seconds = start.seconds + once(partial(model.fit, data.X, data.y), options.device)
        yield _point((budget, start.seconds, seconds), data, model.predict_log_proba(data.X_test))


def rival_curve(name: str, make: Make, data: Task, start: Start, options: Options) -> Iterator[Point]:
    """One run, its clock stopped to score it at each budget that the first step leaves."""
    importlib.import_module(name)
    torch.manual_seed(0)
    batches = shuffled(len(data.X), options.size.B)
    began = time.perf_counter()
    rival = make(data.X, data.y, start, options.dtype or "float64", options.device, options.rate)
    seconds = start.seconds + time.perf_counter() - began

    def step() -> None:
        rival.step(rival.batch(next(batches)))

    setup = seconds = seconds + once(step, options.device)
    for budget in due(options.seconds, setup):
        while seconds < budget:
            seconds += once(step, options.device)
        yield _point((budget, setup, seconds), data, rival.log_proba(data.X_test))


def due(budgets: Iterable[float], setup: float) -> list[float]:
    """The budgets in order, but of those that passed before the first step was done only the last.

    >>> due([20.0, 1.0, 5.0, 10.0], setup=7.0)
    [5.0, 10.0, 20.0]
    """
    ordered = sorted(budgets)
    return ordered[max(sum(budget < setup for budget in ordered) - 1, 0) :]


def shuffled(n_rows: int, batch_size: int, seed: int = 0) -> Iterator[NDArray[np.int64]]:
    """Row numbers of one batch after another, for ever; every epoch has each row at most once."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(n_rows)
        yield from (order[first : first + batch_size] for first in range(0, n_rows - batch_size + 1, batch_size))


def _point(times: tuple[float, float, float], data: Task, log_p: NDArray[np.float64]) -> Point:
    nll = -log_p[np.arange(len(log_p)), data.y_test].mean()
    return Point(*times, float(nll), float((log_p.argmax(1) != data.y_test).mean()))


def _rounded(point: Point) -> Record:
    return {name: round(value, 5) for name, value in point._asdict().items()}


def seconds_to(curve: Iterable[tuple[float, float]], threshold: float) -> float | None:
    """When a curve of (seconds, NLL) first is at the threshold or below, between points along the logarithm of time.

    The first point's own time where that is there already; None where no point is.

    >>> seconds_to([(1.0, 0.5), (100.0, 0.3)], 0.4)
    10.0
    """
    before: tuple[float, float] | None = None
    for seconds, nll in sorted(curve):
        if nll <= threshold:
            if before is None:
                return seconds
            share = (before[1] - threshold) / (before[1] - nll)
            return round(math.exp(math.log(before[0]) + share * math.log(seconds / before[0])), 6)
        before = (seconds, nll)
    return None


def reached(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table: when each competitor of one run had which NLL, and what it ended with."""
    thresholds = THRESHOLDS[records[0]["data"]]
    header = ["seconds to an NLL of", *(f"{t:.2f}" for t in thresholds), "last NLL", "error", "after"]
    rows = []
    for what in dict.fromkeys(record["what"] for record in records):
        own = [record for record in records if record["what"] == what]
        curve, last = [(r["seconds"], r["nll"]) for r in own], max(own, key=lambda r: r["seconds"])
        times = [_when(curve, threshold) for threshold in thresholds]
        end = [f"{last['nll']:.4f}", f"{100 * last['error']:.2f} %", f"{last['seconds']:.0f} s"]
        rows.append([what, *times, *end])
    return header, rows


def _when(curve: list[tuple[float, float]], threshold: float) -> str:
    seconds = seconds_to(curve, threshold)
    if seconds is None:
        return "-"
    return f"{'≤ ' if min(curve)[1] <= threshold else ''}{seconds:.3g}"
