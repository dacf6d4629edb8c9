"""The benchmarks by name; each gives records to append to the history."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from cavity.bench import rivals
from cavity.bench.problems import Rows, Size, sparse_images
from cavity.bench.timing import gigaflops, milliseconds
from cavity.data import ArrayData
from cavity.datasets import make_waveform
from cavity.estimator import GPClassifier
from cavity.inference import METHODS
from cavity.kernels import RBF
from cavity.training import Adam, HyperPrior, Plan, Trainer, start_model

Record = dict[str, Any]
REPEATS = 15


def step(size: Size, device: str) -> Iterator[Record]:
    """A mini-batch step of every method that has one, beside the rivals and the roofline."""
    rows = sparse_images(size)
    for dtype in ("float64", "float32"):
        limit = gigaflops(1000 if size.M >= 100 else 100, getattr(torch, dtype), device)
        for name in ("sep", "ep", "vi"):
            work = cavity_step(name, rows, size, dtype, device)
            yield _step_record("cavity " + name, size, dtype, device, limit, work)
        for name, make in rivals.available().items():
            if device == "cpu" and not (name == "gpflow" and dtype == "float32"):  # its jitter fails there
                yield _step_record(name, size, dtype, device, limit, make(rows, size, dtype))


def _step_record(what: str, size: Size, dtype: str, device: str, limit: float, work: Callable[[], Any]) -> Record:
    times = milliseconds(work, REPEATS, device=device)
    floor = 1e-6 * size.step_flops() / limit
    share = round(floor / times["least_ms"], 3)
    return {"case": "step", "what": what, "dtype": dtype, "device": device, **size._asdict(), **times,
            "roofline_gflops": limit, "floor_ms": round(floor, 2), "share_of_roofline": share}  # fmt: skip


def cavity_step(method: str, rows: Rows, size: Size, dtype: str, device: str) -> Callable[[], torch.Tensor]:
    """One step as training makes it, the optimiser's included; a call gives θ after it."""
    kind = getattr(torch, dtype)
    model = start_model(
        RBF(), rows.X, size.C, rows.Z, 0.1, (True, True), (False, False), rivals.LENGTHSCALE, torch.device(device), kind
    )
    X = torch.as_tensor(rows.X, dtype=kind, device=device)
    y = torch.as_tensor(rows.y, device=device)
    data = ArrayData(X, y, torch.ones(len(X), dtype=torch.float64, device=device), size.C)
    plan = Plan("inner", size.B, 1, None, 0.0, 0.03 if method == "vi" else 1.0)
    trainer = Trainer(model, METHODS[method](), data, plan, HyperPrior(model, {}))
    theta, state = trainer.start()
    optimiser, batches = Adam(1e-3, decay=False), list(data.in_order(size.B))
    turn = 0

    def work() -> torch.Tensor:
        nonlocal theta, state, turn
        state, _, gradient = trainer.evaluate(theta, state, batches[turn % len(batches)], 0)
        theta, turn = optimiser.step(theta, gradient, 0.0), turn + 1
        return theta

    return work


def fit(size: Size, device: str) -> Iterator[Record]:
    """A whole fit of each method at the paper's settings: 300 rows of Waveform, M = 10 %, 250 iterations."""
    X, y = make_waveform(max(60, min(300, 30 * size.C)), random_state=0)
    for method in METHODS:
        started = time.perf_counter()
        model = GPClassifier.paper(method, random_state=0, device=device).fit(X, y)
        seconds = time.perf_counter() - started
        yield {"case": "fit", "what": method, "device": device, "rows": len(X), "seconds": round(seconds, 3),
               "iterations": model.n_iter_, "log_z": round(model.log_marginal_likelihood_, 3)}  # fmt: skip


def predict(size: Size, device: str) -> Iterator[Record]:
    """Rows a second of `predict_proba`, for images and for a small table."""
    small = Size(3, min(size.M, 100), size.B, 8)
    for shape in (size, small):
        rows = sparse_images(shape)
        model = GPClassifier(
            kernel=RBF(rivals.LENGTHSCALE), inducing_points=rows.Z, learn_kernel=False, learn_inducing=False,
            scaling=None, max_epochs=2, device=device,
        ).fit(rows.X, rows.y)  # fmt: skip
        X = np.resize(rows.X, (4 * len(rows.X), shape.D))
        times = milliseconds(partial(model.predict_proba, X), 5, 1)
        rate = round(1e3 * len(X) / times["least_ms"])
        yield {"case": "predict", "what": "cavity", "device": device, **shape._asdict(), "rows_per_second": rate,
               "peak_memory_mib": peak_memory()}  # fmt: skip


def peak_memory() -> int:
    """The most memory this process has held so far, in MiB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


CASES: dict[str, Callable[[Size, str], Iterator[Record]]] = {"step": step, "fit": fit, "predict": predict}
