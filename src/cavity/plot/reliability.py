"""Plot reliability: how often predictions come true, by their confidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cavity.metrics import ReliabilityCurve, calibration_interval, one_hot, reliability_curve
from cavity.plot.style import axes_for, nth_style, plain, probabilities

STRIP = 0.16  # of the height of the axes
MAX_ABOVE = 4  # entries of a legend above the axes


class ReliabilityDisplay:
    """Reliability diagram: how often predictions come true, by their confidence.

    On the diagonal, the confidence is right; below it, the classifier is overconfident. Error bars are 95 %
    confidence intervals, and the strip at the bottom shows the number of rows by confidence.

    Args:
        curves: what to draw, as made by `cavity.metrics.reliability_curve`.

    Attributes:
        curves: as given.
        ax_, figure_: of the last drawing.
        lines_: one line with its error bars for each curve.
        counts_: one strip of row counts for each curve, if shown.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(max_epochs=20, random_state=0).fit(X[::2], y[::2])
    >>> display = ReliabilityDisplay.from_estimator(clf, X[1::2], y[1::2])
    >>> int(display.curves[0].rows.sum())
    75
    """

    def __init__(self, curves: Sequence[ReliabilityCurve]) -> None:
        self.curves = list(curves)

    @classmethod
    def from_estimator(cls, clf: Any, X: Any, y: Any, *, name: str | None = None, **more: Any) -> ReliabilityDisplay:
        """Plot any fitted classifier that has `predict_proba`, on rows that it was not trained on.

        Args:
            clf: the classifier.
            X: features, (N, D).
            y: labels, (N,).
            name: for the legend; the name of the estimator's class by default.
            more: as for `from_predictions`.
        """
        proba = probabilities(clf, X)
        return cls.from_predictions(y, proba, classes=clf.classes_, name=name or type(clf).__name__, **more)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        proba: ArrayLike,
        *,
        classes: ArrayLike,
        by_class: bool | Iterable[Any] = False,
        n_bins: int = 10,
        strategy: str = "uniform",
        name: str = "classifier",
        ax: Any = None,
        **kw: Any,
    ) -> ReliabilityDisplay:
        """Plot given probabilities.

        Args:
            y: labels, (N,).
            proba: probabilities, (N, C).
            classes: the labels of the columns.
            by_class: False for the most probable label of every row; True for one curve per class, of the probability
                of that class; or the labels of the classes to draw.
            n_bins: at most.
            strategy: "uniform" (bins of equal width) or "quantile" (equal numbers of rows).
            name: for the legend.
            ax: axes to draw on; a new figure by default.
            kw: as for `plot`.
        """
        labels, p, y = np.asarray(classes), np.asarray(proba, dtype=np.float64), np.asarray(y)
        if p.shape != (len(y), len(labels)) or not len(p):
            raise ValueError(f"`proba` must have shape ({len(y)}, {len(labels)}), a row for each label of `y` and a "
                             f"column for each of `classes`, with at least one row, got {p.shape}.")  # fmt: skip
        if not ((p >= 0) & (p <= 1 + 1e-6)).all():
            raise ValueError(f"`proba` must hold probabilities, got values from {p.min():.3g} to {p.max():.3g}.")
        p, truth = p.clip(0.0, 1.0), one_hot(y, labels)
        if n_bins < 1:
            raise ValueError(f"`n_bins` must be a positive int, got n_bins={n_bins}.")
        if isinstance(by_class, bool) and not by_class:
            predictions = [(name, p.max(1), truth[np.arange(len(p)), p.argmax(1)])]
        else:
            wanted = labels.tolist() if isinstance(by_class, bool) else list(by_class)
            if not wanted or any(label not in labels.tolist() for label in wanted):
                raise ValueError(f"`by_class` must be a bool or labels in {labels!r}, got by_class={by_class!r}.")
            chosen = [labels.tolist().index(label) for label in wanted]
            predictions = [(str(labels[k]), p[:, k], truth[:, k]) for k in chosen]
        curves = [reliability_curve(*part, n_bins, strategy) for part in predictions]
        if by_class is False:
            curves = [curves[0]._replace(interval=calibration_interval(*predictions[0][1:]))]
        return cls(curves).plot(ax, **kw)

    def plot(
        self, ax: Any = None, *, intervals: bool = True, counts: bool | None = None, **kw: Any
    ) -> ReliabilityDisplay:
        """Draw the display.

        Args:
            ax: axes; a new figure by default.
            intervals: whether to show the 95 % intervals.
            counts: whether to show the number of rows by confidence; by default if there is a single curve.
            kw: for `Axes.errorbar`: color, marker, …

        Returns:
            The display itself.
        """
        from matplotlib.container import ErrorbarContainer

        self.ax_ = plain(axes_for(ax, 4.6 if len(self.curves) <= MAX_ABOVE else 6.2, 4.4), grid="both")
        self.figure_ = self.ax_.figure
        before = sum(isinstance(part, ErrorbarContainer) for part in self.ax_.containers)  # curves of other displays
        self.lines_ = []
        for i, curve in enumerate(self.curves, before):
            style, ends = nth_style(i), [curve.accuracy - curve.low, curve.high - curve.accuracy]
            settings = {"color": style.color, "marker": style.marker, "linestyle": style.line, "markersize": 5.5,
                        "linewidth": 1.5, "elinewidth": 1.0, "capsize": 2.0,
                        "label": f"{curve.name} ({_error(curve)})",
                        "yerr": np.clip(ends, 0.0, None) if intervals else None}  # fmt: skip
            self.lines_.append(self.ax_.errorbar(curve.confidence, curve.accuracy, **(settings | kw)))
        is_counted = len(self.curves) == 1 if counts is None else counts
        self.counts_ = []
        for i, curve in enumerate(self.curves if is_counted else []):
            # Bars along the bottom; the highest has the same height in all displays, and its count above it.
            edges, highest = np.linspace(0.0, 1.0, len(curve.spread) + 1), curve.spread.argmax()
            look = {"color": self.lines_[i].lines[0].get_color(), "alpha": 0.25, "width": np.diff(edges)}
            height, across = STRIP * curve.spread / curve.spread[highest], self.ax_.get_xaxis_transform()
            self.counts_.append(self.ax_.bar(edges[:-1], height, align="edge", transform=across, **look))
            middle = np.clip(edges[highest : highest + 2].mean(), 0.08, 0.92)  # keeps the text inside
            self.ax_.annotate(f"{curve.spread[highest]} rows", (middle, STRIP), xycoords=("data", "axes fraction"),
                              xytext=(0, 2 + 9 * (before + i)), textcoords="offset points", ha="center",
                              fontsize="x-small", color=look["color"])  # fmt: skip
        if before == 0:
            self.ax_.plot([0, 1], [0, 1], color="0.55", linestyle=(0, (4, 3)), linewidth=1.0, zorder=1)
        self.ax_.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
        self.ax_.set_aspect("equal")
        is_short = len(self.ax_.get_legend_handles_labels()[1]) <= MAX_ABOVE
        loc, anchor = ("lower left", (0.0, 1.0)) if is_short else ("center left", (1.0, 0.5))  # curves may be anywhere
        self.ax_.legend(frameon=False, fontsize="small", loc=loc, bbox_to_anchor=anchor)
        return self


def _error(curve: ReliabilityCurve) -> str:
    spread = "" if curve.interval is None else f", 95 %: {curve.interval.low:.3f} to {curve.interval.high:.3f}"
    return f"ECE {curve.ece:.3f}{spread}"
