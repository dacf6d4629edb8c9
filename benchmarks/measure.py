"""Time, floating-point rate, operations and memory of a piece of work."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.records import Record


def milliseconds(work: Callable[[], Any], repeats: int, warm_up: int = 3, device: str = "cpu") -> dict[str, float]:
    """Return the median and the least time of one call. The least is that of an undisturbed machine."""
    for _ in range(warm_up):
        work()
    times = [seconds_of(work, device) for _ in range(repeats)]
    return {"median_ms": round(1e3 * statistics.median(times), 3), "least_ms": round(1e3 * min(times), 3)}


def seconds_of(work: Callable[[], Any], device: str = "cpu") -> float:
    """Return the seconds of one call."""
    _synchronize(device)
    started = time.perf_counter()
    work()
    _synchronize(device)
    return time.perf_counter() - started


def _synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def gigaflops(n: int, dtype: torch.dtype, device: str, repeats: int = 10) -> float:
    """Return the machine's rate in products of n × n matrices, the roofline of all benchmarks."""
    a, b = (torch.randn(n, n, dtype=dtype, device=device) for _ in range(2))
    least = milliseconds(lambda: torch.matmul(a, b), repeats, device=device)["least_ms"]
    return round(2e-6 * n**3 / least, 1)


class _OperationCounter(TorchDispatchMode):
    """Counts the operations that reach torch's kernels. Views do not."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def operations(work: Callable[[], Any]) -> int:
    """Count the tensor operations of a call, which limit the speed of small problems."""
    with _OperationCounter() as counter:
        work()
    return counter.count


def in_child(work: Callable[..., Record], *arguments: Any, device: str) -> Record:
    """Run `work` in a fresh process, and add the peak memory of that process to its record.

    `work` and its arguments are pickled, so `work` must be a function of a module.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_call, work, arguments, torch.get_num_threads(), device).result()


def _call(work: Callable[..., Record], arguments: tuple[Any, ...], threads: int, device: str) -> Record:
    torch.set_num_threads(threads)
    return work(*arguments) | {"peak_memory_mib": peak_memory(device)}


def peak_memory(device: str = "cpu") -> int:
    """Return the peak memory of this process in MiB: resident memory, or on a GPU what torch allocated there."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() // 2**20
    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage would include the peak of the parent
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 2**10
    import resource  # not on Windows

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
