"""Active learning: which rows of a pool to label next."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from cavity.classifier import GPClassifier
from cavity.data.source import is_source, row_hashes
from cavity.gp.information import choose_rows, screened_information
from cavity.runtime.device import choose_device, without_autograd

Array = NDArray[np.float64]

METHODS = ("bald", "entropy", "margin", "random")
CHUNK_ROWS = 8_192  # of a pool in memory
CANDIDATES = 1_024  # with the largest scores, and as many more in proportion to their scores
CANDIDATES_PER_QUERY = 4  # of each kind, at least
CANDIDATE_NUMBERS = 2**24  # of the projections of the candidates of a kind


class Choice(NamedTuple):
    """Rows of a pool to label next, and the scores that decided.

    Attributes:
        rows: their indices, best first, (n,).
        candidates: the indices of the rows that were compared, (m,).
        scores: those of the candidates at each choice, (n, m); NaN for rows chosen before.
    """

    rows: NDArray[np.int64]
    candidates: NDArray[np.int64]
    scores: Array


def query(clf: Any, pool: Any, n: int, method: str = "bald", *, random_state: Any = None) -> NDArray[np.int64]:
    """Return the indices of n rows of a pool to label next, the most informative first.

    A batch never holds two rows with the same cells.

    Args:
        clf: a fitted GPClassifier.
        pool: rows without labels: an array, a frame or a source (`cavity.data`), which is read in blocks; memory does
            not grow with its rows. The index of a row of a source is its place in reading order, lane by lane.
        n: the number of rows.
        method: "bald" takes the rows whose labels have the most information about the latent functions: the epistemic
            part of `clf.uncertainty`. Each row is chosen given those before it, so a batch does not ask the same
            question twice. "entropy" takes the rows whose predictions have the largest entropy, and "margin" those
            with the smallest difference of the two largest probabilities, each row on its own. "random" draws rows.
        random_state: seed of "random"; the others draw nothing from it.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(random_state=0).fit(X[::10], y[::10])
    >>> rows = query(clf, X, 5)
    >>> len(set(rows.tolist()))
    5
    """
    return choose(clf, pool, n, method, random_state=random_state).rows


def choose(clf: Any, pool: Any, n: int, method: str = "bald", *, random_state: Any = None) -> Choice:
    """Do what `query` does, and return the scores too."""
    if not isinstance(clf, GPClassifier):
        raise TypeError(f"clf must be a fitted GPClassifier, got {type(clf).__name__}")
    if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
        raise ValueError(f"n must be an int of 1 or more, got {n!r}")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    n = int(n)
    with without_autograd(choose_device(clf.device)):
        best, n_rows = _best_rows(clf, pool, n, method, random_state)
        if n > len(best.index):
            what = f"the pool has {n_rows} rows" if len(best.index) == n_rows else (
                f"only {len(best.index)} of the {n_rows} rows of the pool differ from each other"
            )  # fmt: skip
            raise ValueError(f"n must be at most the number of different rows to choose from, got {n}: {what}")
        if method == "bald":
            chosen, scores = choose_rows(clf._posterior_on_device(), clf._encode(best.cells), n)
            return Choice(best.index[chosen], best.index, scores)
    scores = np.tile(best.key, (n, 1))
    scores[np.tri(n, len(best.key), -1, dtype=bool)] = np.nan
    return Choice(best.index[:n], best.index, scores)


def modal_query(learner: Any, X: Any, n_instances: int = 1, method: str = "bald", random_state: Any = None) -> Any:
    """Choose rows for modAL: `ActiveLearner(estimator=GPClassifier(), query_strategy=modal_query, …)`.

    Args:
        learner: a modAL ActiveLearner whose estimator is a fitted GPClassifier.
        X: the pool.
        n_instances: the number of rows.
        method, random_state: as for `query`.

    Returns:
        The indices of the rows, and the score of each, as modAL's own strategies do.
    """
    choice = choose(getattr(learner, "estimator", learner), X, n_instances, method, random_state=random_state)
    places = (choice.candidates == choice.rows[:, None]).argmax(1)
    return choice.rows, choice.scores[np.arange(len(places)), places]


def __getattr__(name: str) -> Any:
    """Import the strategy for scikit-activeml on first use: only it needs that package."""
    if name == "PoolQuery":
        from cavity.activeml import PoolQuery

        return PoolQuery
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Rows(NamedTuple):
    """Some rows of a pool: place in the pool, key that sorts them, hash and cells."""

    index: NDArray[np.int64]
    key: Array
    hash: NDArray[np.uint64]
    cells: Array

    def merged(self, others: _Rows) -> _Rows:
        return _Rows(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))

    def best(self, size: int) -> _Rows:
        """Return the rows with the largest keys, the first of them where keys are equal, without copies of a row."""
        order = np.lexsort((self.index, -self.key))
        _, first = np.unique(self.hash[order], return_index=True)
        keep = order[np.sort(first)[:size]]
        return _Rows(*(part[keep] for part in self))


def _best_rows(clf: GPClassifier, pool: Any, n: int, method: str, random_state: Any) -> tuple[_Rows, int]:
    """Read the pool once; return the rows to choose from, and the number of rows in the pool.

    For "bald" these are the rows with the largest scores, and others drawn in proportion to their scores: the best rows
    of a large pool can all be alike.
    """
    is_joint, n_rows, best, drawn = method == "bald", 0, None, None
    random = check_random_state(0 if is_joint else random_state)
    for cells in _blocks(clf, pool):
        index, draws = np.arange(n_rows, n_rows + len(cells)), random.random_sample(len(cells))
        n_rows += len(cells)
        rows = _Rows(index, draws if method == "random" else _scores(clf, cells, method), row_hashes(cells), cells)
        size = _candidates(clf, n) if is_joint else n
        best = (rows if best is None else best.merged(rows)).best(size)
        if is_joint:
            with np.errstate(divide="ignore"):  # -∞ for rows that teach nothing
                key = np.log(rows.key) - np.log(-np.log(draws))
            rows = rows._replace(key=key)
            drawn = (rows if drawn is None else drawn.merged(rows)).best(size)
    if best is None:
        raise ValueError("The pool has no rows; at least one is required.")
    if drawn is not None:
        both = best.merged(drawn)
        best = both._replace(key=-both.index.astype(np.float64)).best(len(both.index))  # in the order of the pool
    return best, n_rows


def _candidates(clf: GPClassifier, n: int) -> int:
    """Return how many candidates of each kind a joint choice of n rows compares."""
    Z = clf.posterior_.prior.Z
    return max(min(CANDIDATES, CANDIDATE_NUMBERS // (Z.shape[0] * Z.shape[1])), CANDIDATES_PER_QUERY * n)


def _blocks(clf: GPClassifier, pool: Any) -> Iterator[Array]:
    """Yield the cells of the pool, block by block, with one bit pattern for all gaps."""
    if is_source(pool):
        source = clf._validate_source(pool)
        yield from (block.X for lane in range(source.lanes) for block in source.blocks(lane))
        return
    cells = clf._validate_new(pool)
    for first in range(0, len(cells), CHUNK_ROWS):
        block = cells[first : first + CHUNK_ROWS]
        yield np.where(np.isnan(block), np.nan, block)


def _scores(clf: GPClassifier, cells: Array, method: str) -> Array:
    """Return what ranks each row on its own; "bald" ranks rows again, exactly, when it chooses."""
    if method == "bald":
        return screened_information(clf._posterior_on_device(), clf._encode(cells))
    log_p = clf._log_proba(cells)
    p = np.exp(log_p)
    if method == "entropy":
        return np.asarray(-(p * log_p.clip(min=np.finfo(float).min)).sum(1))
    two = np.partition(p, -2, axis=1)[:, -2:]
    return np.asarray(two[:, 0] - two[:, 1])
