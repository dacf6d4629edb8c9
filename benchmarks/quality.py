"""Time to quality: NLL and error on held-out rows against seconds of training.

Only training counts: k-means, building a model, compiling it and its steps, but neither imports nor scoring. `setup` is
the time until the first step is done, so that a curve can be read without it. cavity decays its learning rate over the
time that it has, so each of its points is a fit of its own. A rival's points lie on one run at a constant rate.
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
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from benchmarks.measure import seconds_of
from benchmarks.problems import Options, Start
from benchmarks.records import Record
from benchmarks.rivals import Make, available
from cavity.classifier import GPClassifier
from cavity.datasets import load
from cavity.fitting.settings import BATCH_START
from cavity.kernels import RBF

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

DATA = ("satellite", "mnist", "digits")
METHODS = {"satellite": ("sep", "ep"), "mnist": ("sep",), "digits": ("sep", "ep")}
THRESHOLDS = {
    "satellite": (0.5, 0.4, 0.35, 0.3, 0.28),
    "mnist": (0.3, 0.2, 0.15, 0.1, 0.08),
    "digits": (0.5, 0.3, 0.2, 0.1),
}
EPOCHS = 1_000_000  # more than any time budget allows
MIN_SECONDS = 0.05
KMEANS_ROWS, LLOYD_STEPS, MEDIAN_ROWS = 5000, 5, 1000


# --- Data and start ---


class Task(NamedTuple):
    """Scaled training rows, and test rows, which are only used for scoring."""

    name: str
    X: Array
    y: Labels
    X_test: Array
    y_test: Labels


def task(name: str) -> Task:
    """Load the authors' first split of Satellite, MNIST's own split, or the digits with a quarter held out."""
    data = load(name)
    if name == "digits":
        rows = np.random.default_rng(0).permutation(len(data.X))
        parts = tuple(part[half] for half in np.split(rows, [3 * len(rows) // 4]) for part in (data.X, data.y))
    else:
        parts = data.split(0)
    X, y, X_test, y_test = parts
    scaler = StandardScaler().fit(X) if name == "satellite" else None
    return Task(name, _scaled(X, scaler, name), y.astype(np.int64), _scaled(X_test, scaler, name), y_test)


def _scaled(X: NDArray, scaler: StandardScaler | None, name: str) -> Array:
    """Scale pixels to [0, 1], and other features to mean 0 and standard deviation 1 on the training rows."""
    scaled = scaler.transform(X) if scaler is not None else X / {"mnist": 255.0, "digits": 16.0}[name]
    return np.ascontiguousarray(scaled, dtype=np.float64)


def find_start(X: Array, n_classes: int, n_inducing: int, lengthscale: float | None = None, seed: int = 0) -> Start:
    """Find k-means centers for every class, and the kernel with which cavity starts mini-batches."""
    began = time.perf_counter()
    rows = np.random.default_rng(seed).permutation(len(X))
    means = KMeans(min(n_inducing, len(X)), n_init=1, max_iter=LLOYD_STEPS, random_state=seed)
    Z = means.fit(X[rows[:KMEANS_ROWS]]).cluster_centers_
    if lengthscale is None:
        lengthscale = BATCH_START.lengthscale * float(np.median(pdist(X[rows[:MEDIAN_ROWS]])))
    every = np.broadcast_to(Z, (n_classes, *Z.shape)).copy()
    return Start(every, lengthscale, BATCH_START.variance, time.perf_counter() - began)


# --- Curves ---


class Point(NamedTuple):
    """Scores after some seconds of training; `budget` is the time that was requested."""

    budget: float
    setup: float
    seconds: float
    nll: float
    error: float


def measure(options: Options) -> Iterator[Record]:
    """Measure the curve of every competitor from the same start, point by point."""
    try:
        data, dtype = task(options.data), options.dtype or "float64"
    except FileNotFoundError as error:
        yield {"case": "quality", "what": options.data, "skipped": str(error)}
        return
    M, B = options.size.M, min(options.size.B, len(data.X))
    start = find_start(data.X, int(data.y.max()) + 1, M, options.lengthscale)
    options = options._replace(dtype=dtype, size=options.size._replace(B=B))
    common = {"case": "quality", "data": data.name, "dtype": dtype, "device": options.device, "M": M, "B": B,
              "lengthscale": round(start.lengthscale, 3),
              "rows": len(data.X), "test_rows": len(data.X_test)}  # fmt: skip
    for method in filter(lambda m: options.selects(f"cavity {m}"), METHODS[data.name]):
        for point in cavity_curve(method, data, start, options):
            yield common | {"what": f"cavity {method}", "rate": options.own_rate} | _rounded(point)
    for name, make in available(dtype, options.device).items():
        if not options.selects(name):
            continue
        try:
            for point in rival_curve(name, make, data, start, options):
                yield common | {"what": name, "rate": options.rate} | _rounded(point)
        except Exception as error:  # a failure of one rival must not stop the others
            yield common | {"what": name, "skipped": f"{type(error).__name__}: {error}"}


def cavity_curve(method: str, data: Task, start: Start, options: Options) -> Iterator[Point]:
    """Make a fit for each budget, minus the time of the start."""
    for budget in sorted(options.seconds):
        model = GPClassifier(
            method, kernel=RBF(start.lengthscale, start.variance), inducing_points=start.Z, n_inducing=options.size.M,
            scaling=None, batch_size=options.size.B, max_epochs=EPOCHS, tol=0.0,
            max_seconds=max(budget - start.seconds, MIN_SECONDS), learning_rate=options.own_rate,
            device=options.device, dtype=options.dtype or "float64", random_state=0,
        )  # fmt: skip
        seconds = start.seconds + seconds_of(partial(model.fit, data.X, data.y), options.device)
        yield _point((budget, start.seconds, seconds), data, model.predict_log_proba(data.X_test))


def rival_curve(name: str, make: Make, data: Task, start: Start, options: Options) -> Iterator[Point]:
    """Make one run, and stop its clock to score it at each budget that is left after the first step."""
    importlib.import_module(name)
    torch.manual_seed(0)
    batches = shuffled(len(data.X), options.size.B)
    began = time.perf_counter()
    rival = make(data.X, data.y, start, options.dtype or "float64", options.device, options.rate)
    seconds = start.seconds + time.perf_counter() - began

    def step() -> None:
        rival.step(rival.batch(next(batches)))

    setup = seconds = seconds + seconds_of(step, options.device)
    for budget in budgets_left(options.seconds, setup):
        while seconds < budget:
            seconds += seconds_of(step, options.device)
        yield _point((budget, setup, seconds), data, rival.log_proba(data.X_test))


def budgets_left(budgets: Iterable[float], setup: float) -> list[float]:
    """Sort the budgets. Of those that the first step has exceeded, keep only the last.

    >>> budgets_left([20.0, 1.0, 5.0, 10.0], setup=7.0)
    [5.0, 10.0, 20.0]
    """
    ordered = sorted(budgets)
    return ordered[max(sum(budget < setup for budget in ordered) - 1, 0) :]


def shuffled(n_rows: int, batch_size: int, seed: int = 0) -> Iterator[NDArray[np.int64]]:
    """Yield the row indices of one batch after another, without end. An epoch has each row at most once."""
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
    """Return when a curve of (seconds, NLL) first reaches the threshold, interpolated in log time.

    This is the time of the first point if that is below already, and None if no point is.

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
    """Return header and rows of a table: when each competitor reached which NLL, and its final scores."""
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
