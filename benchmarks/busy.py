"""Fits beside processes that keep processors busy, relative to an idle machine of two processors."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.problems import Options
from benchmarks.records import Record
from cavity.classifier import GPClassifier

PROCESSORS = 2
BUSY = (0, 1, 2)  # processes beside the fit
TURNS = 3
SIZES = {
    "small": {"C": 3, "M": 50, "B": 200, "epochs": 30},
    "medium": {"C": 10, "M": 100, "B": 250, "epochs": 10},
    "large": {"C": 10, "M": 200, "B": 1000, "epochs": 2},
}
STEPS = 10  # of an epoch
LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"  # ends if the benchmark is killed
ROOT = Path(__file__).parents[1]
FIT = ("fit", "digits-train.csv", "--target", "digit", "--epochs", "20", "-o", "digits.cavity", "--quiet")
COMMANDS = {"cavity fit": FIT, "cavity demo": ("demo",)}


def measure(options: Options) -> Iterator[Record]:
    """Measure the median seconds of fits and commands beside 0, 1 and 2 busy processes, in turns."""
    with two_processors(), tempfile.TemporaryDirectory() as folder:
        command_line("demo", "--files", ".", folder=folder)
        works: dict[str, Callable[[], float]] = {name: partial(_fit_seconds, size) for name, size in SIZES.items()}
        works |= {name: partial(_seconds, *arguments, folder=folder) for name, arguments in COMMANDS.items()}
        for name, work in works.items():
            if options.selects(name):
                yield from _records(name, work)


def _records(name: str, work: Callable[[], float]) -> Iterator[Record]:
    times: dict[int, list[float]] = {count: [] for count in BUSY}
    for _ in range(TURNS):
        for count, found in times.items():
            with busy_processes(count):
                found.append(work())
    medians = {count: statistics.median(found) for count, found in times.items()}
    for count, seconds in medians.items():
        sizes = {key: value for key, value in SIZES.get(name, {}).items() if key != "epochs"}
        yield {"case": "busy", "what": name, **sizes, "busy": count, "processors": PROCESSORS,
               "seconds": round(seconds, 2), "ratio": round(seconds / medians[0], 2)}  # fmt: skip


@contextmanager
def two_processors() -> Iterator[None]:
    """Keep this process and those it starts on two processors, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:PROCESSORS])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run processes that do nothing but take time."""
    started = [subprocess.Popen([sys.executable, "-c", LOOP, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def command_line(*arguments: str, folder: str) -> None:
    """Run a command of cavity in a folder."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command, environment = [sys.executable, "-m", "cavity", *arguments], os.environ | {"PYTHONPATH": paths}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def _seconds(*arguments: str, folder: str) -> float:
    began = time.perf_counter()
    command_line(*arguments, folder=folder)
    return time.perf_counter() - began


def _fit_seconds(size: dict[str, int]) -> float:
    command = [sys.executable, "-m", "benchmarks.busy", json.dumps(size)]
    return float(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)


def fit_seconds(size: dict[str, int]) -> float:
    """Return the seconds of a fit after a short one, which starts the threads."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((STEPS * size["B"], 10)), rng.integers(0, size["C"], STEPS * size["B"])
    model = GPClassifier("sep", n_inducing=size["M"], batch_size=size["B"], max_epochs=1, tol=0.0, calibrate=False,
                         init="random", random_state=0, device="cpu").fit(X, y)  # fmt: skip
    began = time.perf_counter()
    model.set_params(max_epochs=size["epochs"]).fit(X, y)
    return time.perf_counter() - began


if __name__ == "__main__":
    print(fit_seconds(json.loads(sys.argv[1])))
