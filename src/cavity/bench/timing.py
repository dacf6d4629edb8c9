"""Wall-clock time on machines that do other things too."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def milliseconds(work: Callable[[], Any], repeats: int, warm_up: int = 3, device: str = "cpu") -> dict[str, float]:
    """Median and least time of one call; the least is the machine undisturbed."""
    for _ in range(warm_up):
        work()
    times = [once(work, device) for _ in range(repeats)]
    return {"median_ms": round(1e3 * statistics.median(times), 3), "least_ms": round(1e3 * min(times), 3)}


def once(work: Callable[[], Any], device: str = "cpu") -> float:
    """Seconds of one call."""
    _wait(device)
    started = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def gigaflops(n: int, dtype: torch.dtype, device: str, repeats: int = 10) -> float:
    """What the machine does in products of n × n matrices: the roofline of everything here."""
    a, b = (torch.randn(n, n, dtype=dtype, device=device) for _ in range(2))
    least = milliseconds(lambda: torch.matmul(a, b), repeats, device=device)["least_ms"]
    return round(2e-6 * n**3 / least, 1)


class _Count(TorchDispatchMode):
    """Counts what reaches torch's kernels; a view does not."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found += not func.is_view
        return func(*args, **(kwargs or {}))


def operations(work: Callable[[], Any]) -> int:
    """How many tensor operations a call makes: what small problems are bound by."""
    with _Count() as count:
        work()
    return count.found
