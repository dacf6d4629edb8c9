"""Wall-clock time on machines that do other things too."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch


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
