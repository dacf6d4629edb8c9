"""A thousand classes: an epoch of training, and predictions for ten thousand rows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import in_child
from benchmarks.problems import Options
from benchmarks.records import Record
from cavity.classifier import GPClassifier

SIZES = {"C": 1000, "N": 200_000, "D": 20, "M": 50, "B": 500}
TEST_ROWS = 10_000
SEPARATION = 4.0  # of the class centers, in standard deviations


def measure(options: Options) -> Iterator[Record]:
    """Measure one fit and its predictions."""
    yield in_child(_many_classes, device=options.device)


def _many_classes() -> Record:
    rng, (C, N, D, M, B) = np.random.default_rng(0), SIZES.values()
    centers = SEPARATION * rng.standard_normal((C, D))
    y = rng.integers(0, C, N)
    X = centers[y] + rng.standard_normal((N, D)) * SEPARATION / 2
    X_test, y_test = X[-TEST_ROWS:], y[-TEST_ROWS:]
    model = GPClassifier("sep", n_inducing=M, batch_size=B, share_kernel=True, share_inducing=True, max_epochs=1,
                         random_state=0)  # fmt: skip
    began = time.perf_counter()
    model.fit(X[:-TEST_ROWS], y[:-TEST_ROWS])
    fitted = time.perf_counter()
    log_p = model.predict_log_proba(X_test)
    predicted = time.perf_counter()
    # Not by cavity.metrics, whose arrays would add to the peak memory.
    error = float((model.classes_[log_p.argmax(1)] != y_test).mean())
    nll = -float(log_p[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)].mean())
    speed = round(len(X_test) / (predicted - fitted))
    return {"case": "classes", "what": "cavity sep", **SIZES, "seconds": round(fitted - began, 2),
            "rows_per_second": speed, "error": error, "nll": round(nll, 4)}  # fmt: skip
