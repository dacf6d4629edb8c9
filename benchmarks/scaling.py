"""How time grows with rows, classes and inducing points: one is varied at a time, and its exponent estimated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks import rivals
from benchmarks.problems import Options, Size, sparse_images
from benchmarks.records import Record
from benchmarks.step import cavity_step
from cavity.classifier import GPClassifier
from cavity.kernels import RBF

BATCHES = (5, 10, 20)  # of an epoch, for the growth with the rows
EPOCHS = 3
REPEATS = 7
RATE = 1e-3  # small enough that no step is reverted


def measure(options: Options) -> Iterator[Record]:
    """Measure epochs of SEP and EP by rows, and SEP steps by classes and by inducing points."""
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
    """Return the least time of an epoch of mini-batches, from the history of a fit without its first epoch."""
    problem = sparse_images(size, n_batches)
    model = GPClassifier(
        method, kernel=RBF(rivals.LENGTHSCALE), inducing_points=problem.Z, n_inducing=size.M, scaling=None,
        batch_size=size.B, max_epochs=EPOCHS, tol=0.0, learning_rate=RATE, device=device, dtype=dtype, random_state=0,
    ).fit(problem.X, problem.y)  # fmt: skip
    return float(np.diff([record["seconds"] for record in model.history_ if record["event"] is None]).min())


def step_seconds(method: str, size: Size, dtype: str, device: str) -> float:
    """Return the least time of a step."""
    work = cavity_step(method, sparse_images(size), size, dtype, device)
    return 1e-3 * work.milliseconds(REPEATS, device)["least_ms"]


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of log seconds by log size.

    >>> exponent([1, 2, 4], [3.0, 12.0, 48.0])
    2.0
    """
    return round(float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]), 3)


def _record(
    method: str, by: str, sizes: Sequence[int], seconds: Sequence[float], size: Size, dtype: str, device: str
) -> Record:
    """Describe a whole sweep; `size` holds the values of what was not varied."""
    return {"case": "scaling", "what": f"cavity {method}", "by": by, "dtype": dtype, "device": device,
            **size._asdict(), "sizes": list(sizes), "seconds": [round(s, 6) for s in seconds],
            "exponent": exponent(sizes, seconds)}  # fmt: skip
