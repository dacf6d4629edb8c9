"""Whole fits at the paper's settings, each in a process of its own to measure its memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from numpy.typing import NDArray

from benchmarks.measure import in_child, seconds_of
from benchmarks.problems import Options
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.datasets import load, make_waveform
from cavity.inference import METHODS
from cavity.metrics import scores

VEHICLE_INDUCING = 76  # a tenth of its 761 training rows
WAVEFORM_TEST_ROWS = 700


def measure(options: Options) -> Iterator[Record]:
    """Fit each method at the paper's settings: 300 rows of Waveform with M = 30, and 761 of Vehicle with M = 76."""
    size, device = options.size, options.device
    n_rows = max(60, min(300, 30 * size.C))
    for method in METHODS:
        yield in_child(fit_once, "waveform", method, n_rows, max(1, n_rows // 10), device, device=device)
    reason = why_no_vehicle()
    for method in METHODS:
        if reason is None:
            n_inducing = min(VEHICLE_INDUCING, size.M)
            yield in_child(fit_once, "vehicle", method, None, n_inducing, device, device=device)
        else:
            yield {"case": "fit", "what": method, "data": "vehicle", "skipped": reason}


def why_no_vehicle() -> str | None:
    """Return why Vehicle cannot be fitted, or None: the authors' splits are in the data folder only."""
    folder = os.environ.get("CAVITY_DATA")
    if not folder:
        return "CAVITY_DATA is not set to a data folder"
    try:
        load("vehicle", folder=folder)
    except FileNotFoundError as error:
        return str(error)
    return None


def fit_once(data: str, method: str, n_rows: int | None, n_inducing: int, device: str) -> Record:
    """Time one fit, after a short one that starts threads and device, and score it on the test rows."""
    X, y, X_test, y_test = _split(data, n_rows)
    make = partial(GPClassifier.paper, method, n_inducing=n_inducing, random_state=0, device=device)
    make(max_epochs=2).fit(X, y)
    model = make()
    seconds = seconds_of(partial(model.fit, X, y), device)
    nll = scores(y_test, model.predict_log_proba(X_test), model.classes_).nll
    return {"case": "fit", "what": method, "data": data, "device": device, "rows": len(X), "M": n_inducing,
            "seconds": round(seconds, 3), "iterations": model.n_iter_,
            "log_z": round(model.log_marginal_likelihood_, 3), "nll": round(nll, 4)}  # fmt: skip


def _split(data: str, n_rows: int | None) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    if data != "waveform":
        return load(data).split(0)
    n = n_rows or 300
    X, y = make_waveform(n + WAVEFORM_TEST_ROWS, random_state=0)
    return X[:n], y[:n], X[n:], y[n:]
