"""Examine a fitted classifier on labeled rows, and collect the findings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.labels import find_labels
from cavity.data.schema import LEFT_OUT
from cavity.fitting.rows import TrainingRows, class_weights, merge_equal_rows
from cavity.gp.probabilities import Uncertainty
from cavity.kernels import Kernel, Product, Sum
from cavity.metrics import (
    Array,
    Indices,
    Interval,
    check_calibration,
    reliability_curves,
    score_intervals,
    wilson_interval,
)
from cavity.report.advice import Evidence, give_advice
from cavity.report.baselines import Baseline, fit_baselines
from cavity.report.columns import read_rows, row_values, speaking_columns, summarize_columns
from cavity.report.features import LabeledData, feature_names, make_map, relevance, sample_indices
from cavity.report.findings import Findings, NovelRows, SetSummary, training_curve
from cavity.report.text import counted
from cavity.report.uncertain import choose_candidates, uncertain_rows
from cavity.version import __version__

MAX_ROWS = 20_000
MAX_COMPARED = 50_000  # training rows searched for the rows of the report
COVERAGES = (0.8, 0.9, 0.95, 0.99)  # of prediction sets
SHOWN_VALUES = 6  # columns of a row to review, the most relevant

METHODS = {
    "ep": "expectation propagation (EP), one site for each row and class",
    "sep": "stochastic expectation propagation (SEP), one site for each class",
    "gfitc": "expectation propagation on the latent values (GFITC)",
    "vi": "variational inference (VI), which maximizes a lower bound of the evidence",
}
SETTINGS = {
    "scaling": "Feature scaling",
    "calibrate": "Calibration",
    "class_weight": "Class weights",
    "batch_size": "Batch size",
    "max_epochs": "Maximum number of epochs",
    "max_seconds": "Maximum training time",
    "dtype": "Floating-point type",
    "random_state": "Random seed",
}
INTERVALS = (
    "95 % confidence. Error: Wilson score interval. NLL and Brier score: t interval corrected for skewness (Hall). "
    "Calibration error: all true errors that simulated rows do not rule out; the interval starts at 0 if chance alone "
    "can explain the measured value"
)


def examine(
    clf: Any,
    X: Any,
    y: Any,
    *,
    train: tuple[Any, Any] | None = None,
    title: str | None = None,
    row_names: Any = None,
    is_command_line: bool = False,
) -> Findings:
    """Examine a classifier on labeled rows that it was not trained on.

    Of more than 20,000 rows, a fixed random sample is examined. Separating aleatoric from epistemic uncertainty takes
    milliseconds per row, so with more than 3,000 rows it is done for a sample and for the rows that look worst.

    Args:
        clf: a fitted classifier.
        X: features, (N, D): an array, a pandas or polars frame or an Arrow table, with categories, dates and gaps as
            `fit` takes them.
        y: labels, (N,), all of them known to the model.
        train: features and labels of the training rows, to train baselines on and to find rows that the model has
            seen; without them, baselines are cross-fitted on X and y.
        title: of the report.
        row_names: names of the rows, such as line numbers in a file; by default their indices in X.
        is_command_line: whether advice names options of the command line instead of arguments.

    Returns:
        The findings. All numbers are finite, except the NLL of a model that gave an observed label probability 0.

    Raises:
        ValueError: if shapes do not match or a label is unknown.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(max_epochs=20, random_state=0).fit(X[::2], y[::2])
    >>> found = examine(clf, X[1::2], y[1::2], train=(X[::2], y[::2]))
    >>> [score.name for score in found.scores]
    ['this model', 'class frequencies', 'logistic regression', 'random forest']
    """
    X, y = encode_labels(X, y, clf.classes_)
    if row_names is not None and len(row_names) != len(y):
        raise ValueError(f"`row_names` must have one name for each of the {len(y)} rows, got {len(row_names)}.")
    index, train_rows = sample_indices(len(y), MAX_ROWS), _training_rows(clf, train)
    sample = take_rows(X, index)
    log_p = np.asarray(clf.predict_log_proba(sample), dtype=np.float64)
    cells, unseen = read_rows(clf, sample)
    rows = LabeledData(cells, y[index])
    which, is_sample = choose_candidates(rows.y, log_p)
    uncertainty = Uncertainty(*clf.uncertainty(take_rows(sample, which)))
    entropy = Uncertainty(*(part[is_sample] for part in uncertainty))
    names = None if row_names is None else list(row_names)
    kinds = [column.kind for column in getattr(clf, "columns_", [])]
    baselines = fit_baselines(rows, train_rows, len(clf.classes_), kinds)
    models = [Baseline("this model", log_p, ""), *baselines]
    is_constant = (rows.X[:1] == rows.X).all(0) & (rows.X[:1] == (train_rows or rows).X).all(0)
    is_constant &= np.array([kind != LEFT_OUT for kind in kinds] or True)
    features = feature_names(clf)
    e = Evidence(
        clf=clf,
        classes=[str(label) for label in clf.classes_.tolist()],
        features=features,
        y=rows.y,
        log_p=log_p,
        n_given=len(y),
        entropy=entropy,
        scores=[score_intervals(model.name, rows.y, model.log_p, model.note) for model in models],
        calibration=check_calibration(rows.y, log_p),
        baselines=baselines,
        training=training_curve(getattr(clf, "history_", [])),
        is_constant=np.asarray(is_constant & ~is_constant.all()),
        is_training=is_training_data(clf, X, y),
        n_known=None if train_rows is None else count_known(rows, train_rows),
        columns=summarize_columns(clf, features, cells, unseen, None if train_rows is None else train_rows.X),
        is_command_line=is_command_line,
    )
    n_classes, found = len(e.classes), relevance(clf, e.classes, e.is_constant)
    rank = np.arange(len(features)) if found is None else np.argsort(-found.values.mean(0), kind="stable")
    chosen = [int(j) for j in rank if not kinds or kinds[j] != LEFT_OUT][:SHOWN_VALUES]

    def values(row: int) -> tuple[tuple[str, str], ...]:
        return row_values(clf, take_rows(X, np.array([row])), features, chosen)

    def speaks(which: Indices) -> list[tuple[tuple[str, str, float], ...]]:
        return speaking_columns(clf, take_rows(X, which), features)

    return Findings(
        title=title or f"{counted(n_classes, 'class')}, {counted(len(rows.y), 'row')}",
        created=f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}, cavity {__version__}",
        n_rows=len(rows.y),
        classes=e.classes,
        counts=e.counts,
        scores=e.scores,
        calibration=e.calibration,
        reliability=reliability_curves(rows.y, log_p, e.classes),
        confusion=np.bincount(n_classes * rows.y + e.predicted, minlength=n_classes**2).reshape(n_classes, n_classes),
        relevance=found,
        total=entropy.total,
        aleatoric=entropy.aleatoric,
        epistemic=entropy.epistemic,
        is_right=(e.predicted == rows.y)[which[is_sample]],
        row_names=[str(i if names is None else names[i]) for i in index[which[is_sample]].tolist()],
        uncertain=uncertain_rows(
            index[which], rows.y[which], log_p[which], uncertainty, e.classes, names, values, speaks
        ),
        training=e.training,
        map=make_map(clf, rows, log_p, train_rows, e.features),
        advice=give_advice(e),
        about=list(describe_model(e)),
        no_verdict=e.no_verdict,
        columns=e.columns,
        sets=summarize_sets(clf, rows.y, log_p),
        novelty=_novelty(clf, sample, index if names is None else [names[i] for i in index]),
    )


def summarize_sets(clf: Any, y: Indices, log_p: Array) -> list[SetSummary]:
    """Count how often prediction sets hold the label, for several coverages; empty without held-out rows."""
    held_out, found = getattr(clf, "_held_out", None), list[SetSummary]()
    if held_out is None:
        return found
    n_classes = log_p.shape[1]
    counts = np.bincount(y, minlength=n_classes)
    for coverage in COVERAGES:
        sets = held_out.rule(coverage, n_classes).sets(log_p)
        is_covered = sets[np.arange(len(y)), y]
        low, high = map(float, wilson_interval(is_covered.sum(), len(y)))
        with np.errstate(invalid="ignore"):
            by_class = np.bincount(y, is_covered, n_classes) / counts
        sizes = np.bincount(sets.sum(1), minlength=n_classes + 1)
        found.append(SetSummary(coverage, Interval(float(is_covered.mean()), low, high), sizes, by_class))
    return found


def _novelty(clf: Any, X: Any, names: Any) -> NovelRows | None:
    """Return how many rows are unlike the training rows, if the model knows."""
    from cavity.report.drift import novel_rows

    known = getattr(clf, "_novelty", None)
    return novel_rows(clf, X, names) if known is not None and known.held_out.shape[1] else None


# --- Rows ---


def take_rows(X: Any, which: Indices) -> Any:
    """Return rows of an array, a data frame or an Arrow table."""
    from sklearn.utils import _safe_indexing

    return X if np.array_equal(which, np.arange(len(X))) else _safe_indexing(X, which)


def encode_labels(X: Any, y: Any, classes: NDArray[Any], names: tuple[str, str] = ("X", "y")) -> tuple[Any, Indices]:
    """Check the shapes of X and y; return X and the labels as indices into `classes`. Errors use `names`."""
    if not hasattr(X, "columns"):
        X, is_array = np.asarray(X), hasattr(X, "shape")
        X = np.asarray(X, dtype=object) if X.dtype.kind in "US" and not is_array else X  # keeps numbers beside text
    labels = np.asarray(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or len(X.shape) != 2 or len(X) != len(labels):
        raise ValueError(f"`{names[0]}` and `{names[1]}` must have shapes (N, D) and (N,), one label for each row, "
                         f"got {X.shape} and {labels.shape}.")  # fmt: skip
    try:
        encoded, is_known = find_labels(labels, classes)
    except TypeError:  # strings for a model of numbers, or numbers for a model of strings
        encoded, is_known = np.zeros(len(labels), dtype=np.int64), np.zeros(len(labels), dtype=bool)
    if not is_known.all():
        label, first = labels[~is_known].tolist()[0], classes.tolist()[0]
        raise ValueError(
            f"`{names[1]}` must contain only the {len(classes)} labels that the model knows, such as {first!r} "
            f"({type(first).__name__}), got {label!r} ({type(label).__name__}); {(~is_known).sum()} of "
            f"{len(encoded)} rows have unknown labels. Leave them out, or fit again with these classes."
        )
    return X, encoded


def is_training_data(clf: Any, X: Any, y: Indices) -> bool:
    """Whether the model was trained on exactly these rows; False also if that is unknown.

    A `sample_weight` changes the digest of the training rows, and so does the order of many rows.
    """
    known = getattr(clf, "training_", None) or {}
    if "digest" not in known or known.get("rows") != len(y):
        return False
    weight = class_weights(getattr(clf, "class_weight", None), clf.classes_[y])
    found = merge_equal_rows(TrainingRows(read_rows(clf, X)[0], y, weight)).fingerprint()
    return bool(found["digest"] == known["digest"])


def count_known(rows: LabeledData, train: LabeledData) -> int:
    """Count the rows that occur, with their label, among the training rows (at most 50,000 of them)."""
    use = sample_indices(len(train.y), MAX_COMPARED)
    tables = [np.column_stack(part) + 0.0 for part in (rows, (train.X[use], train.y[use]))]  # + 0.0: no −0
    tables = [np.where(np.isnan(table), np.nan, table) for table in tables]  # gaps have the same bits
    whole_row = np.dtype((np.void, tables[0].itemsize * tables[0].shape[1]))
    new, old = (np.ascontiguousarray(table).view(whole_row)[:, 0] for table in tables)
    return int(np.isin(new, old).sum())


def _training_rows(clf: Any, train: Any) -> LabeledData | None:
    if train is None:
        return None
    if not isinstance(train, tuple | list) or len(train) != 2:
        raise ValueError(f"`train` must be a pair (X_train, y_train), got {type(train).__name__}.")
    X, y = encode_labels(train[0], train[1], clf.classes_, ("train[0]", "train[1]"))
    names = getattr(train[0], "column_names", getattr(train[0], "columns", None))
    if names is not None and list(names) != list(getattr(clf, "feature_names_in_", names)):
        raise ValueError(f"`train[0]` must have the model's features {feature_names(clf)}, got {list(names)}.")
    if X.shape[1] != clf.n_features_in_:
        raise ValueError(f"`train[0]` must have {clf.n_features_in_} features, got {X.shape[1]}.")
    return LabeledData(read_rows(clf, X)[0], y)


# --- Settings ---


def describe_model(e: Evidence) -> Iterator[tuple[str, str]]:
    """Yield names and values of what was learned, of the settings, and of the report itself."""
    clf, n_rows = e.clf, (getattr(e.clf, "training_", None) or {}).get("rows")
    if hasattr(clf, "method_"):
        yield "Method", METHODS.get(clf.method_, str(clf.method_))
    if n_rows is not None:
        sizes = f"{counted(len(e.features), 'feature')}, {counted(len(e.classes), 'class')}"
        yield "Training data", f"{counted(int(n_rows), 'row')}, {sizes}"
    if isinstance(getattr(clf, "kernel_", None), Kernel):
        yield "Kernel", kernel_name(clf.kernel_)
    if hasattr(clf, "inducing_points_"):
        n_classes, n_points = np.shape(clf.inducing_points_)[:2]
        Z = clf.posterior_.prior.Z.numpy() if hasattr(clf, "posterior_") else clf.inducing_points_
        is_shared = n_classes > 1 and bool((Z[:1] == Z).all())
        yield "Inducing points", f"{n_points:,} {'shared by all classes' if is_shared else 'for each class'}"
    if hasattr(clf, "noise_"):
        low, high = (f"{end(clf.noise_):.3g}" for end in (np.min, np.max))
        yield "Noise variance", low if low == high else f"{low} to {high}, depending on the class"
    if hasattr(clf, "sharpness_"):
        how = "not changed by calibration" if clf.sharpness_ == 1 else "calibrated on held-out rows"
        yield "Sharpness of probabilities", f"{clf.sharpness_:.3g} ({how})"
    if hasattr(clf, "log_marginal_likelihood_"):
        yield "Log evidence", f"{clf.log_marginal_likelihood_:.1f} nats (log Z of the training rows)"
    if hasattr(clf, "n_iter_"):
        seconds = max((record.get("seconds") or 0.0 for record in getattr(clf, "history_", [])), default=0.0)
        yield "Training", counted(int(clf.n_iter_), "epoch") + (f", {seconds:.3g} s" if seconds else "")
    for name, words in SETTINGS.items():
        if getattr(clf, name, None) is not None:
            yield words, f"{name}={getattr(clf, name)!r}"
    yield "Rows in this report", f"{len(e.y):,}" + ("" if len(e.y) == e.n_given else f" of {e.n_given:,}, at random")
    yield "Intervals", INTERVALS


def kernel_name(kernel: Kernel) -> str:
    """Name a kernel without its parameters.

    >>> from cavity.kernels import Constant, Linear, RBF
    >>> kernel_name((RBF() + Constant()) * Linear())
    '(RBF + Constant) * Linear'
    """
    if isinstance(kernel, Sum):
        return " + ".join(kernel_name(part) for part in kernel.parts)
    if isinstance(kernel, Product):
        return " * ".join(f"({kernel_name(p)})" if isinstance(p, Sum) else kernel_name(p) for p in kernel.parts)
    return type(kernel).__name__
