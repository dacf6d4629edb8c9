"""Rows held out to score a model, and how they are recognized later.

Rows are identified by their values alone. So the same rows are held out, and recognized, in any order and whether they
come from CSV or Parquet; and equal rows are nearly always on the same side.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import label_text
from cavity.data.source import Source

Mask = NDArray[np.bool_]
Keys = NDArray[np.uint64]


def row_keys(cells: NDArray[Any], y: NDArray[Any]) -> Keys:
    """Hash each row of cells, (N, D), with its label to a number."""
    cells = np.ascontiguousarray(cells + 0.0 if cells.dtype.kind == "f" else cells)  # no negative zeros
    distinct, index = np.unique(y, return_inverse=True)
    starts = [hashlib.blake2b(label_text(label).encode(), digest_size=8) for label in distinct]

    def key(start: Any, row: NDArray[Any]) -> int:
        found = start.copy()
        found.update(row.data)
        return int.from_bytes(found.digest(), "little")

    found = (key(starts[k], row) for k, row in zip(index.ravel(), cells, strict=True))
    return np.fromiter(found, dtype=np.uint64, count=len(cells))


def digest(keys: Keys) -> str:
    """Identify a set of rows in any order."""
    return hashlib.blake2b(np.sort(keys).tobytes(), digest_size=16).hexdigest()


def files_digest(source: Source) -> str:
    """Identify files that are too large to look at every row, by their names, sizes and columns."""
    facts = json.dumps(source.fingerprint(), sort_keys=True).encode()
    return hashlib.blake2b(facts, digest_size=16).hexdigest()


def hold_out(keys: Keys, y: NDArray[Any], fraction: float, seed: int) -> Mask:
    """Select a fraction of the rows of each label at random; at least one row of each label stays.

    >>> y = np.array(["a"] * 10 + ["b"] * 5)
    >>> held = hold_out(np.arange(15, dtype=np.uint64), y, 0.2, seed=0)
    >>> int(held[:10].sum()), int(held[10:].sum())
    (2, 1)
    """
    odd = np.random.default_rng(seed).integers(2**63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    order, held = keys * odd, np.zeros(len(y), dtype=bool)  # every odd number gives another order
    for label in np.unique(y):
        own = np.flatnonzero(y == label)
        count = min(int(np.floor(fraction * len(own) + 0.5)), len(own) - 1)
        held[own[np.argsort(order[own], kind="stable")[:count]]] = True
    return held


def recognize(cells: NDArray[Any], y: NDArray[Any], metrics: dict[str, Any]) -> Mask | None:
    """Return which rows were held out, if these are the rows of the fit by the model's metrics; None if not."""
    kept = metrics.get("holdout")
    if not isinstance(kept, dict) or kept.get("digest") is None:
        return None
    keys = row_keys(cells, y)
    if digest(keys) != kept["digest"]:
        return None
    return hold_out(keys, y, float(kept["share"]), int(kept["seed"]))
