"""The flights of the paper's last experiment: rows, their preparation, and models with a time limit."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.classifier import GPClassifier
from cavity.datasets import load
from cavity.inference.vi import EPSILON
from experiments.common import Split
from experiments.curves import time_limit
from experiments.experiment import Config, Job

Array = NDArray[np.float64]

FEATURES = ["age", "distance", "air_time", "dep_time", "arr_time", "day_of_week", "day_of_month", "month"]
TIMES = [FEATURES.index("dep_time"), FEATURES.index("arr_time")]
COPY = "airline_2008_jan_apr.npz"  # of the Parquet file, for machines without pyarrow
SPLIT_SEED = 0
SHARED = ("data", "rows", "test_rows", "times", "inducing", "batch", "looks", "seed", "device")


def shared_entries(config: Config) -> Job:
    """Return what every fit to the flights depends on."""
    return {name: config[name] for name in SHARED}


def flights(job: Job) -> Split:
    """Shuffle the rows: the first `test_rows` are for testing, the next `rows` (or "all") for training."""
    X, y = synthetic_flights(job["rows"] + job["test_rows"]) if job["data"] == "made-up" else _read()
    X = with_minutes(X) if job["times"] == "minutes" else X
    order = np.random.default_rng(SPLIT_SEED).permutation(len(X))
    test, train = np.split(order, [job["test_rows"]])
    train = train if job["rows"] == "all" else train[: job["rows"]]
    return X[train], y[train], X[test], y[test]


def with_minutes(X: Array) -> Array:
    """Convert departure and arrival from hhmm to minutes since midnight: 59 and 100 are one minute apart.

    >>> with_minutes(np.array([[1.0, 300.0, 60.0, 59.0, 1430.0, 1.0, 1.0, 1.0]]))[0, 3:5]
    array([ 59., 870.])
    """
    X = X.copy()
    hours, minutes = np.divmod(X[:, TIMES], 100.0)
    X[:, TIMES] = 60.0 * hours + minutes
    return X


def synthetic_flights(n_rows: int, seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    """Generate rows like flights for smoke runs: delays grow over the day and with less time in the air."""
    rng = np.random.default_rng(seed)
    distance = rng.gamma(2.0, 350.0, n_rows) + 50.0
    air_time = 20.0 + distance / 7.5 + rng.normal(0.0, 8.0, n_rows)
    leaves = rng.integers(300, 1380, n_rows)
    lands = (leaves + air_time.astype(int) + 25) % 1440
    wave = np.sin(leaves / 180.0) + 0.04 * (air_time - 20.0 - distance / 7.5)
    y = np.digitize(wave + 0.5 * rng.standard_normal(n_rows), [-0.5, 0.4])
    days = [rng.integers(1, 8, n_rows), rng.integers(1, 32, n_rows), rng.integers(1, 5, n_rows)]
    columns = [rng.gamma(2.0, 5.0, n_rows), distance, air_time, _hhmm(leaves), _hhmm(lands), *days]
    return np.column_stack(columns).astype(np.float64), y.astype(np.int64)


def paper_model(method: str, job: Job) -> GPClassifier:
    """Return a model with the paper's settings for mini-batches."""
    return GPClassifier.paper(method, batch_size=job["batch"], **_common(job), **time_limit(job["seconds"]))


def natural_vi(job: Job) -> GPClassifier:
    """Return our own VI, not calibrated: natural gradients for q; a decaying learning rate and priors for the rest."""
    settings = {"batch_size": job["batch"], "calibrate": False, **_common(job), **time_limit(job["seconds"])}
    return GPClassifier("vi", **settings)


def our_model(job: Job) -> GPClassifier:
    """Return a model with our defaults. The time limit ends training only on a slow machine."""
    return GPClassifier(max_seconds=job["seconds"], **_common(job))


def expected_log_lik(log_p: Array, y: NDArray[np.int64]) -> float:
    """Return the mean of E[log p(y | f)] under VI's likelihood, from its predictions log E[p(y | f)].

    Without calibration the predictions are p = (1 − ε) w + ε/C, where w is the probability that f of the label is the
    largest. The likelihood is 1 − ε + ε/C if it is, and ε/C if not.
    """
    C = log_p.shape[1]
    w = (np.exp(log_p[np.arange(len(y)), y]) - EPSILON / C) / (1.0 - EPSILON)
    right, wrong = math.log1p(EPSILON / C - EPSILON), math.log(EPSILON / C)
    return float((w * right + (1.0 - w) * wrong).mean())


def write_copy(path: Path) -> None:
    """Write the rows as compressed arrays, without loss, in about the size of the Parquet file."""
    data = load("airline")
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, X=np.asfortranarray(data.X, dtype=np.float32), y=data.y.astype(np.uint8))


def _read() -> tuple[Array, NDArray[np.int64]]:
    """Read the Parquet file, or the copy in the data folder if the file cannot be read."""
    try:
        data = load("airline")
        return data.X, data.y
    except (ImportError, FileNotFoundError):
        copy = Path(os.environ.get("CAVITY_DATA", ".")) / COPY
        if not copy.is_file():
            raise
    with np.load(copy, allow_pickle=False) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"].astype(np.int64)


def _common(job: Job) -> dict[str, Any]:
    return {"n_inducing": job["inducing"], "random_state": job["seed"], "device": job["device"]}


def _hhmm(minutes: NDArray[np.int64]) -> NDArray[np.int64]:
    return minutes // 60 * 100 + minutes % 60


if __name__ == "__main__":
    write_copy(Path(sys.argv[1]))
