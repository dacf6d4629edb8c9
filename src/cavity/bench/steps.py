"""One mini-batch step of every method that has one, beside the rivals and the machine's own limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from cavity.bench import rivals
from cavity.bench.problems import Options, Rows, Size, Start, sparse_images
from cavity.bench.timing import gigaflops, milliseconds, operations
from cavity.data import ArrayData
from cavity.inference import METHODS
from cavity.kernels import RBF
from cavity.records import Record
from cavity.runtime.device import untraced
from cavity.runtime.threads import kept_memory
from cavity.training import Adam, HyperPrior, Plan, Trainer, TrainingState, initial_prior

REPEATS = 15
STEPS = 32  # of an epoch


class Work(NamedTuple):
    """Something to call, and how many steps a call makes."""

    call: Callable[[], Any]
    steps: int

    def milliseconds(self, repeats: int, device: str) -> dict[str, float]:
        """Median and least time of a step."""
        times = milliseconds(self.call, repeats, device=device)
        return {name: round(value / self.steps, 3) for name, value in times.items()}


def step(options: Options) -> Iterator[Record]:
    """A mini-batch step of every method that has one, beside the rivals and the roofline."""
    size, device = options.size, options.device
    rows = sparse_images(size, STEPS)
    for dtype in options.dtypes("float64", "float32"):
        limit = gigaflops(1000 if size.M >= 100 else 100, getattr(torch, dtype), device)
        for name in ("sep", "ep", "vi"):
            with untraced(torch.device(device)), kept_memory():  # as in `fit`
                work = cavity_step(name, rows, size, dtype, device)
                calls = {"operations": operations(work.call)} if device == "cpu" else {}
                yield _record("cavity " + name, size, dtype, device, limit, work) | calls
        for name, make in rivals.available(dtype, device).items():
            rival = make(rows.X, rows.y, Start(rows.Z, rivals.LENGTHSCALE), dtype, device, options.rate)
            batch = rival.batch(np.arange(size.B))
            yield _record(name, size, dtype, device, limit, Work(partial(rival.step, batch), 1))


def _record(what: str, size: Size, dtype: str, device: str, limit: float, work: Work) -> Record:
    times = work.milliseconds(REPEATS, device)
    floor = 1e-6 * size.step_flops() / limit
    share = round(floor / times["least_ms"], 3)
    return {"case": "step", "what": what, "dtype": dtype, "device": device, **size._asdict(), **times,
            "roofline_gflops": limit, "floor_ms": round(floor, 2), "share_of_roofline": share}  # fmt: skip


def cavity_step(method: str, rows: Rows, size: Size, dtype: str, device: str) -> Work:
    """Steps as training makes them, the optimizer's included: one at a time, on a GPU an epoch; a call gives θ."""
    kind = getattr(torch, dtype)
    model = initial_prior(
        RBF(), rows.X, size.C, rows.Z, 0.1, (True, True), (False, False), rivals.LENGTHSCALE, torch.device(device), kind
    )
    X = torch.as_tensor(rows.X, dtype=kind, device=device)
    y = torch.as_tensor(rows.y, device=device)
    data = ArrayData(X, y, torch.ones(len(X), dtype=torch.float64, device=device), size.C)
    plan = Plan("inner", size.B, 1, None, 0.0, 0.03 if method == "vi" else 1.0)
    trainer = Trainer(model, METHODS[method](), data, plan, HyperPrior(model, {}))
    optimizer = Adam(1e-3, decay=False, n_rows=len(rows.X))
    theta, state = trainer.start()
    turn, batches = 0, list(data.in_order(size.B))

    def one() -> torch.Tensor:
        nonlocal theta, state, turn
        state, _, gradient = trainer.evaluate(theta, state, batches[turn % len(batches)], 0)
        theta, turn = optimizer.step(theta, gradient, 0.0), turn + 1
        return theta

    course = TrainingState(theta, state)

    def epoch() -> torch.Tensor:
        course.step = 0
        trainer.epoch(course, optimizer)
        return course.theta

    return Work(epoch, len(batches)) if device.startswith("cuda") else Work(one, 1)
