"""How time grows with rows, classes and inducing points, one varied at a time, and the exponent of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cavity.bench import rivals
from cavity.bench.problems import Options, Size, sparse_images
from cavity.bench.steps import cavity_step
from cavity.classifier import GPClassifier
from cavity.kernels import RBF
from cavity.records import Record

BATCHES = (5, 10, 20)  # an epoch, for the growth with the rows
EPOCHS = 3
REPEATS = 7
RATE = 1e-3  # so small that no step has to be taken back


def scaling(options: Options) -> Iterator[Record]:
    """Seconds of an epoch by rows, for SEP and EP; seconds of a SEP step by classes and by inducing points."""
    size, device = options.size, options.device
    dtype = options.dtype or "float64"
    for method in ("sep", "ep"):
        seconds = [epoch_seconds(method, size, n, dtype, device) for n in BATCHES]
        yield _record(method, "N", [n * size.B for n in BATCHES], seconds, size, dtype, device)
    classes = sorted({max(2, size.C // 2), size.C, 2 * size.C})
    points = sorted({max(1, round(size.M * factor)) for factor in (0.25, 0.5, 1.0, 2.0)})
    for name, values in (("C", classes), ("M", points)):
        seconds = [step_seconds("sep", size._replace(**{name: value}), dtype, device) for value in values]
        yield _record("sep", name, values, seconds, size, dtype, device)


def epoch_seconds(method: str, size: Size, n_batches: int, dtype: str, device: str) -> float:
    """The least time of an epoch of mini-batches, the first left out, by the history of a fit."""
    rows = sparse_images(size, n_batches)
    model = GPClassifier(
        method, kernel=RBF(rivals.LENGTHSCALE), inducing_points=rows.Z, n_inducing=size.M, scaling=None,
        batch_size=size.B, max_epochs=EPOCHS, tol=0.0, learning_rate=RATE, device=device, dtype=dtype, random_state=0,
    ).fit(rows.X, rows.y)  # fmt: skip
    return float(np.diff([record["seconds"] for record in model.history_]).min())


def step_seconds(method: str, size: Size, dtype: str, device: str) -> float:
    """The least time of a step."""
    work = cavity_step(method, sparse_images(size), size, dtype, device)
    return 1e-3 * work.milliseconds(REPEATS, device)["least_ms"]


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log seconds by log size.

    >>> exponent([1, 2, 4], [3.0, 12.0, 48.0])
    2.0
    """
    return round(float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]), 3)


def _record(
    method: str, by: str, sizes: Sequence[int], seconds: Sequence[float], size: Size, dtype: str, device: str
) -> Record:
    """One line for the whole sweep; `size` is what the others were held at."""
    return {"case": "scaling", "what": f"cavity {method}", "by": by, "dtype": dtype, "device": device,
            **size._asdict(), "sizes": list(sizes), "seconds": [round(s, 6) for s in seconds],
            "exponent": exponent(sizes, seconds)}  # fmt: skip
