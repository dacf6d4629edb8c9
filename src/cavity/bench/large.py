"""What larger data cost: memory by rows, a step from disk beside one in memory, a thousand classes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.bench.child import in_child
from cavity.bench.problems import Options
from cavity.classifier import GPClassifier
from cavity.data import Parquet
from cavity.datasets import load
from cavity.records import Record

Array = NDArray[np.float64]

ROWS = (100_000, 10_000_000)
GROUP_ROWS, FILE_ROWS = 100_000, 1_000_000
FEATURES, CLASSES = 10, 4
MODEL: dict[str, Any] = {"method": "sep", "n_inducing": 100, "batch_size": 500, "random_state": 0, "tol": 0.0}
TURNS = 3  # of both, so that a busy moment of the machine hits neither alone
MANY = {"C": 1000, "N": 200_000, "D": 20, "M": 50, "B": 500}
TEST_ROWS = 10_000
APART = 4.0  # of the centers of many classes, in standard deviations


def memory(options: Options) -> Iterator[Record]:
    """The most memory of training and of prediction from Parquet, for few rows and for many."""
    for n_rows in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            write_rows(Path(folder) / "rows", n_rows)
            for what in ("train", "predict"):
                yield in_child(_from_disk, what, folder, n_rows, device=options.device)


def write_rows(folder: Path, n_rows: int, seed: int = 0) -> None:
    """A Parquet folder of made-up rows: labels by a curved surface, a tenth of them at random."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    folder.mkdir(parents=True)
    for number, first in enumerate(range(0, n_rows, FILE_ROWS)):
        rng, count = np.random.default_rng([seed, number]), min(FILE_ROWS, n_rows - first)
        writer = None
        for start in range(0, count, GROUP_ROWS):
            table = pa.table(_made_up(rng, min(GROUP_ROWS, count - start)))
            writer = writer or ParquetWriter(folder / f"part-{number:04d}.parquet", table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def _made_up(rng: np.random.Generator, n_rows: int) -> dict[str, Any]:
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
        model = GPClassifier(**MODEL, max_epochs=1).fit(source)
        model_file.write_bytes(_pickled(model))
    else:
        _unpickled(model_file.read_bytes()).predict_to(source, f"{folder}/predictions")
    seconds = round(time.perf_counter() - began, 3)
    return {"case": "memory", "what": what, "rows": n_rows, "C": CLASSES, "M": MODEL["n_inducing"],
            "B": MODEL["batch_size"], "D": FEATURES, "seconds": seconds}  # fmt: skip


def _pickled(model: Any) -> bytes:
    import pickle

    return pickle.dumps(model)


def _unpickled(data: bytes) -> Any:
    import pickle

    return pickle.loads(data)  # written by this program a moment ago


def source(options: Options) -> Iterator[Record]:
    """Milliseconds of a SEP step on the flights, from Parquet and in memory, in turns."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

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


def flights() -> tuple[Array, NDArray[Any]]:
    """The airline data."""
    data = load("airline")
    return np.asarray(data.X, dtype=np.float64), np.asarray(data.y)


def _step_time(rows: tuple[Any, ...], n_rows: int) -> Record:
    """An epoch, by the history; `seconds` has the survey and the last pass over the rows as well."""
    began = time.perf_counter()
    model = GPClassifier(**MODEL, max_epochs=1, calibrate=False).fit(*rows)
    n_steps, trained = -(-n_rows // MODEL["batch_size"]), model.history_[-1]["seconds"]
    return {"ms": round(1e3 * trained / n_steps, 4), "seconds": round(time.perf_counter() - began, 3)}


def classes(options: Options) -> Iterator[Record]:
    """A thousand classes: an epoch of training and prediction for ten thousand rows."""
    yield in_child(_many_classes, device=options.device)


def _many_classes() -> Record:
    rng, (C, N, D, M, B) = np.random.default_rng(0), MANY.values()
    centers = APART * rng.standard_normal((C, D))
    y = rng.integers(0, C, N)
    X = centers[y] + rng.standard_normal((N, D)) * APART / 2
    X_test, y_test = X[-TEST_ROWS:], y[-TEST_ROWS:]
    model = GPClassifier("sep", n_inducing=M, batch_size=B, share_kernel=True, share_inducing=True, max_epochs=1,
                         random_state=0)  # fmt: skip
    began = time.perf_counter()
    model.fit(X[:-TEST_ROWS], y[:-TEST_ROWS])
    fitted = time.perf_counter()
    log_p = model.predict_log_proba(X_test)
    predicted = time.perf_counter()
    error = float((model.classes_[log_p.argmax(1)] != y_test).mean())
    nll = -float(log_p[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)].mean())
    speed = round(len(X_test) / (predicted - fitted))
    return {"case": "classes", "what": "cavity sep", **MANY, "seconds": round(fitted - began, 2),
            "rows_per_second": speed, "error": error, "nll": round(nll, 4)}  # fmt: skip
