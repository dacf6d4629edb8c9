"""Rows that are kept back to score a model by, and how the same rows are known again later.

Rows are told apart by their values alone. So the same ones are held out, and found again, in whatever order they stand
and whether they come as CSV or as Parquet; and equal rows are nearly always on the same side.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.cli.labels import word
from cavity.cli.tables import Rows
from cavity.data.source import Source

Mask = NDArray[np.bool_]
Keys = NDArray[np.uint64]


def row_keys(rows: Rows) -> Keys:
    """A number for each row, drawn from its inputs and its label."""
    if rows.y is None:
        raise ValueError("rows without labels have no keys")
    X = np.ascontiguousarray(rows.X + 0.0)  # no negative zeros
    distinct, place = np.unique(rows.y, return_inverse=True)
    starts = [hashlib.blake2b(word(label).encode(), digest_size=8) for label in distinct]
    found = (_key(starts[k], row) for k, row in zip(place.ravel(), X, strict=True))
    return np.fromiter(found, dtype=np.uint64, count=len(X))


def digest(keys: Keys) -> str:
    """What tells a set of rows from others, whatever their order."""
    return hashlib.blake2b(np.sort(keys).tobytes(), digest_size=16).hexdigest()


def files_digest(source: Source) -> str:
    """What tells files from others that are too large to look at every row: names, sizes, columns."""
    facts = json.dumps(source.fingerprint(), sort_keys=True).encode()
    return hashlib.blake2b(facts, digest_size=16).hexdigest()


def held_out(keys: Keys, y: NDArray[Any], share: float, seed: int) -> Mask:
    """A share of the rows of each label, drawn by the seed; of every label at least one is left.

    >>> y = np.array(["a"] * 10 + ["b"] * 5)
    >>> held = held_out(np.arange(15, dtype=np.uint64), y, 0.2, seed=0)
    >>> int(held[:10].sum()), int(held[10:].sum())
    (2, 1)
    """
    odd = np.random.default_rng(seed).integers(2**63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    drawn, held = keys * odd, np.zeros(len(y), dtype=bool)  # every odd number gives another order
    for label in np.unique(y):
        own = np.flatnonzero(y == label)
        count = min(int(np.floor(share * len(own) + 0.5)), len(own) - 1)
        held[own[np.argsort(drawn[own], kind="stable")[:count]]] = True
    return held


def known_again(rows: Rows, metrics: dict[str, Any]) -> Mask | None:
    """Which rows were held out, where these are the rows of the fit; None where they are others.

    Args:
        rows: those given now.
        metrics: of the model.
    """
    kept = metrics.get("holdout")
    if not isinstance(kept, dict) or rows.y is None or kept.get("digest") is None:
        return None
    keys = row_keys(rows)
    if digest(keys) != kept["digest"]:
        return None
    return held_out(keys, rows.y, float(kept["share"]), int(kept["seed"]))


def _key(start: Any, row: NDArray[np.float64]) -> int:
    drawn = start.copy()
    drawn.update(row.data)
    return int.from_bytes(drawn.digest(), "little")
