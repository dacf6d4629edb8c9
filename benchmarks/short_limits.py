"""Fits that `max_seconds` cuts short, on everyday tables: their NLL beside that of class frequencies.

The tables are the files tables/*.parquet of the data folder (`CAVITY_DATA`), with the labels in the column `target`.
Text is one-hot encoded; gaps in numbers become the median, with a column that marks them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks.problems import Options
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.metrics import scores

LIMITS = (0.001, 0.1, 0.5, 2.0)  # seconds
BATCHES = (None, 100)  # EP on all rows, SEP on mini-batches
TRAIN_ROWS, TEST_ROWS = 1000, 3000  # at most


def measure(options: Options) -> Iterator[Record]:
    """Fit every table with every limit; `--what` selects tables by name."""
    paths = sorted(Path(os.environ.get("CAVITY_DATA", "")).glob("tables/*.parquet"))
    if not paths:
        yield {"case": "short_limits", "what": "tables", "skipped": "CAVITY_DATA names no folder with tables/*.parquet"}
    for path in paths:
        if not options.selects(path.stem):
            continue
        X, y = encoded(pd.read_parquet(path))
        n_train = min(TRAIN_ROWS, round(2 * len(y) / 3))
        X, X_test, y, y_test = train_test_split(
            X, y, train_size=n_train, test_size=min(TEST_ROWS, len(y) - n_train), stratify=y, random_state=0
        )
        labels, counts = np.unique(y, return_counts=True)
        frequencies = np.log(counts / counts.sum())
        of_frequencies = -float(frequencies[np.searchsorted(labels, y_test)].mean())
        for batch_size, limit in product(BATCHES, LIMITS):
            model = GPClassifier(max_seconds=limit, batch_size=batch_size, random_state=0, device=options.device)
            began = time.perf_counter()
            model.fit(X, y)
            seconds = time.perf_counter() - began
            nll = scores(y_test, model.predict_log_proba(X_test), model.classes_).nll
            yield {"case": "short_limits", "what": path.stem, "limit": limit, "B": batch_size or len(y),
                   "rows": len(y), "epochs": model.n_iter_, "seconds": round(seconds, 2), "nll": round(nll, 4),
                   "frequencies": round(of_frequencies, 4)}  # fmt: skip


def encoded(table: pd.DataFrame) -> tuple[Any, Any]:
    """Return features as numbers, and labels as text."""
    y, X = table.pop("target").astype(str).to_numpy(), table
    numeric = X.select_dtypes("number").astype(float)
    gaps = numeric.isna().loc[:, numeric.isna().any()].add_suffix(" is missing")
    text = X.drop(columns=numeric.columns)
    found = pd.get_dummies(pd.concat([numeric.fillna(numeric.median()), gaps, text], axis=1))
    return found.to_numpy(np.float64), y
