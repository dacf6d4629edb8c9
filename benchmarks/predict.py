"""Class probabilities per second, compared with the rivals."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks import rivals
from benchmarks.measure import in_child, milliseconds
from benchmarks.problems import Options, Size, Start, sparse_images
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.kernels import RBF

ROWS_ON_CPU, ROWS_ON_GPU = 4000, 2**20  # to predict: enough that neither a call nor its last block is what is timed
LARGEST = 2**26  # entries of X: 512 MiB


def measure(options: Options) -> Iterator[Record]:
    """Measure predictions for images and for a small table."""
    size, device = options.size, options.device
    for shape in (size, Size(3, min(size.M, 100), size.B, 8)):
        for what in ("cavity", *rivals.available("float64", device)):
            yield in_child(predict_once, what, shape, device, device=device)


def predict_once(what: str, shape: Size, device: str) -> Record:
    """Time the probabilities of many rows."""
    problem = sparse_images(shape)
    n_rows = min(LARGEST // shape.D, ROWS_ON_GPU) if device.startswith("cuda") else ROWS_ON_CPU
    X = np.resize(problem.X, (n_rows, shape.D))
    if what == "cavity":
        model = GPClassifier(
            kernel=RBF(rivals.LENGTHSCALE), inducing_points=problem.Z, learn_kernel=False, learn_inducing=False,
            scaling=None, max_epochs=2, tol=1e9, device=device,
        ).fit(problem.X, problem.y)  # fmt: skip
        work = partial(model.predict_proba, X)
    else:
        start = Start(problem.Z, rivals.LENGTHSCALE)
        rival = rivals.available("float64", device)[what](problem.X, problem.y, start, "float64", device, 0.01)
        work = partial(rival.log_proba, X)
    rate = round(1e3 * len(X) / milliseconds(work, 5, 1, device)["least_ms"])
    return {"case": "predict", "what": what, "device": device, **shape._asdict(), "rows_per_second": rate}
