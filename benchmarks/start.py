"""Where training starts: the seconds it takes to find inducing points, and how close to the rows they are.

The tables are MNIST, Satellite and the airline data, if the data folder (`CAVITY_DATA`) has them, and the digits. Each
row's distance is that to the nearest point of its class. scikit-learn's k-means, on a sample of the same size and with
as many steps, shows what to expect; its points are the same for all classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from benchmarks.measure import seconds_of
from benchmarks.problems import Options
from benchmarks.records import Record
from cavity.datasets import load
from cavity.fitting.encoding import fit_scaler, has_common_unit
from cavity.numerics.kmeans import LLOYD_STEPS
from cavity.training.initial import KMEANS_ROWS, ROWS_PER_CENTER, initial_inducing_points

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

FILES = {"mnist": "mnist.npz", "satellite": "satellite.npz", "airline": "airline_2008_jan_apr.parquet", "digits": ""}
MOST_ROWS, SCORED_ROWS = 100_000, 20_000  # of a table, and of those whose distances are averaged
TURNS = 3  # of which the fastest counts


def measure(options: Options) -> Iterator[Record]:
    """Find M points of every table that is there; `--what` selects tables by name."""
    folder = Path(os.environ.get("CAVITY_DATA", ""))
    for name, file in FILES.items():
        if not options.selects(name):
            continue
        if file and not (folder / file).is_file():
            yield {"case": "start", "what": name, "skipped": f"CAVITY_DATA names no folder with {file}"}
            continue
        X, y = rows_of(name)
        of_all = {"case": "start", "data": name, "rows": len(X), "M": options.size.M, "D": X.shape[1]}
        for what, find in ways(X, y, options).items():
            find()
            seconds = min(seconds_of(find, options.device) for _ in range(TURNS))
            yield of_all | {"what": what, "seconds": round(seconds, 4), "inertia": inertia(X, y, find())}


def rows_of(name: str) -> tuple[Array, Labels]:
    """Return scaled training rows: MNIST's own, and all others up to a number of them."""
    data = load(name)
    X, y = data.split(0)[:2] if name == "mnist" else (data.X, data.y)
    rows = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
    X, y = np.asarray(X[rows], dtype=np.float64), np.asarray(y[rows], dtype=np.int64)
    scaling = "common" if has_common_unit(X) else "standard"
    return fit_scaler(scaling, X, np.ones(len(X))).transform(X), y


def ways(X: Array, y: Labels, options: Options) -> dict[str, Callable[[], Array]]:
    """Return what finds inducing points, (C, M, D), by name."""
    n_classes, M = int(y.max()) + 1, min(options.size.M, len(X))

    def own(init: str) -> Array:
        rng, device = np.random.default_rng(0), torch.device(options.device)
        return initial_inducing_points(X, y, n_classes, M, init, rng, device=device)

    def sklearn() -> Array:
        sample = np.random.default_rng(0).permutation(len(X))[: max(KMEANS_ROWS, ROWS_PER_CENTER * M)]
        Z = KMeans(M, n_init=1, max_iter=LLOYD_STEPS, random_state=0).fit(X[sample]).cluster_centers_
        return np.broadcast_to(Z, (n_classes, *Z.shape))

    return {init: partial(own, init) for init in ("kmeans", "kmeans-per-class")} | {"scikit-learn": sklearn}


def inertia(X: Array, y: Labels, Z: Array) -> float:
    """Return the mean squared distance of rows to the nearest point of their class."""
    rows = np.random.default_rng(1).permutation(len(X))[:SCORED_ROWS]
    drawn, points, label = torch.from_numpy(X[rows]), torch.tensor(Z), torch.from_numpy(y[rows])
    total = sum(float(torch.cdist(drawn[label == k], own).amin(1).square().sum()) for k, own in enumerate(points))
    return total / len(rows)
