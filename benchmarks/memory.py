"""The peak memory of training and of prediction from Parquet files, for few rows and for many."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from benchmarks.measure import in_child
from benchmarks.problems import Options
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.data import Parquet

ROWS = (100_000, 10_000_000)
GROUP_ROWS, FILE_ROWS = 100_000, 1_000_000
FEATURES, CLASSES = 10, 4
MODEL: dict[str, Any] = {"method": "sep", "n_inducing": 100, "batch_size": 500, "random_state": 0, "tol": 0.0}


def measure(options: Options) -> Iterator[Record]:
    """Measure both sizes; they make their own data."""
    for n_rows in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            write_rows(Path(folder) / "rows", n_rows)
            for what in ("train", "predict"):
                yield in_child(_from_disk, what, folder, n_rows, device=options.device)


def write_rows(folder: Path, n_rows: int, seed: int = 0) -> None:
    """Write a Parquet folder of synthetic rows: labels by a curved surface, a tenth of them at random."""
    folder.mkdir(parents=True)
    for number, first in enumerate(range(0, n_rows, FILE_ROWS)):
        rng, count = np.random.default_rng([seed, number]), min(FILE_ROWS, n_rows - first)
        sizes = [min(GROUP_ROWS, count - start) for start in range(0, count, GROUP_ROWS)]
        tables = (pa.table(_columns(rng, size)) for size in sizes)
        table = next(tables)
        with ParquetWriter(folder / f"part-{number:04d}.parquet", table.schema) as writer:
            writer.write_table(table)
            for table in tables:
                writer.write_table(table)


def _columns(rng: np.random.Generator, n_rows: int) -> dict[str, Any]:
    X = rng.standard_normal((n_rows, FEATURES))
    wave = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
    y = np.digitize(wave, [-1.0, 0.0, 1.0])
    y = np.where(rng.random(n_rows) < 0.1, rng.integers(0, CLASSES, n_rows), y)
    return {f"x{i}": X[:, i] for i in range(FEATURES)} | {"label": y}


def _from_disk(what: str, folder: str, n_rows: int) -> Record:
    source = Parquet(f"{folder}/rows", target="label")
    model_file = Path(folder) / "model.pickle"
    began = time.perf_counter()
    if what == "train":
        model_file.write_bytes(pickle.dumps(GPClassifier(**MODEL, max_epochs=1).fit(source)))
    else:
        pickle.loads(model_file.read_bytes()).predict_to(source, f"{folder}/predictions")
    seconds = round(time.perf_counter() - began, 3)
    return {"case": "memory", "what": what, "rows": n_rows, "C": CLASSES, "M": MODEL["n_inducing"],
            "B": MODEL["batch_size"], "D": FEATURES, "seconds": seconds}  # fmt: skip
