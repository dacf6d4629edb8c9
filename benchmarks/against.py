"""Step times of this checkout and of another one, measured alternately in one run.

A ratio of times from one run is reliable where times from different runs are not. Every turn starts a process for each
checkout, which fits by the public interface of cavity only. Hence the other checkout can be older or newer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from benchmarks.problems import Options, Size, sparse_images
from benchmarks.records import Record

ROOT = Path(__file__).parents[1]
METHODS = ("sep", "ep", "vi")
TURNS = 5
BATCHES, EPOCHS = 4, 12  # of a fit; the first epoch does not count
LENGTHSCALE, RATE = 7.0, 1e-3
HEADER = ["method", "this / ms", "other / ms", "ratio", "of the least", "lowest turn", "highest turn"]


class Comparison(NamedTuple):
    """Milliseconds of a method's step in both checkouts, one value for each turn."""

    method: str
    this: list[float]
    other: list[float]

    @property
    def ratio(self) -> float:
        """The median time of this checkout over that of the other."""
        return median(self.this) / median(self.other)

    def row(self) -> list[str]:
        """Format median times and ratios: of the medians, of the least times, and of single turns."""
        turns = [a / b for a, b in zip(self.this, self.other, strict=True)]
        least = min(self.this) / min(self.other)
        values = (median(self.this), median(self.other), self.ratio, least, min(turns), max(turns))
        return [self.method, *(f"{value:.3f}" for value in values)]


def compare(other: Path, options: Options, threads: int) -> Iterator[Comparison]:
    """Measure the steps of this checkout and of the one whose `src` folder is `other`.

    Raises:
        ValueError: if `other` does not hold the package cavity.
        RuntimeError: if a fit fails.
    """
    if not (other / "cavity" / "__init__.py").is_file():
        raise ValueError(f"--against must be the src folder of a checkout, which holds cavity, got {other}")
    sources = (ROOT / "src", other.resolve())
    turns: list[dict[Path, Record]] = []
    for turn in range(TURNS):
        order = sources if turn % 2 == 0 else sources[::-1]  # so that a drift of the machine cancels
        turns.append({source: _measure_in(source, options, threads) for source in order})
    for method in METHODS:
        this, others = ([turn[source][method] for turn in turns] for source in sources)
        yield Comparison(method, this, others)


def _measure_in(source: Path, options: Options, threads: int) -> Record:
    job = {"size": options.size, "dtype": options.dtype or "float64", "device": options.device, "threads": threads}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.against", json.dumps(job)],
        env=os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": str(threads)}, cwd=ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"The fits with {source} failed:\n{done.stderr[-2000:]}")
    record: Record = json.loads(done.stdout.splitlines()[-1])
    if not Path(record["cavity"]).is_relative_to(source):
        raise RuntimeError(f"cavity must be imported from {source}, got {record['cavity']}")
    return record


def step_times(size: Size, dtype: str, device: str, threads: int) -> Record:
    """Return the least milliseconds of a step of each method, with the cavity that this process imports."""
    import torch

    torch.set_num_threads(threads)
    import cavity
    from cavity.kernels import RBF

    problem = sparse_images(size, BATCHES)
    found: Record = {"cavity": cavity.__file__}
    for method in METHODS:
        model = cavity.GPClassifier(
            method, kernel=RBF(LENGTHSCALE), inducing_points=problem.Z, n_inducing=size.M, scaling=None, tol=0.0,
            batch_size=size.B, max_epochs=1 + EPOCHS, learning_rate=RATE, calibrate=False, device=device, dtype=dtype,
            random_state=0,
        ).fit(problem.X, problem.y)  # fmt: skip
        epochs = np.diff([record["seconds"] for record in model.history_])
        found[method] = 1e3 * float(epochs.min()) / BATCHES
    return found


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(step_times(**given | {"size": Size(*given["size"])})))
