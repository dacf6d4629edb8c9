"""What simple models make of the same rows: class frequencies, logistic regression, a random forest.

They are imported where they are used: whoever only predicts should not wait for them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_expit, log_softmax
from sklearn.exceptions import ConvergenceWarning

from cavity.report.findings import Array
from cavity.report.intake import Places, draw

FOLDS = 5
MOST_ROWS = 20_000  # to learn from
MOST_NUMBERS = 4_000_000  # rows times features to learn from
STEPS = 200  # of logistic regression
TREES = 100
FREQUENCIES = "class frequencies"

Learner = Callable[[Array, Places, Array, int], Array]


class Rows(NamedTuple):
    """Features, (N, D), and labels 0 … C−1."""

    X: Array
    y: Places


class Baseline(NamedTuple):
    """Log-probabilities, (N, C), of the rows of the report; `note` says what it learned from."""

    name: str
    log_p: Array
    note: str


def baselines(rows: Rows, train: Rows | None, n_classes: int) -> list[Baseline]:
    """Every baseline that can be had.

    They learn from the training rows, or from a sample where these are many. Without training rows they learn from the
    rows of the report themselves, in five folds: each row is predicted by models that have not seen it. A class that a
    baseline has not seen has probability 0, and so have classes that no tree of a forest votes for: an infinite NLL.
    """
    found = [_try(name, learner, rows, train, n_classes) for name, learner in LEARNERS.items()]
    return [baseline for baseline in found if baseline is not None]


def _try(name: str, learner: Learner, rows: Rows, train: Rows | None, n_classes: int) -> Baseline | None:
    """None where rows are too few or too odd to learn from."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a baseline is good enough after its steps
            log_p, note = (
                _cross_fitted(learner, rows, n_classes) if train is None else _fitted(learner, rows, train, n_classes)
            )
    except ValueError:
        return None
    return None if np.isnan(log_p).any() else Baseline(name, log_p, note)


def _fitted(learner: Learner, rows: Rows, train: Rows, n_classes: int) -> tuple[Array, str]:
    use = draw(len(train.y), _most(train.X.shape[1]))
    note = "" if len(use) == len(train.y) else f"learned from {len(use):,} of {len(train.y):,} training rows"
    return learner(train.X[use], train.y[use], rows.X, n_classes), note


def _cross_fitted(learner: Learner, rows: Rows, n_classes: int) -> tuple[Array, str]:
    if len(rows.y) < 2 * FOLDS:
        raise ValueError(f"{len(rows.y)} rows are too few for {FOLDS} folds")
    log_p, fold = np.empty((len(rows.y), n_classes)), _deal(rows.y)
    most = _most(rows.X.shape[1]) // (FOLDS - 1)
    for i in range(FOLDS):
        others = np.flatnonzero(fold != i)
        use = others[draw(len(others), most, seed=i)]
        log_p[fold == i] = learner(rows.X[use], rows.y[use], rows.X[fold == i], n_classes)
    note = f"learned from these rows in five folds, each time from {len(use):,} others"
    return log_p, note


def _deal(y: Places) -> Places:
    """A fold for every row, each class spread evenly."""
    order = np.random.default_rng(0).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % FOLDS
    return fold


def _most(n_features: int) -> int:
    return min(MOST_ROWS, max(MOST_NUMBERS // n_features, 100))


def _frequencies(X: Array, y: Places, X_new: Array, n_classes: int) -> Array:
    share = np.bincount(y, minlength=n_classes) / len(y)
    return np.tile(np.log(share), (len(X_new), 1))


def _logistic(X: Array, y: Places, X_new: Array, n_classes: int) -> Array:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=STEPS)).fit(X, y)
    score = model.decision_function(X_new)  # exact where the probability itself would be 0
    log_p = np.stack([log_expit(-score), log_expit(score)], 1) if score.ndim == 1 else log_softmax(score, axis=1)
    return _in_place(log_p, model.classes_, n_classes)


def _forest(X: Array, y: Places, X_new: Array, n_classes: int) -> Array:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(TREES, random_state=0).fit(X, y)
    return _in_place(np.log(model.predict_proba(X_new)), model.classes_, n_classes)


def _in_place(log_p: Array, seen: Any, n_classes: int) -> Array:
    """With a column for every class, also those that were not seen."""
    whole = np.full((len(log_p), n_classes), -np.inf)
    whole[:, seen] = log_p
    return whole


LEARNERS: dict[str, Learner] = {
    FREQUENCIES: _frequencies,
    "logistic regression": _logistic,
    "random forest": _forest,
}
