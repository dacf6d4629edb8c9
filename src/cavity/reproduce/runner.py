"""Fits in several processes, each record appended as it comes: a run that is stopped goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import torch
from tqdm import tqdm

from cavity.records import Record, append, machine, read
from cavity.reproduce.experiment import RESULTS, Config, Job, the

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
WATCH_SECONDS = 1.0
BAR = "{desc}: {percentage:3.0f}%|{bar}|{postfix} [{elapsed}<{remaining}]"


def missing(name: str, config: Config, only: dict[str, set[str]], out: Path) -> list[Job]:
    """The jobs that have no record yet, those that take longest first, so that no processor idles at the end."""
    jobs = the(name).jobs(config)
    _check(only, jobs)
    wanted = [job for job in jobs if all(str(job[name]) in values for name, values in only.items())]
    done = {_key(record, jobs[0]) for record in read(out / RESULTS)}
    return sorted((job for job in wanted if _key(job, jobs[0]) not in done), key=the(name).cost, reverse=True)


def run_missing(name: str, jobs: Sequence[Job], out: Path, n_processes: int, most_threads: int | None = None) -> None:
    """Make the fits, the cores shared among the processes; on Ctrl-C those under way are lost and no others."""
    threads = max(1, min((os.cpu_count() or 1) // n_processes, most_threads or sys.maxsize))

    def cost(job: Job) -> int:
        return max(1, round(100 * the(name).cost(job)))  # whole numbers add up to their sum

    with (
        _threads(threads),
        ProcessPoolExecutor(n_processes, get_context("spawn"), _prepare, (threads, os.getpid())) as pool,
        tqdm(total=sum(map(cost, jobs)), desc=name, bar_format=BAR) as bar,
    ):
        futures = {pool.submit(_run, name, job): job for job in jobs}
        try:
            _collect(futures, out, bar, cost)
        except BaseException:
            _stop(pool)
            raise


def _collect(futures: dict[Future[Record], Job], out: Path, bar: tqdm, cost: Callable[[Job], int]) -> None:
    for count, future in enumerate(as_completed(futures), start=1):
        append(out / RESULTS, future.result())
        bar.set_postfix_str(f"{count} of {len(futures)} fits", refresh=False)
        bar.update(cost(futures[future]))


def _run(name: str, job: Job) -> Record:
    found = job | the(name).run(job)
    on_gpu = found.get("device") != "cpu" and torch.cuda.is_initialized()
    return found | machine("cuda" if on_gpu else "cpu")


def _prepare(threads: int, parent: int) -> None:
    """In a new process: its share of the processors, Ctrl-C left to the parent, and an end when that one ends."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the processes at once: what they are at can be done again."""
    for process in list(pool._processes.values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Libraries read the number of their threads when they are loaded, so new processes must find it set."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(count)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _check(only: dict[str, set[str]], jobs: Sequence[Job]) -> None:
    """Raise where `only` names what no fit has."""
    for name, values in only.items():
        if name not in jobs[0]:
            raise ValueError(f"--only {name}=…: fits have {', '.join(jobs[0])}")
        known = {str(job[name]): None for job in jobs}
        if unknown := sorted(values - set(known)):
            raise ValueError(f"--only {name}={','.join(unknown)}: fits have {', '.join(known)}")


def _key(record: Record, like: Job) -> str:
    return json.dumps([record.get(name) for name in like])
