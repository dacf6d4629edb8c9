"""Active learning: which rows of a pool to label next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity.classifier import GPClassifier
from cavity.data.source import is_source, row_hashes
from cavity.gp.information import choose_rows, screened_information
from cavity.runtime.device import choose_device, without_autograd

Array = NDArray[np.float64]

METHODS = ("bald", "epig", "entropy", "margin", "random")
JOINT = ("bald", "epig")
CHUNK_ROWS = 8_192  # of a pool in memory
CANDIDATES = 1_024  # with the largest scores, and as many more in proportion to their scores
CANDIDATES_PER_QUERY = 4  # of each kind, at least
CANDIDATE_NUMBERS = 2**24  # of the projections of the candidates of a kind, and of their covariances with targets
TARGETS, LEAST_TARGETS = 512, 16  # rows that stand for the pool in "epig"


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
            part of `clf.uncertainty`. "epig" takes those whose labels have the most about the predictions of the pool,
            and so no strange rows that teach about themselves alone. Both choose each row given those before it, so a
            batch does not ask the same question twice. "entropy" takes the rows whose predictions have the largest
            entropy, and "margin" those with the smallest difference of the two largest probabilities, each row on its
            own. "random" draws rows.
        random_state: seed of "random"; the others do not use it.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(random_state=0).fit(X[::10], y[::10])
    >>> rows = query(clf, X, 5)
    >>> len(set(rows.tolist()))
    5
    """
    return choose(clf, pool, n, method, random_state=random_state).rows


def choose(clf: Any, pool: Any, n: Any, method: str = "bald", *, random_state: Any = None) -> Choice:
    """Do what `query` does, and return the scores too."""
    if not isinstance(clf, GPClassifier):
        raise TypeError(f"clf must be a fitted GPClassifier, got {type(clf).__name__}")
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be an int of 1 or more, got {n!r}")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    check_is_fitted(clf, "posterior_")
    n = int(n)
    with without_autograd(choose_device(clf.device)):
        best, targets, n_rows = _read_pool(clf, pool, n, method, random_state)
        if n > (n_different := len(best.place)):
            why = f"only {n_different} of the {n_rows} rows of the pool differ from each other"
            why = f"the pool has {n_rows} rows" if n_different == n_rows else why
            raise ValueError(f"n must be at most the number of different rows to choose from, got {n}: {why}")
        if method in JOINT:
            about = clf._encode(targets.cells) if method == "epig" else None
            chosen, scores = choose_rows(clf._posterior_on_device(), clf._encode(best.cells), n, about)
            return Choice(best.place[chosen], best.place, scores)
    scores = np.tile(best.key, (n, 1))
    scores[np.tri(n, len(best.key), -1, dtype=np.bool_)] = np.nan
    return Choice(best.place, best.place, scores)


def modal_query(learner: Any, X: Any, n_instances: int = 1, method: str = "bald", **settings: Any) -> Any:
    """Choose rows for modAL: `ActiveLearner(estimator=GPClassifier(), query_strategy=modal_query, …)`.

    Args:
        learner: a modAL ActiveLearner whose estimator is a fitted GPClassifier.
        X: the pool.
        n_instances: the number of rows.
        method: as for `query`, and `random_state` too.

    Returns:
        The indices of the rows, and the score of each, as modAL's own strategies do.
    """
    choice = choose(getattr(learner, "estimator", learner), X, n_instances, method, **settings)
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

    place: NDArray[np.int64]
    key: Array
    hash: NDArray[np.uint64]
    cells: Array

    @classmethod
    def none(cls, clf: GPClassifier) -> _Rows:
        """Return no rows."""
        return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.uint64), np.zeros((0, clf.n_features_in_)))

    def merged(self, others: _Rows, size: int) -> _Rows:
        """Return the rows of both with the largest keys, the first of them where keys are equal, each row once."""
        pairs: Any = zip(self, others, strict=True)
        both = _Rows(*map(np.concatenate, pairs))
        order = np.lexsort((both.place, -both.key))
        _, first = np.unique(both.hash[order], return_index=True)
        keep = order[np.sort(first)[:size]]
        return both.take(keep)

    def take(self, indices: NDArray[np.int64]) -> _Rows:
        """Return the rows at `indices`."""
        return _Rows(self.place[indices], self.key[indices], self.hash[indices], self.cells[indices])


def _read_pool(clf: GPClassifier, pool: Any, n: int, method: str, random_state: Any) -> tuple[_Rows, _Rows, int]:
    """Read the pool once; return the rows to choose from, rows that stand for the pool, and the number of its rows.

    For a joint choice the former are the rows with the largest scores, and others drawn in proportion to their scores:
    the best rows of a large pool can all be alike.
    """
    is_joint, n_rows = method in JOINT, 0
    random = check_random_state(random_state if method == "random" else 0)
    size, n_targets = _sizes(clf, n) if is_joint else (n, 0)
    best, spread, targets = (_Rows.none(clf) for _ in range(3))
    for cells in _blocks(clf, pool):
        draws = random.random_sample((len(cells), 2))
        scores = draws[:, 0] if method == "random" else _scores(clf, cells, method)
        block = _Rows(np.arange(n_rows, n_rows + len(cells)), scores, row_hashes(cells), cells)
        n_rows += len(cells)
        best = best.merged(block, size)
        if is_joint:
            with np.errstate(divide="ignore"):  # -∞ for rows that teach nothing
                key = np.log(scores) - np.log(-np.log(draws[:, 0]))
            spread = spread.merged(block._replace(key=key), size)
            targets = targets.merged(block._replace(key=draws[:, 1]), n_targets)
    if n_rows == 0:
        raise ValueError("The pool has no rows; at least one is required.")
    if is_joint:
        best = best.merged(spread._replace(key=np.full(len(spread.key), -np.inf)), 2 * size)
        best = best.take(np.argsort(best.place))
    return best, targets, n_rows


def _sizes(clf: GPClassifier, n: int) -> tuple[int, int]:
    """Return how many candidates of each kind a joint choice of n rows compares, and the number of targets."""
    prior = clf.posterior_.prior
    fit = CANDIDATE_NUMBERS // (prior.Z.shape[0] * prior.Z.shape[1])
    size = max(min(CANDIDATES, fit), CANDIDATES_PER_QUERY * n)
    return size, max(LEAST_TARGETS, min(TARGETS, CANDIDATE_NUMBERS // (2 * size * prior.n_classes)))


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
    """Return what ranks each row on its own; a joint choice ranks rows again."""
    if method in JOINT:
        return screened_information(clf._posterior_on_device(), clf._encode(cells))
    log_p = clf._log_proba(cells)
    p = np.exp(log_p)
    if method == "entropy":
        return np.asarray(-(p * log_p.clip(min=np.finfo(float).min)).sum(1))
    two = np.partition(p, -2, axis=1)[:, -2:]
    return np.asarray(two[:, 0] - two[:, 1])
