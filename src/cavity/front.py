"""Between the user's arguments and the tensors: rows, labels, weights, seeds, devices, threads, memory, progress."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
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
    """A bar that moves with the records; nothing at all where `verbose` is 0."""
    if not verbose:
        yield None
        return
    with tqdm(total=max_epochs, desc=title, unit="epoch", leave=True) as bar:

        def report(record: Record) -> None:
            if verbose > 1:
                bar.write(_line(record), file=sys.stderr)
            elif record["event"] is not None:
                bar.write(f"epoch {record['epoch']}: {record['event']}", file=sys.stderr)
            bar.update(record["epoch"] - bar.n)
            if record["objective"] is not None:
                bar.set_postfix(objective=f"{record['objective']:.1f}", refresh=False)

        yield report
        bar.total = bar.n  # it may settle before its last epoch
        bar.refresh()


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
