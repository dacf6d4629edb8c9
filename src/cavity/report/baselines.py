"""Baselines on the same rows: class frequencies, logistic regression, a random forest."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cavity.metrics import Array, Indices
from cavity.report.features import LabeledData, sample_indices

FOLDS = 5
MAX_ROWS = 20_000  # to train on
MAX_NUMBERS = 4_000_000  # rows times features to train on
MAX_ITER = 200  # of logistic regression
TREES = 100
FREQUENCIES = "class frequencies"

Learner = Callable[[Array, Indices, Array, int], Array]


class Baseline(NamedTuple):
    """Log-probabilities, (N, C), of the rows of the report; `note` says what the baseline was trained on."""

    name: str
    log_p: Array
    note: str


def fit_baselines(rows: LabeledData, train: LabeledData | None, n_classes: int) -> list[Baseline]:
    """Train every baseline that can be trained, and predict the rows of the report.

    Baselines train on the training rows, or on a sample of many. Without training rows, they are cross-fitted on the
    rows of the report in five folds: models that have not seen a row predict it. A class that a baseline has
    not seen has probability 0, as does a class that no tree of a forest votes for, so the NLL can be infinite.
    """
    found = [_try(name, learner, rows, train, n_classes) for name, learner in LEARNERS.items()]
    return [baseline for baseline in found if baseline is not None]


def _try(name: str, learner: Learner, rows: LabeledData, train: LabeledData | None, n_classes: int) -> Baseline | None:
    """None if the rows are too few or too extreme to train on."""
    from sklearn.exceptions import ConvergenceWarning

    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a baseline need not converge
            fit = _cross_fitted(learner, rows, n_classes) if train is None else _fitted(learner, rows, train, n_classes)
    except ValueError:
        return None
    return None if np.isnan(fit[0]).any() else Baseline(name, *fit)


def _fitted(learner: Learner, rows: LabeledData, train: LabeledData, n_classes: int) -> tuple[Array, str]:
    use = sample_indices(len(train.y), _max_rows(train.X.shape[1]))
    note = "" if len(use) == len(train.y) else f"trained on {len(use):,} of {len(train.y):,} training rows"
    return learner(train.X[use], train.y[use], rows.X, n_classes), note


def _cross_fitted(learner: Learner, rows: LabeledData, n_classes: int) -> tuple[Array, str]:
    if len(rows.y) < 2 * FOLDS:
        raise ValueError(f"{FOLDS} folds need at least {2 * FOLDS} rows, got {len(rows.y)}.")
    log_p, most = np.empty((len(rows.y), n_classes)), _max_rows(rows.X.shape[1]) // (FOLDS - 1)
    order = np.random.default_rng(0).permutation(len(rows.y))
    fold = np.empty(len(rows.y), dtype=np.int64)
    fold[order[np.argsort(rows.y[order], kind="stable")]] = np.arange(len(rows.y)) % FOLDS  # stratified
    for i in range(FOLDS):
        others = np.flatnonzero(fold != i)
        use = others[sample_indices(len(others), most, seed=i)]
        log_p[fold == i] = learner(rows.X[use], rows.y[use], rows.X[fold == i], n_classes)
    return log_p, f"cross-fitted on these rows in {FOLDS} folds, each time on {len(use):,} others"


def _max_rows(n_features: int) -> int:
    return min(MAX_ROWS, max(MAX_NUMBERS // n_features, 100))


def _frequencies(X: Array, y: Indices, X_new: Array, n_classes: int) -> Array:
    share = np.bincount(y, minlength=n_classes) / len(y)
    return np.tile(np.log(share), (len(X_new), 1))


def _logistic(X: Array, y: Indices, X_new: Array, n_classes: int) -> Array:
    from scipy.special import log_expit, log_softmax
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=MAX_ITER)).fit(X, y)
    score = model.decision_function(X_new)  # exact where the probability would round to 0
    log_p = np.stack([log_expit(-score), log_expit(score)], 1) if score.ndim == 1 else log_softmax(score, axis=1)
    return _with_all_classes(log_p, model.classes_, n_classes)


def _forest(X: Array, y: Indices, X_new: Array, n_classes: int) -> Array:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(TREES, random_state=0).fit(X, y)
    return _with_all_classes(np.log(model.predict_proba(X_new)), model.classes_, n_classes)


def _with_all_classes(log_p: Array, seen: Any, n_classes: int) -> Array:
    """Add the columns of classes that were not seen."""
    whole = np.full((len(log_p), n_classes), -np.inf)
    whole[:, seen] = log_p
    return whole


LEARNERS: dict[str, Learner] = {
    FREQUENCIES: _frequencies,
    "logistic regression": _logistic,
    "random forest": _forest,
}
