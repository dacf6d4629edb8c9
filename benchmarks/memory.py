"""The peak memory of training and of prediction from files, for few rows and for many.

`parquet` has numbers. `csv` has five categories, one of them of 10,000 levels, and a tenth of its cells is missing; the
command line reads it as on a machine whose memory it does not fit into. `full` has arrays of numbers, and EP trains on
all rows at once.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from pyarrow.csv import CSVWriter
from pyarrow.parquet import ParquetWriter

from benchmarks.measure import in_child
from benchmarks.problems import Options
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.data import Parquet
from cavity.kernels import RBF

ROWS = (100_000, 10_000_000)
GROUP_ROWS, FILE_ROWS = 100_000, 1_000_000
FEATURES, CLASSES = 10, 4
MODEL: dict[str, Any] = {"method": "sep", "n_inducing": 100, "batch_size": 500, "random_state": 0, "tol": 0.0}


CSV_ROWS = (100_000, 1_000_000)
LEVELS, NUMBERS, CSV_CLASSES = (3, 10, 100, 1_000, 10_000), 5, 3
GAPS = 0.1  # of the cells

FULL_ROWS, FULL_FEATURES, FULL_CLASSES = (10_000, 100_000), 20, 10
FULL_MODEL = MODEL | {"method": "ep", "batch_size": None, "max_epochs": 3, "calibrate": False, "kernel": RBF()}


def measure(options: Options) -> Iterator[Record]:
    """Measure both sizes, or that of the options; they make their own data. Without `what`, from Parquet alone."""
    for kind in options.what or ("parquet",):
        write, work, sizes = CASES[kind]
        for n_rows in sizes() if options.rows is None else (options.rows,):
            with tempfile.TemporaryDirectory() as folder:
                write(Path(folder) / "rows", n_rows)
                for what in ("train", "predict"):
                    yield in_child(work, what, folder, n_rows, device=options.device)


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


def write_mixed_csv(folder: Path, n_rows: int, seed: int = 0) -> None:
    """Write a CSV file of synthetic rows: labels by all categories and two numbers, a tenth of the cells missing."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    effects = [rng.standard_normal(n) for n in LEVELS]
    sizes = [min(GROUP_ROWS, n_rows - start) for start in range(0, n_rows, GROUP_ROWS)]
    tables = (pa.table(_mixed_columns(rng, size, effects)) for size in sizes)
    table = next(tables)
    with CSVWriter(folder / "rows.csv", table.schema) as writer:
        writer.write_table(table)
        for table in tables:
            writer.write_table(table)


def _mixed_columns(rng: np.random.Generator, n_rows: int, effects: list[Any]) -> dict[str, Any]:
    X, levels = rng.standard_normal((n_rows, NUMBERS)), [rng.integers(0, n, n_rows) for n in LEVELS]
    score = np.sin(2.0 * X[:, 0]) + X[:, 1] + sum(effect[level] for effect, level in zip(effects, levels, strict=True))
    label = np.array(["low", "middle", "high"])[np.digitize(score, [-1.0, 1.0])]
    columns = {f"x{j}": pa.array(X[:, j].round(4), mask=rng.random(n_rows) < GAPS) for j in range(NUMBERS)}
    for n, level in zip(LEVELS, levels, strict=True):
        names = np.array([f"level {k}" for k in range(n)], dtype=object)
        columns[f"of_{n}"] = pa.array(names[level], pa.string(), mask=rng.random(n_rows) < GAPS)
    return columns | {"label": label}


def _from_command_line(what: str, folder: str, n_rows: int) -> Record:
    """Run `cavity fit` or `cavity predict` in this process, whose memory is measured."""
    from cavity.cli import main

    rows, model = f"{folder}/rows/rows.csv", f"{folder}/rows.cavity"
    settings = ["--method", "sep", "--inducing", str(MODEL["n_inducing"]), "--batch-size", str(MODEL["batch_size"])]
    train = ["fit", rows, "--target", "label", "-o", model, "--epochs", "1", *settings]
    predict = ["predict", model, rows, "-o", f"{folder}/predictions/"]
    began = time.perf_counter()
    with mock.patch("cavity.cli.fit.is_large", return_value=True):
        main(train if what == "train" else predict, standalone_mode=False)
    seconds = round(time.perf_counter() - began, 3)
    return {"case": "memory", "what": f"{what} csv", "rows": n_rows, "C": CSV_CLASSES, "M": MODEL["n_inducing"],
            "B": MODEL["batch_size"], "D": NUMBERS + len(LEVELS), "seconds": seconds}  # fmt: skip


def write_arrays(folder: Path, n_rows: int, seed: int = 0) -> None:
    """Write two files of synthetic rows: overlapping clouds, one for each class."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    centers, y = rng.standard_normal((FULL_CLASSES, FULL_FEATURES)), rng.integers(0, FULL_CLASSES, n_rows)
    np.save(folder / "X.npy", centers[y] + rng.standard_normal((n_rows, FULL_FEATURES)))
    np.save(folder / "y.npy", y)


def _on_all_rows(what: str, folder: str, n_rows: int) -> Record:
    X, y = (np.load(f"{folder}/rows/{name}.npy") for name in "Xy")
    model_file = Path(folder) / "model.pickle"
    began = time.perf_counter()
    if what == "train":
        model_file.write_bytes(pickle.dumps(GPClassifier(**FULL_MODEL).fit(X, y)))
    else:
        pickle.loads(model_file.read_bytes()).predict_proba(X)
    seconds = round(time.perf_counter() - began, 3)
    return {"case": "memory", "what": f"{what} on all rows", "rows": n_rows, "C": FULL_CLASSES,
            "M": FULL_MODEL["n_inducing"], "B": n_rows, "D": FULL_FEATURES, "seconds": seconds}  # fmt: skip


CASES: dict[str, tuple[Callable[[Path, int], None], Callable[[str, str, int], Record], Callable[[], Sequence[int]]]] = {
    "parquet": (write_rows, _from_disk, lambda: ROWS),
    "csv": (write_mixed_csv, _from_command_line, lambda: CSV_ROWS),
    "full": (write_arrays, _on_all_rows, lambda: FULL_ROWS),
}
