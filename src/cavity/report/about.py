"""Settings and what was learned, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cavity.kernels import Kernel, Product, Sum
from cavity.report.evidence import Evidence, counted

METHODS = {
    "ep": "expectation propagation (EP): a site for every row and class",
    "sep": "stochastic expectation propagation (SEP): a site for every class",
    "gfitc": "EP on the latent values themselves (GFITC)",
    "vi": "variational inference (VI): a lower bound of the evidence",
}
SETTINGS = {
    "scaling": "Scaling of features",
    "calibrate": "Calibration",
    "class_weight": "Weights of classes",
    "batch_size": "Rows a step",
    "max_epochs": "Epochs at most",
    "max_seconds": "Seconds at most",
    "dtype": "Precision of distances",
    "random_state": "Seed",
}
INTERVALS = (
    "95 %: of the error by Wilson; of NLL and Brier score by 1,000 draws of the rows, corrected for bias and skewness; "
    "of the calibration error by the same draws, from 0 where chance may be all there is"
)


def about(e: Evidence) -> list[tuple[str, str]]:
    """Names and texts, what was learned first."""
    return [*_learned(e), *_settings(e.clf), *_this_report(e)]


def _learned(e: Evidence) -> Iterator[tuple[str, str]]:
    clf, rows = e.clf, (getattr(e.clf, "training_", None) or {}).get("rows")
    method = getattr(clf, "method_", None)
    if method is not None:
        yield "Method", METHODS.get(method, str(method))
    if rows is not None:
        sizes = f"{counted(len(e.features), 'feature')}, {counted(len(e.classes), 'class')}"
        yield "Learned from", f"{counted(int(rows), 'row')}, {sizes}"
    if isinstance(getattr(clf, "kernel_", None), Kernel):
        yield "Kernel", kernel_name(clf.kernel_)
    if hasattr(clf, "inducing_points_"):
        yield "Inducing points", _inducing(clf)
    yield from _numbers(clf)


def _numbers(clf: Any) -> Iterator[tuple[str, str]]:
    if hasattr(clf, "noise_"):
        low, high = (f"{end(clf.noise_):.3g}" for end in (np.min, np.max))
        yield "Noise variance", low if low == high else f"{low} to {high}, by class"
    if hasattr(clf, "sharpness_"):
        how = "as they come" if clf.sharpness_ == 1 else "set on rows held out"
        yield "Sharpness of probabilities", f"{clf.sharpness_:.3g} ({how})"
    if hasattr(clf, "log_marginal_likelihood_"):
        yield "Log evidence", f"{clf.log_marginal_likelihood_:.1f} nats (log Z of the training rows)"
    if hasattr(clf, "n_iter_"):
        seconds = max((record.get("seconds") or 0.0 for record in getattr(clf, "history_", [])), default=0.0)
        yield "Training", counted(int(clf.n_iter_), "epoch") + (f", {seconds:.3g} s" if seconds else "")


def _inducing(clf: Any) -> str:
    n_classes, points = np.shape(clf.inducing_points_)[:2]
    is_shared = n_classes > 1 and bool((clf.inducing_points_ == clf.inducing_points_[:1]).all())
    return f"{points:,}, shared by all classes" if is_shared else f"{points:,} for each class"


def kernel_name(kernel: Kernel) -> str:
    """Without its numbers.

    >>> from cavity.kernels import Constant, Linear, RBF
    >>> kernel_name((RBF() + Constant()) * Linear())
    '(RBF + Constant) * Linear'
    """
    if isinstance(kernel, Sum):
        return " + ".join(kernel_name(part) for part in kernel.parts)
    if isinstance(kernel, Product):
        names = [(kernel_name(part), isinstance(part, Sum)) for part in kernel.parts]
        return " * ".join(f"({name})" if is_sum else name for name, is_sum in names)
    return type(kernel).__name__


def _settings(clf: Any) -> Iterator[tuple[str, str]]:
    """What was asked for."""
    for name, words in SETTINGS.items():
        value = getattr(clf, name, None)
        if value is not None:
            yield words, f"{name}={value!r}"


def _this_report(e: Evidence) -> Iterator[tuple[str, str]]:
    yield "Rows of this report", f"{len(e.y):,}" + ("" if len(e.y) == e.n_given else f" of {e.n_given:,}, at random")
    yield "Calibration error by chance", f"up to {np.quantile(e.chance, 0.95):.3f} on so many rows"
    yield "Intervals", INTERVALS
