"""Whole fits at the paper's settings, and predictions; each in a process of its own, for the memory it takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.bench import rivals
from cavity.bench.child import in_child
from cavity.bench.problems import Options, Size, Start, sparse_images
from cavity.bench.timing import milliseconds, once
from cavity.classifier import GPClassifier
from cavity.datasets import load, make_waveform
from cavity.inference import METHODS
from cavity.kernels import RBF
from cavity.records import Record

VEHICLE_INDUCING = 76  # a tenth of its 761 training rows
SPLIT = tuple[NDArray[np.float64], NDArray[Any], NDArray[np.float64], NDArray[Any]]


def fit(options: Options) -> Iterator[Record]:
    """A fit of each method at the paper's settings: 300 rows of Waveform with M = 30, 761 of Vehicle with M = 76."""
    size, device = options.size, options.device
    n_rows = max(60, min(300, 30 * size.C))
    for method in METHODS:
        yield in_child(fit_once, "waveform", method, n_rows, max(1, n_rows // 10), device, device=device)
    reason = why_no_vehicle()
    for method in METHODS:
        if reason is None:
            M = min(VEHICLE_INDUCING, size.M)
            yield in_child(fit_once, "vehicle", method, None, M, device, device=device)
        else:
            yield {"case": "fit", "what": method, "data": "vehicle", "skipped": reason}


def why_no_vehicle() -> str | None:
    """What stands in the way of fitting Vehicle: the authors' splits belong to the rows of a data folder."""
    folder = os.environ.get("CAVITY_DATA")
    if not folder:
        return "CAVITY_DATA names no data folder"
    try:
        load("vehicle", folder=folder)
    except FileNotFoundError as error:
        return str(error)
    return None


def fit_once(data: str, method: str, n_rows: int | None, n_inducing: int, device: str) -> Record:
    """One fit, timed after a short one that starts threads and device; NLL on the test rows."""
    X, y, X_test, y_test = _split(data, n_rows)
    make = partial(GPClassifier.paper, method, n_inducing=n_inducing, random_state=0, device=device)
    make(max_epochs=2).fit(X, y)
    model = make()
    seconds = once(partial(model.fit, X, y), device)
    log_p = model.predict_log_proba(X_test)
    nll = -log_p[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)].mean()
    return {"case": "fit", "what": method, "data": data, "device": device, "rows": len(X), "M": n_inducing,
            "seconds": round(seconds, 3), "iterations": model.n_iter_,
            "log_z": round(model.log_marginal_likelihood_, 3), "nll": round(float(nll), 4)}  # fmt: skip


def _split(data: str, n_rows: int | None) -> SPLIT:
    if data != "waveform":
        return load(data).split(0)
    n = n_rows or 300
    X, y = make_waveform(n + 700, random_state=0)
    return X[:n], y[:n], X[n:], y[n:]


def predict(options: Options) -> Iterator[Record]:
    """Rows a second of class probabilities, for images and for a small table, beside the rivals."""
    size, device = options.size, options.device
    for shape in (size, Size(3, min(size.M, 100), size.B, 8)):
        for what in ("cavity", *rivals.available("float64", device)):
            yield in_child(predict_once, what, shape, device, device=device)


def predict_once(what: str, shape: Size, device: str) -> Record:
    """The probabilities of four batches of rows, again and again."""
    rows = sparse_images(shape)
    X = np.resize(rows.X, (4 * len(rows.X), shape.D))
    if what == "cavity":
        model = GPClassifier(
            kernel=RBF(rivals.LENGTHSCALE), inducing_points=rows.Z, learn_kernel=False, learn_inducing=False,
            scaling=None, max_epochs=2, device=device,
        ).fit(rows.X, rows.y)  # fmt: skip
        work = partial(model.predict_proba, X)
    else:
        start = Start(rows.Z, rivals.LENGTHSCALE)
        rival = rivals.available("float64", device)[what](rows.X, rows.y, start, "float64", device, 0.01)
        work = partial(rival.log_proba, X)
    times = milliseconds(work, 5, 1, device)
    rate = round(1e3 * len(X) / times["least_ms"])
    return {"case": "predict", "what": what, "device": device, **shape._asdict(), "rows_per_second": rate}
