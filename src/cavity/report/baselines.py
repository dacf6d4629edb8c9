"""Baselines on the same rows: class frequencies, logistic regression, a random forest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity.data.schema import CATEGORY
from cavity.metrics import Array, Indices, Mask
from cavity.report.features import LabeledData, sample_indices

FOLDS = 5
MAX_ROWS = 20_000  # to train on
MAX_NUMBERS = 4_000_000  # rows times features to train on
MAX_ITER = 200  # of logistic regression
TREES = 100
MAX_INDICATORS = 50  # of a category; its rarest levels share one
FREQUENCIES = "class frequencies"


class Baseline(NamedTuple):
    """Log-probabilities, (N, C), of the rows of the report; `note` says what the baseline was trained on."""

    name: str
    log_p: Array
    note: str


def fit_baselines(
    rows: LabeledData, train: LabeledData | None, n_classes: int, kinds: Sequence[str] = ()
) -> list[Baseline]:
    """Train every baseline that can be trained, and predict the rows of the report.

    Baselines train on the training rows, or on a sample of many. Without training rows, they are cross-fitted on the
    rows of the report in five folds: models that have not seen a row predict it. A class that a baseline has
    not seen has probability 0, as does a class that no tree of a forest votes for, so the NLL can be infinite.

    Tables are encoded in the usual way (`encode_cells`); `kinds` says what each column holds, numbers by default.
    """
    from sklearn.exceptions import ConvergenceWarning

    n, (X, y) = len(rows.y), train or rows
    is_category = np.array([kind == CATEGORY for kind in kinds] or [False] * X.shape[1])
    width = (~is_category).sum() + sum(min(len(np.unique(x)), MAX_INDICATORS) for x in X[:, is_category].T)
    most = min(MAX_ROWS, max(MAX_NUMBERS // max(int(width), 1), 100))
    if train is not None:
        use = sample_indices(len(y), most)
        splits = [(use, np.arange(n))]
        note = "" if len(use) == len(y) else f"trained on {len(use):,} of {len(y):,} training rows"
    elif n >= 2 * FOLDS:
        order, fold = np.random.default_rng(0).permutation(n), np.empty(n, dtype=np.int64)
        fold[order[np.argsort(y[order], kind="stable")]] = np.arange(n) % FOLDS  # stratified
        splits = []
        for i in range(FOLDS):
            others = np.flatnonzero(fold != i)
            use = others[sample_indices(len(others), most // (FOLDS - 1), seed=i)]
            splits.append((use, np.flatnonzero(fold == i)))
        note = f"cross-fitted on these rows in {FOLDS} folds, each time on {len(use):,} others"
    else:
        return []
    found = []
    for name, learner in LEARNERS.items():
        log_p = np.empty((n, n_classes))
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a baseline need not converge
                for use, new in splits:
                    old, now = encode_cells(X[use], rows.X[new], is_category)
                    log_p[new] = learner(old, y[use], now, n_classes)
        except ValueError:  # the rows are too few or too extreme to train on
            continue
        if not np.isnan(log_p).any():
            found.append(Baseline(name, log_p, note))
    return found


def encode_cells(X: Array, X_new: Array, is_category: Mask) -> tuple[Array, Array]:
    """Encode the cells of a table as most people would, by what the training rows X hold.

    A category becomes an indicator for each level, with one more for gaps; where levels are many, the rarest share one.
    A gap in numbers, dates or times is filled with the median, and an indicator marks it.
    """
    if not (is_category.any() or np.isnan(X).any() or np.isnan(X_new).any()):
        return X, X_new
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    indicators = OneHotEncoder(sparse_output=False, handle_unknown="infrequent_if_exist", max_categories=MAX_INDICATORS)
    numbers = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    encoder = ColumnTransformer([("levels", indicators, is_category), ("numbers", numbers, ~is_category)])
    return np.asarray(encoder.fit_transform(X)), np.asarray(encoder.transform(X_new))


def _frequencies(X: Array, y: Indices, X_new: Array, n_classes: int) -> Array:
    return np.tile(np.log(np.bincount(y, minlength=n_classes) / len(y)), (len(X_new), 1))


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


LEARNERS: dict[str, Callable[[Array, Indices, Array, int], Array]] = {
    FREQUENCIES: _frequencies,
    "logistic regression": _logistic,
    "random forest": _forest,
}
