"""The next rows to label from a pool in files: seconds and peak memory, for few rows and for many."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from benchmarks.measure import in_child
from benchmarks.memory import GROUP_ROWS
from benchmarks.problems import Options
from benchmarks.records import Record
from cavity import active
from cavity.classifier import GPClassifier
from cavity.data import Parquet

ROWS = (100_000, 1_000_000)
FEATURES, CLASSES, TRAIN_ROWS, BATCH, CHECKED_ROWS = 10, 5, 5_000, 20, 5_000
MODEL: dict[str, Any] = {"method": "sep", "n_inducing": 100, "batch_size": 500, "max_epochs": 10, "random_state": 0}


def measure(options: Options) -> Iterator[Record]:
    """Measure each method on the larger pool and "bald" on both, or on that of the options."""
    sizes = ROWS if options.rows is None else (options.rows,)
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in sizes:
            _write_pool(Path(folder) / f"{n_rows}.parquet", n_rows)
            methods = ("bald",) if n_rows < max(sizes) else (options.what or active.METHODS)
            for method in methods:
                yield in_child(query_once, method, f"{folder}/{n_rows}.parquet", n_rows, device=options.device)


def query_once(method: str, path: str, n_rows: int) -> Record:
    """Fit a model, and time one query. For "bald", find what the screening of rows loses on some of them."""
    X, labels = _rows(np.random.default_rng(1), TRAIN_ROWS)
    clf = GPClassifier(**MODEL).fit(X, labels)
    began = time.perf_counter()
    active.query(clf, Parquet(path), BATCH, method, random_state=0)
    seconds = round(time.perf_counter() - began, 3)
    record = {"case": "query", "what": method, "rows": n_rows, "C": CLASSES, "M": MODEL["n_inducing"], "D": FEATURES,
              "seconds": seconds}  # fmt: skip
    return record | (_screening(clf) if method == "bald" else {})


def _screening(clf: GPClassifier) -> Record:
    """Return the correlation of ranks by screening with exact ones, and the worst rank of a row of the exact best."""
    from scipy.stats import spearmanr

    X, _ = _rows(np.random.default_rng(2), CHECKED_ROWS)
    exact, screened = clf.uncertainty(X).epistemic, active._scores(clf, X, "bald")
    best = np.argsort(-exact)[:BATCH]
    worst = int((screened[:, None] > screened[best]).sum(0).max()) + 1
    return {"rank_correlation": round(float(spearmanr(exact, screened)[0]), 4), "worst_rank": worst}


def _write_pool(path: Path, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    schema = pa.schema([(f"x{j}", pa.float64()) for j in range(FEATURES)])
    with ParquetWriter(path, schema) as writer:
        for start in range(0, n_rows, GROUP_ROWS):
            X, _ = _rows(rng, min(GROUP_ROWS, n_rows - start))
            writer.write_table(pa.table(dict(zip(schema.names, X.T, strict=True))))


def _rows(rng: np.random.Generator, n_rows: int) -> tuple[Any, Any]:
    """Return rows with labels by a curved surface."""
    X = rng.standard_normal((n_rows, FEATURES))
    wave = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.3 * rng.standard_normal(n_rows)
    return X, np.digitize(wave, [-1.2, -0.4, 0.4, 1.2])
