"""One mini-batch step of every method that has one, compared with rivals and the machine's roofline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import rivals
from benchmarks.measure import gigaflops, milliseconds, operations
from benchmarks.problems import Options, Problem, Size, Start, sparse_images
from benchmarks.records import Record
from cavity.data.training_data import ArrayData
from cavity.inference import METHODS
from cavity.kernels import RBF
from cavity.runtime.device import without_autograd
from cavity.runtime.threads import keep_freed_memory
from cavity.training.initial import initial_prior
from cavity.training.loop import Trainer, TrainingState
from cavity.training.optimizers import Adam
from cavity.training.parameters import HyperPrior
from cavity.training.plan import Plan

REPEATS = 15
TURNS, STEPS_OF_TURN = 5, 3  # of a comparison with a rival
STEPS = 32  # of an epoch
RATIO = "cpu_time_of_gpytorch"  # in the records of SEP on a CPU


class Work(NamedTuple):
    """Something to call, and how many steps a call makes."""

    call: Callable[[], Any]
    steps: int

    def milliseconds(self, repeats: int, device: str) -> dict[str, float]:
        """Return the median and the least time of a step."""
        times = milliseconds(self.call, repeats, device=device)
        return {name: round(value / self.steps, 3) for name, value in times.items()}


def measure(options: Options) -> Iterator[Record]:
    """Measure steps of cavity's methods and of the rivals, in both precisions."""
    size, device = options.size, options.device
    problem = sparse_images(size, STEPS)
    for dtype in (options.dtype,) if options.dtype else ("float64", "float32"):
        limit = gigaflops(1000 if size.M >= 100 else 100, getattr(torch, dtype), device)
        for name in ("sep", "ep", "vi"):
            with without_autograd(torch.device(device)), keep_freed_memory():  # as in `fit`
                work = cavity_step(name, problem, size, dtype, device)
                calls = {"operations": operations(work.call)} if device == "cpu" else {}
                found = _record("cavity " + name, size, dtype, device, limit, work) | calls
            if name == "sep" and device == "cpu" and "gpytorch" in rivals.available(dtype):
                found[RATIO] = cpu_time_ratio("gpytorch", size, dtype)
            yield found
        for name, make in rivals.available(dtype, device).items():
            start = Start(problem.Z, rivals.LENGTHSCALE)
            rival = make(problem.X, problem.y, start, dtype, device, options.rate)
            batch = rival.batch(np.arange(size.B))
            yield _record(name, size, dtype, device, limit, Work(partial(rival.step, batch), 1))


def cpu_time_ratio(rival: str, size: Size, dtype: str) -> float:
    """Return the CPU time of a SEP step over that of a rival, on one thread: the median of turns that alternate.

    Unlike the time of day it hardly depends on other programs, and so can be compared with earlier records.
    """
    problem, threads = sparse_images(size, STEPS), torch.get_num_threads()
    other = rivals.available(dtype)[rival](
        problem.X, problem.y, Start(problem.Z, rivals.LENGTHSCALE), dtype, "cpu", Options().rate
    )
    other_step = partial(other.step, other.batch(np.arange(size.B)))
    torch.set_num_threads(1)
    try:
        with without_autograd(torch.device("cpu")):
            own = cavity_step("sep", problem, size, dtype, "cpu")
        ratios = []
        for _ in range(TURNS):
            with without_autograd(torch.device("cpu")), keep_freed_memory():
                least = _least_cpu_seconds(own.call)
            ratios.append(least / _least_cpu_seconds(other_step))
    finally:
        torch.set_num_threads(threads)
    return round(median(ratios), 3)


def _least_cpu_seconds(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(STEPS_OF_TURN):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def _record(what: str, size: Size, dtype: str, device: str, limit: float, work: Work) -> Record:
    times = work.milliseconds(REPEATS, device)
    floor = 1e-6 * size.step_flops() / limit
    share = round(floor / times["least_ms"], 3)
    return {"case": "step", "what": what, "dtype": dtype, "device": device, **size._asdict(), **times,
            "roofline_gflops": limit, "floor_ms": round(floor, 2), "share_of_roofline": share}  # fmt: skip


def cavity_step(method: str, problem: Problem, size: Size, dtype: str, device: str) -> Work:
    """Build the steps that training makes, including those of the optimizer. A call returns θ.

    On a CPU a call makes one step; on a GPU, where steps are recorded as CUDA graphs, it makes an epoch.
    """
    kind = getattr(torch, dtype)
    model = initial_prior(RBF(), problem.X, size.C, problem.Z, 0.1, (True, True), (False, False), rivals.LENGTHSCALE,
                        torch.device(device), kind)  # fmt: skip
    X = torch.as_tensor(problem.X, dtype=kind, device=device)
    y = torch.as_tensor(problem.y, device=device)
    data = ArrayData(X, y, torch.ones(len(X), dtype=torch.float64, device=device), size.C)
    plan = Plan("inner", size.B, 1, None, 0.0, 0.03 if method == "vi" else 1.0)
    trainer = Trainer(model, METHODS[method](), data, plan, HyperPrior(model, {}))
    optimizer = Adam(1e-3, decay=False, n_rows=len(problem.X))
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
