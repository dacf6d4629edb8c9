"""Look at a fitted classifier from all sides."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.gp.probabilities import Uncertainty
from cavity.report.about import about
from cavity.report.advice import advice
from cavity.report.baselines import Baseline, Rows, baselines
from cavity.report.calibration_curves import reliability
from cavity.report.course import course
from cavity.report.evidence import Evidence, counted
from cavity.report.findings import Array, Findings
from cavity.report.intake import Labeled, Places, count_known, is_training_data, labeled
from cavity.report.intervals import by_chance, score_line
from cavity.report.projection import map_of
from cavity.report.relevance import feature_names, relevance
from cavity.report.unsure import Candidates, to_split, unsure_rows
from cavity.version import __version__

MOST_ROWS = 20_000


def examine(
    clf: Any,
    X: Any,
    y: Any,
    *,
    train: tuple[Any, Any] | None = None,
    title: str | None = None,
    row_names: Any = None,
) -> Findings:
    """Find out how far to trust a classifier, by labeled rows that it has not learned from.

    Of more than 20,000 rows a random sample is looked at, always the same. Uncertainty takes milliseconds a row to take
    apart, so with more than 3,000 rows that is done for a sample, and for those that look worst.

    Args:
        clf: a fitted classifier.
        X: features, (N, D); an array or a frame.
        y: their labels, (N,), all of them known to the model.
        train: features and labels of the training rows. Baselines learn from them; without them, from X and y in folds.
        title: of the report.
        row_names: what to call the rows, such as their lines in a file; by default their places in X, from 0.

    Returns:
        Plain values. They are finite, except the NLL of models that hold something impossible which came true.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(max_epochs=20, random_state=0).fit(X[::2], y[::2])
    >>> found = examine(clf, X[1::2], y[1::2], train=(X[::2], y[::2]))
    >>> [score.name for score in found.scores]
    ['this model', 'class frequencies', 'logistic regression', 'random forest']
    """
    given = labeled(X, y, clf.classes_)
    if row_names is not None and len(row_names) != len(given.y):
        raise ValueError(f"row_names has {len(row_names)} names; one for each of the {len(given.y)} rows is needed")
    seen = given.some(MOST_ROWS)
    log_p = np.asarray(clf.predict_log_proba(seen.given), dtype=np.float64)
    rows, learned = Rows(seen.numbers(), seen.y), _training_rows(clf, train)
    candidates, is_sample = _split(clf, seen, log_p)
    e = _evidence(clf, given, rows, learned, log_p, Uncertainty(*(part[is_sample] for part in candidates.entropy)))
    return Findings(
        title=title or f"{counted(len(e.classes), 'class')}, {counted(len(rows.y), 'row')}",
        made=_made(),
        n_rows=len(rows.y),
        classes=e.classes,
        counts=e.counts,
        scores=e.scores,
        reliability=reliability(rows.y, log_p, e.classes),
        confusion=_confusion(rows.y, e.guess, len(e.classes)),
        relevance=relevance(clf, e.classes, e.is_constant),
        total=e.entropy.total,
        aleatoric=e.entropy.aleatoric,
        epistemic=e.entropy.epistemic,
        is_right=(candidates.log_p.argmax(1) == candidates.y)[is_sample],
        row_names=[str(i if row_names is None else row_names[i]) for i in candidates.place[is_sample].tolist()],
        unsure=unsure_rows(candidates, e.classes, None if row_names is None else list(row_names)),
        course=e.course,
        map=map_of(clf, rows, log_p, learned, e.features),
        advice=advice(e),
        about=about(e),
    )


def _training_rows(clf: Any, train: Any) -> Rows | None:
    if train is None:
        return None
    if not isinstance(train, tuple | list) or len(train) != 2:
        raise ValueError(f"train is a {type(train).__name__}; a pair (X_train, y_train) is needed")
    rows = labeled(train[0], train[1], clf.classes_, ("train[0]", "train[1]"))
    names = getattr(train[0], "columns", None)
    if names is not None and list(names) != list(getattr(clf, "feature_names_in_", names)):
        raise ValueError(f"train[0] has the features {list(names)}; the model has {feature_names(clf)}")
    found = Rows(rows.numbers(), rows.y)
    if found.X.shape[1] != clf.n_features_in_:
        raise ValueError(f"train[0] has {found.X.shape[1]} features; the model has {clf.n_features_in_}")
    return found


def _split(clf: Any, seen: Labeled, log_p: Array) -> tuple[Candidates, Any]:
    """Rows with their uncertainty taken apart, and which of them are a fair sample."""
    which, is_sample = to_split(seen.y, log_p)
    rows = seen if len(which) == len(seen.y) else seen.take(which)
    return Candidates(rows.place, rows.y, log_p[which], Uncertainty(*clf.uncertainty(rows.given))), is_sample


def _evidence(
    clf: Any, given: Labeled, rows: Rows, learned: Rows | None, log_p: Array, entropy: Uncertainty
) -> Evidence:
    classes, rivals = [str(label) for label in clf.classes_.tolist()], baselines(rows, learned, len(clf.classes_))
    lines = [Baseline("this model", log_p, ""), *rivals]
    is_constant = _constant(rows.X, rows.X) & _constant((learned or rows).X, rows.X)
    return Evidence(
        clf=clf,
        classes=classes,
        features=feature_names(clf),
        y=rows.y,
        log_p=log_p,
        n_given=len(given.y),
        entropy=entropy,
        scores=[score_line(line.name, rows.y, line.log_p, line.note) for line in lines],
        baselines=rivals,
        chance=by_chance(np.exp(log_p.max(1))),
        course=course(getattr(clf, "history_", [])),
        is_constant=is_constant & ~is_constant.all(),
        is_training=is_training_data(clf, given),
        n_known=None if learned is None else count_known(*rows, *learned),
    )


def _confusion(y: Places, guess: Places, n_classes: int) -> Places:
    return np.bincount(n_classes * y + guess, minlength=n_classes**2).reshape(n_classes, n_classes)


def _constant(X: Array, like: Array) -> NDArray[np.bool_]:
    """Features that have in every row the value of the first."""
    return np.asarray((like[:1] == X).all(0))


def _made() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}, cavity {__version__}"
