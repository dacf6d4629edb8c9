"""Threads and memory allocator settings for the time of a fit."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

WORK_PER_THREAD = 200_000  # entries of a block: where a second thread begins to pay
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGEST_HEAP_BLOCK, KEPT_BYTES = 2**25, 2**30  # glibc allows no larger block on its heap


@contextmanager
def limit_threads(work: int) -> Iterator[None]:
    """Use one thread where a step is small: starting more costs more than it saves, far more on a busy machine.

    Args:
        work: entries of the largest block of a step.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < WORK_PER_THREAD else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep memory that one step frees for the next, without page faults: a quarter of the time of small steps.

    By default glibc returns free memory at the end of its heap to the system. On other systems this does nothing.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is None or not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(M_MMAP_THRESHOLD, LARGEST_HEAP_BLOCK)
    libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    try:
        yield
    finally:
        libc.mallopt(M_TRIM_THRESHOLD, 2 * LARGEST_HEAP_BLOCK)  # where glibc's own adjustment ends
        libc.malloc_trim(0)
