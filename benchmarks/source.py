"""A SEP step on the flights, from Parquet files and in memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.parquet import write_table

from benchmarks.memory import GROUP_ROWS, MODEL
from benchmarks.problems import Options
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.data import Parquet
from cavity.datasets import load

TURNS = 3  # of both, alternately: the machine may be busy at times


def measure(options: Options) -> Iterator[Record]:
    """Measure steps from both sources alternately."""
    X, y = flights()
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({f"x{i}": X[:, i] for i in range(X.shape[1])} | {"label": y})
        write_table(table, f"{folder}/flights.parquet", row_group_size=GROUP_ROWS)
        del table
        on_disk, in_memory = Parquet(folder, target="label"), (X, y)
        for turn in range(TURNS):
            for what, rows in (("in memory", in_memory), ("from Parquet", (on_disk,))):
                yield {"case": "source", "what": what, "turn": turn, "rows": len(X), "C": 3, "M": MODEL["n_inducing"],
                       "B": MODEL["batch_size"], "D": X.shape[1], **_step_time(rows, len(X))}  # fmt: skip


def flights() -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Load the airline data."""
    data = load("airline")
    return np.asarray(data.X, dtype=np.float64), np.asarray(data.y)


def _step_time(rows: tuple[Any, ...], n_rows: int) -> Record:
    """Time an epoch by the history; `seconds` includes the survey and the last pass over the rows."""
    began = time.perf_counter()
    model = GPClassifier(**MODEL, max_epochs=1, calibrate=False).fit(*rows)
    n_steps, trained = -(-n_rows // MODEL["batch_size"]), model.history_[-1]["seconds"]
    return {"ms": round(1e3 * trained / n_steps, 4), "seconds": round(time.perf_counter() - began, 3)}
