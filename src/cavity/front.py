"""Between the user's arguments and the tensors: rows, labels, weights, seeds, devices, threads, memory, progress."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from tqdm import tqdm

from cavity.training import Record

Array = NDArray[np.float64]

MERGE_ROWS = 10_000
WORK_PER_THREAD = 200_000  # entries of a block: where a second thread begins to pay
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
LARGEST_HEAP_BLOCK, KEPT_BYTES = 2**25, 2**30  # glibc allows no larger block on its heap

NOW_AND_THEN = 30.0  # seconds between lines about progress, at most
MORE_FITS = re.compile(r"(\d+) more fits")  # an event that takes longer than the fit itself

DTYPES = {"float64": torch.float64, "float32": torch.float32}


class Rows(NamedTuple):
    """Validated training rows: labels encoded as 0 … C−1, weights positive."""

    X: Array
    y: NDArray[np.int64]
    weight: Array

    def take(self, places: NDArray[np.int64]) -> Rows:
        """Some of them."""
        return Rows(self.X[places], self.y[places], self.weight[places])

    def fingerprint(self) -> dict[str, Any]:
        """What tells these rows from others."""
        found = hashlib.blake2b(digest_size=16)
        for part in self:
            found.update(np.ascontiguousarray(part).view(np.uint8).data)
        return {"rows": len(self.X), "features": self.X.shape[1], "digest": found.hexdigest()}


@contextmanager
def progress(title: str, max_epochs: int, verbose: int) -> Iterator[Callable[[Record], None] | None]:
    """On a terminal a bar that moves with the records, elsewhere a line now and then; nothing where `verbose` is 0."""
    if not verbose:
        yield None
        return
    shown = _Bar(title, max_epochs, verbose) if is_live() else _Lines(title, max_epochs, verbose)
    try:
        yield shown.report
    finally:
        shown.close()


def is_live() -> bool:
    """Whether a line on stderr can be written over."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class _Bar:
    """A bar with the time left."""

    def __init__(self, title: str, max_epochs: int, verbose: int) -> None:
        self._bar, self._verbose = tqdm(total=max_epochs, desc=title, unit="epoch"), verbose
        self._started = time.monotonic()

    def report(self, record: Record) -> None:
        if not self._bar.n:
            self._bar.initial = record["epoch"] - 1  # what was done before a checkpoint tells nothing of the pace
        if self._verbose > 1:
            self._bar.write(_line(record), file=sys.stderr)
        elif record["event"] is not None:
            self._bar.write(_event(record, time.monotonic() - self._started), file=sys.stderr)
        self._bar.update(record["epoch"] - self._bar.n)
        if record["objective"] is not None:
            self._bar.set_postfix(objective=f"{record['objective']:.1f}", refresh=False)

    def close(self) -> None:
        self._bar.total = self._bar.n  # it may settle before its last epoch
        self._bar.refresh()
        self._bar.close()


class _Lines:
    """A line for each tenth of the epochs, and where these take long for each half minute; none is written over."""

    def __init__(self, title: str, max_epochs: int, verbose: int) -> None:
        self._title, self._max, self._verbose = title, max_epochs, verbose
        self._started = self._last = time.monotonic()
        self._first: int | None = None  # epoch
        self._tenth, self._unsaid = 0, ""

    def report(self, record: Record) -> None:
        now, epoch = time.monotonic(), record["epoch"]
        self._first = epoch - 1 if self._first is None else self._first
        if self._verbose > 1 or record["event"] is not None:
            self._say(_line(record) if self._verbose > 1 else _event(record, now - self._started), now)
            return
        self._unsaid = f"{self._title}: {self._where(record, now - self._started)}"
        tenth = 10 * epoch // max(self._max, 1)
        if tenth > self._tenth or now - self._last >= NOW_AND_THEN:
            self._tenth = tenth
            self._say(self._unsaid, now)

    def close(self) -> None:
        if self._unsaid:  # it may settle before its last epoch
            self._say(self._unsaid, time.monotonic())

    def _where(self, record: Record, seconds: float) -> str:
        epoch, first = record["epoch"], self._first or 0
        left = seconds / max(epoch - first, 1) * max(self._max - epoch, 0)
        objective = "" if record["objective"] is None else f", objective={record['objective']:.1f}"
        return f"epoch {epoch} of {self._max}{objective}, {clock(seconds)} gone, {clock(left)} left at most"

    def _say(self, text: str, now: float) -> None:
        print(text, file=sys.stderr, flush=True)
        self._last, self._unsaid = now, ""


def _event(record: Record, seconds: float) -> str:
    """What happened; of further fits how long they may take, when this one took so many seconds."""
    more = MORE_FITS.search(record["event"])
    longer = f", about {clock((int(more[1]) - 1) * seconds)} more" if more else ""  # each on a fold less than all rows
    return f"epoch {record['epoch']}: {record['event']}{longer}"


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def _line(record: Record) -> str:
    return "  ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items())


def choose_device(name: str) -> torch.device:
    """The device called `name`; "auto" is a GPU where there is one."""
    if name == "auto":
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={name!r} cannot be used ({error}); 'auto', 'cpu' or 'cuda' may be") from None


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """One thread where a step is small: starting more costs more than it saves, far more on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if work < WORK_PER_THREAD else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def untraced(device: torch.device) -> torch.inference_mode:
    """Small operations take a quarter less time where nothing can be traced; a GPU replays them anyway."""
    return torch.inference_mode(device.type == "cpu")


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


def large_sums() -> np.errstate:
    """scikit-learn tests for NaN and infinity by a sum first, which finite numbers near the largest may overflow."""
    return np.errstate(over="ignore", invalid="ignore")


def draw_seed(random_state: Any) -> int:
    """A seed from anything that scikit-learn takes for `random_state`."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise ValueError(f"random_state={random_state!r} cannot be used; "
                         "None, an int in [0, 2**32) or a numpy RandomState is needed") from None  # fmt: skip


def class_weights(class_weight: Any, y: NDArray[Any]) -> Array:
    """The weight that each row has for its label."""
    if not (class_weight is None or isinstance(class_weight, (str, dict))):
        raise TypeError(f"class_weight={class_weight!r} cannot be used; 'balanced', a dict or None is needed")
    weight = compute_sample_weight(class_weight, y)
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError(f"class_weight={class_weight!r} gives a row the weight {weight.min()}; "
                         "finite numbers at or above 0 are needed")  # fmt: skip
    return weight


def weights_of_classes(class_weight: Any, classes: NDArray[Any], counts: NDArray[np.int64]) -> Array:
    """The weight of a row of each class, where so many rows of each are known of."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        return counts.sum() / (len(classes) * counts.clip(min=1).astype(np.float64))
    return class_weights(class_weight, classes)


def encode(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Labels as places in `classes`, which is sorted."""
    place = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    unknown = classes[place] != y
    if unknown.any():
        raise ValueError(f"y holds the label {y[unknown][0]!r}, which is not among classes={classes!r}")
    return place.astype(np.int64)


def merge_equal_rows(rows: Rows) -> Rows:
    """Equal rows with equal labels become one row of their joint weight, in an order of its own.

    So copies and weights, and rows in any order, give the same fit to the last bit. Large sets are left as they are.
    """
    if len(rows.X) > MERGE_ROWS:
        return rows
    table = np.column_stack([rows.X, rows.y])
    distinct, place = np.unique(table, axis=0, return_inverse=True)
    weight = np.bincount(place.ravel(), weights=rows.weight).astype(np.float64)
    return Rows(distinct[:, :-1], distinct[:, -1].astype(np.int64), weight)
