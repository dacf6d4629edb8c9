"""Work in a fresh process, so that the most memory it holds is its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from cavity.records import Record


def in_child(work: Callable[..., Record], *arguments: Any, device: str) -> Record:
    """The record that `work` makes in a process of its own, with the most memory that this one held.

    `work` and its arguments travel by pickle, so `work` is a function of a module.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_call, work, arguments, torch.get_num_threads(), device).result()


def _call(work: Callable[..., Record], arguments: tuple[Any, ...], threads: int, device: str) -> Record:
    torch.set_num_threads(threads)
    return work(*arguments) | {"peak_memory_mib": peak_memory(device)}


def peak_memory(device: str = "cpu") -> int:
    """The most memory this process has held so far, in MiB; on a GPU what torch held there."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() // 2**20
    return _high_water()


def _high_water() -> int:
    """Linux keeps the mark of getrusage across the start of another program, and with it that of the parent."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 2**10
    import resource  # not on Windows

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
