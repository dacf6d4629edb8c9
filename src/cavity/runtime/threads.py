"""Threads and the memory allocator, set for the time of a fit."""

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
def threads_for(work: int) -> Iterator[None]:
    """One thread where a step is small: starting more costs more than it saves, far more on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < WORK_PER_THREAD else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def kept_memory() -> Iterator[None]:
    """What one step frees the next one gets, with no page fault between: a quarter of the time of small steps.

    By default glibc hands free memory at the end of its heap back to the system. Elsewhere this does nothing.
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
