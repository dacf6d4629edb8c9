"""Threads and memory allocator settings for the time of a fit.

They belong to the process, so fits in several Python threads share them: the first changes, the last restores.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import wraps
from pathlib import Path

import torch
from joblib import cpu_count
from threadpoolctl import threadpool_limits

WORK_PER_THREAD = 200_000  # entries of a block: where a second thread begins to pay
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGEST_HEAP_BLOCK, KEPT_BYTES = 2**25, 2**30  # glibc allows no larger block on its heap
LOOK_SECONDS, LEAST_IDLE = 0.1, 0.3  # before a fit: how long to look for an idle processor; the idle part of one
TRIAL_SECONDS = 0.1  # of spinning, after which the time that threads waited for a processor is checked
MAX_WAITING = 0.1  # share of a trial that a thread may wait for a processor
SLEEP_SECONDS, MAX_SLEEP_SECONDS = 1.0, 8.0  # without spinning after a failed trial: the first time, and at most
PARALLEL_ENTRIES = 2**16  # of a tensor that torch divides among threads


def _shared(change: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
    """Make a context of a process-wide change that any number of threads can be in at once."""
    lock, users, undo = threading.Lock(), 0, ExitStack()

    @contextmanager
    @wraps(change)
    def context() -> Iterator[None]:
        nonlocal users
        with lock:
            if users == 0:
                undo.enter_context(contextmanager(change)())
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if users == 0:
                    undo.close()

    return context


# --- Number of threads ---

_lock = threading.Lock()
_counts: list[int] = []  # threads of each running fit
_count_before = 1  # threads of torch before the first of them


@contextmanager
def limit_threads(work: int) -> Iterator[None]:
    """Use one thread where a step is small, and never more than the processors that this process is granted.

    If all of these are busy, use one thread too: several would wait for each other most of the time.

    torch's number of threads is that of the calling Python thread; new threads and MKL have a common one, which is the
    largest of the running fits.

    Args:
        work: entries of the largest block of a step.
    """
    global _count_before
    has_one = cpu_count() == 1 or (torch.get_num_threads() == 1 and not _counts)
    is_one = work < WORK_PER_THREAD or has_one or _all_are_busy()
    with _lock:
        if not _counts:
            _count_before = torch.get_num_threads()
        count = 1 if is_one else min(_count_before, cpu_count())
        _counts.append(count)
        _set_threads(count, max(_counts))
    try:
        with spin_when_idle() if count > 1 else nullcontext():
            yield
    finally:
        with _lock:
            _counts.remove(count)
            _set_threads(_count_before, max(_counts, default=_count_before))


def _all_are_busy() -> bool:
    """Watch the processors of this process for a moment: whether other work keeps each of them busy."""
    before = _idle_seconds()
    time.sleep(LOOK_SECONDS)
    idle = [after - before[name] for name, after in _idle_seconds().items() if name in before]
    return bool(idle) and max(idle) < LEAST_IDLE * LOOK_SECONDS


def _idle_seconds() -> dict[str, float]:
    """Return the time that each processor of this process has been idle; empty where it is unknown."""
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        own, ticks = {f"cpu{i}" for i in os.sched_getaffinity(0)}, os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError):
        return {}
    return {line[0]: (int(line[4]) + int(line[5])) / ticks for line in lines if line and line[0] in own}


def _set_threads(own: int, common: int) -> None:
    torch.set_num_threads(own)
    if common != own:
        other = threading.Thread(target=torch.set_num_threads, args=(common,))  # keeps the number of this one
        other.start()
        other.join()


# --- Waiting ---


def spin_when_idle() -> AbstractContextManager[None]:
    """Let OpenMP threads spin while they wait for each other only as long as each has a processor of its own.

    Spinning is fastest on an idle machine. On a busy one a spinning thread holds the processor that the others wait
    for, and a fit takes ten times as long. The number of threads, and so every bit of the result, stays the same.
    """
    return _watch_contention() if sys.platform == "linux" and torch.get_num_threads() > 1 else nullcontext()


@_shared
def _watch_contention() -> Iterator[None]:
    done = threading.Event()
    watch = threading.Thread(target=_adapt_spinning, args=(done,), name="cavity-spin", daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _adapt_spinning(done: threading.Event) -> None:
    """Try spinning; if a thread had to wait for a processor, stop it for a while and try again."""
    sleep = SLEEP_SECONDS
    while not done.is_set():
        before, began = _waited_ns(), time.monotonic_ns()
        if done.wait(TRIAL_SECONDS):
            return
        elapsed, waited = time.monotonic_ns() - began, _waited_ns()
        longest = max((waited[task] - before[task] for task in waited.keys() & before.keys()), default=math.inf)
        if longest <= MAX_WAITING * elapsed:
            sleep = SLEEP_SECONDS
            continue
        with _without_spinning():
            done.wait(sleep)
        sleep = min(2 * sleep, MAX_SLEEP_SECONDS)


def _waited_ns() -> dict[str, int]:
    """Return the time that each thread of this process has waited for a processor; empty where it is unknown."""
    found = {}
    with suppress(OSError):
        for task in os.listdir("/proc/self/task"):
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
                found[task] = int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[1])
    return found


@contextmanager
def _without_spinning() -> Iterator[None]:
    """Make GNU OpenMP, which torch uses on Linux, believe that it has more threads than processors.

    Threads then sleep instead of spinning: the one way to change this after the library is loaded. Each of our Python
    threads starts a pool of OpenMP threads, which sleep too.
    """
    done, count = threading.Event(), max(torch.get_num_threads(), 2)

    def hold_pool() -> None:
        torch.ones(PARALLEL_ENTRIES).add_(1.0)
        done.wait()

    pools = (len(os.sched_getaffinity(0)) - count) // (count - 1) + 1
    holders = [threading.Thread(target=hold_pool, daemon=True) for _ in range(max(pools, 1))]
    for holder in holders:
        holder.start()
    try:
        yield
    finally:
        done.set()
        for holder in holders:
            holder.join()


@_shared
def one_blas_thread() -> Iterator[None]:
    """Give NumPy and SciPy one thread: theirs, waiting for work, would take the processors from torch's.

    threadpoolctl obeys only the Python thread that set a limit first: a thread of our own sets it and restores it.
    """
    limited, done = threading.Event(), threading.Event()

    def hold_limit() -> None:
        with threadpool_limits(1, user_api="blas"):
            limited.set()
            done.wait()

    holder = threading.Thread(target=hold_limit, daemon=True)
    holder.start()
    limited.wait()
    try:
        yield
    finally:
        done.set()
        holder.join()


# --- Memory ---


@_shared
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
