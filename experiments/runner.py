"""Fits in several processes. Each record is appended as soon as its fit ends, so a stopped run can be resumed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.records import Record, append, machine, read
from experiments.experiment import RESULTS, Config, Job, key, load

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
WATCH_SECONDS = 1.0
BAR = "{desc}: {percentage:3.0f}%|{bar}|{postfix} [{elapsed}<{remaining}]"


def missing(name: str, config: Config, only: dict[str, set[str]], out: Path) -> list[Job]:
    """List the jobs without a record. The longest come first, so that no processor idles at the end.

    Args:
        name: the experiment.
        config: its settings.
        only: values to select by, for some entries of a job; empty for all jobs.
        out: the folder with the records.

    Raises:
        ValueError: if `only` names an entry or a value that no job has.
    """
    experiment = load(name)
    jobs = experiment.jobs(config)
    for entry, values in only.items():
        if entry not in jobs[0]:
            raise ValueError(f"--only {entry}=…: fits have {', '.join(jobs[0])}")
        known = {str(job[entry]): None for job in jobs}
        if unknown := sorted(values - set(known)):
            raise ValueError(f"--only {entry}={','.join(unknown)}: fits have {', '.join(known)}")
    done = {key(record, jobs[0]) for record in read(out / RESULTS)}
    selected = [job for job in jobs if all(str(job[entry]) in values for entry, values in only.items())]
    return sorted((job for job in selected if key(job, jobs[0]) not in done), key=experiment.cost, reverse=True)


def run_missing(name: str, jobs: Sequence[Job], out: Path, n_processes: int, max_threads: int | None = None) -> None:
    """Make the fits and append their records. The processes share the cores; Ctrl-C loses only the fits in progress."""
    threads = max(1, min((os.cpu_count() or 1) // n_processes, max_threads or sys.maxsize))
    # Whole numbers, because floats need not add up to their sum.
    costs = [max(1, round(100 * load(name).cost(job))) for job in jobs]
    with (
        _thread_variables(threads),
        ProcessPoolExecutor(n_processes, get_context("spawn"), _prepare, (threads, os.getpid())) as pool,
        tqdm(total=sum(costs), desc=name, bar_format=BAR) as bar,
    ):
        futures = {pool.submit(_run, name, job): cost for job, cost in zip(jobs, costs, strict=True)}
        try:
            for count, future in enumerate(as_completed(futures), start=1):
                append(out / RESULTS, future.result())
                bar.set_postfix_str(f"{count} of {len(futures)} fits", refresh=False)
                bar.update(futures[future])
        except BaseException:
            for process in list(pool._processes.values()):
                process.terminate()  # their fits can be repeated
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(name: str, job: Job) -> Record:
    record = job | load(name).run(job)
    on_gpu = record.get("device") != "cpu" and torch.cuda.is_initialized()
    return record | machine("cuda" if on_gpu else "cpu")


def _prepare(threads: int, parent: int) -> None:
    """Set up a new process: its share of the cores; Ctrl-C is left to the parent; it ends when the parent ends."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


@contextmanager
def _thread_variables(count: int) -> Iterator[None]:
    """Set the number of threads for new processes: libraries read it when they are loaded."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(count)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
