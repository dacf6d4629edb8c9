"""Does a confidence of 80 % come true in 80 % of the rows?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavity.metrics import bins_of, calibration_error
from cavity.plot.style import axes_for, look, probabilities
from cavity.report.figures import plain
from cavity.report.intervals import wilson

Array = NDArray[np.float64]

STRIP = 0.16  # of the height of the axes
MOST_ABOVE = 4  # entries of a legend


class Curve(NamedTuple):
    """The bins of one classifier or class, rising.

    Attributes:
        name: for the legend.
        confidence: mean confidence of each bin.
        accuracy: share of its rows in which it came true.
        low, high: 95 % interval of that share (Wilson).
        rows: number of rows of each bin.
        ece: expected calibration error over 15 bins of equally many rows, as `cavity.metrics` has it.
        spread: rows by confidence, in bins of one width from 0 to 1.
    """

    name: str
    confidence: Array
    accuracy: Array
    low: Array
    high: Array
    rows: NDArray[np.int64]
    ece: float
    spread: NDArray[np.int64]


class ReliabilityDisplay:
    """Reliability diagram: how often predictions come true, by how sure the classifier is of them.

    On the diagonal confidence is right; below it, the classifier is over-confident. Bars show what chance allows with
    so few rows, and the strip at the bottom how many rows have which confidence.

    Args:
        curves: what to draw; `from_estimator` and `from_predictions` make them.

    Attributes:
        curves: as given.
        ax_, figure_: where it was drawn last.
        lines_: one line with its error bars for each curve.
        counts_: one strip of row counts for each curve, where they are shown.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(max_epochs=20, random_state=0).fit(X[::2], y[::2])
    >>> display = ReliabilityDisplay.from_estimator(clf, X[1::2], y[1::2])
    >>> int(display.curves[0].rows.sum())
    75
    """

    def __init__(self, curves: Sequence[Curve]) -> None:
        self.curves = list(curves)

    @classmethod
    def from_estimator(cls, clf: Any, X: Any, y: Any, *, name: str | None = None, **more: Any) -> ReliabilityDisplay:
        """Of any fitted classifier that has `predict_proba`, on rows that it has not learned from.

        Args:
            clf: the classifier.
            X: features, (N, D).
            y: labels, (N,).
            name: for the legend; the classifier's class by default.
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
        """Of probabilities, whoever made them.

        Args:
            y: labels, (N,).
            proba: probabilities, (N, C).
            classes: the labels of the columns.
            by_class: False for the most probable label of every row; True for the probability of each class, a curve
                each; or the labels of the classes to draw.
            n_bins: at most.
            strategy: "uniform" (bins of one width) or "quantile" (equally many rows in each).
            name: for the legend.
            ax: axes to draw on; a new figure by default.
            kw: as for `plot`.
        """
        labels, p, truth = _checked(y, proba, classes)
        if isinstance(by_class, bool) and not by_class:
            best = p.argmax(1)
            pairs = [(name, p.max(1), truth[np.arange(len(p)), best])]
        else:
            chosen = _places(labels, by_class)
            pairs = [(str(labels[k]), p[:, k], truth[:, k]) for k in chosen]
        return cls([_curve(*pair, n_bins, strategy) for pair in pairs]).plot(ax, **kw)

    def plot(
        self, ax: Any = None, *, intervals: bool = True, counts: bool | None = None, **kw: Any
    ) -> ReliabilityDisplay:
        """Draw it.

        Args:
            ax: axes; a new figure by default.
            intervals: whether to show the 95 % intervals.
            counts: whether to show how many rows have which confidence; by default with a single curve.
            kw: for `Axes.errorbar`: color, marker, …

        Returns:
            The display itself.
        """
        self.ax_ = plain(axes_for(ax, 4.6 if len(self.curves) <= MOST_ABOVE else 6.2, 4.4), grid="both")
        self.figure_ = self.ax_.figure
        drawn = _lines_before(self.ax_)
        self.lines_ = [self._line(drawn + i, curve, intervals, kw) for i, curve in enumerate(self.curves)]
        is_counted = len(self.curves) == 1 if counts is None else counts
        self.counts_ = [self._strip(drawn, i, curve) for i, curve in enumerate(self.curves)] if is_counted else []
        self._frame(drawn == 0)
        return self

    def _line(self, place: int, curve: Curve, intervals: bool, kw: dict[str, Any]) -> Any:
        style = look(place)
        error = np.clip([curve.accuracy - curve.low, curve.high - curve.accuracy], 0.0, None) if intervals else None
        settings = {"color": style.color, "marker": style.marker, "linestyle": style.line, "markersize": 5.5,
                    "linewidth": 1.5, "elinewidth": 1.0, "capsize": 2.0,
                    "label": f"{curve.name} (ECE {curve.ece:.3f})"}  # fmt: skip
        return self.ax_.errorbar(curve.confidence, curve.accuracy, yerr=error, **(settings | kw))

    def _strip(self, before: int, place: int, curve: Curve) -> Any:
        """Bars along the bottom, the highest of one height whatever it counts; its number stands above it."""
        edges, highest = np.linspace(0.0, 1.0, len(curve.spread) + 1), curve.spread.argmax()
        color = self.lines_[place].lines[0].get_color()
        height, across = STRIP * curve.spread / curve.spread[highest], self.ax_.get_xaxis_transform()
        bars = self.ax_.bar(edges[:-1], height, width=np.diff(edges), align="edge", color=color, alpha=0.25,
                            transform=across)  # fmt: skip
        middle = np.clip(edges[highest : highest + 2].mean(), 0.08, 0.92)  # its text stays inside
        self.ax_.annotate(f"{curve.spread[highest]} rows", (middle, STRIP), xycoords=("data", "axes fraction"),
                          xytext=(0, 2 + 9 * (before + place)), textcoords="offset points", ha="center",
                          fontsize="x-small", color=color)  # fmt: skip
        return bars

    def _frame(self, is_first: bool) -> None:
        if is_first:
            self.ax_.plot([0, 1], [0, 1], color="0.55", linestyle=(0, (4, 3)), linewidth=1.0, zorder=1)
        self.ax_.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="confidence", ylabel="share that came true")
        self.ax_.set_aspect("equal")
        self._legend(len(self.ax_.get_legend_handles_labels()[1]))

    def _legend(self, entries: int) -> None:
        """Above the axes, or beside them where it is long: curves may be anywhere inside."""
        above, beside = ("lower left", (0.0, 1.0)), ("center left", (1.0, 0.5))
        loc, anchor = above if entries <= MOST_ABOVE else beside
        self.ax_.legend(frameon=False, fontsize="small", loc=loc, bbox_to_anchor=anchor)


def _lines_before(ax: Any) -> int:
    """How many curves are there already: the next gets another color."""
    from matplotlib.container import ErrorbarContainer

    return sum(isinstance(box, ErrorbarContainer) for box in ax.containers)


def _checked(y: ArrayLike, proba: ArrayLike, classes: ArrayLike) -> tuple[NDArray[Any], Array, NDArray[np.bool_]]:
    labels, p, y = np.asarray(classes), np.asarray(proba, dtype=np.float64), np.asarray(y)
    if p.shape != (len(y), len(labels)) or not len(p):
        raise ValueError(f"proba has shape {p.shape}; ({len(y)}, {len(labels)}) is needed, a row for each label of y "
                         "and a column for each of classes, and one row at least")  # fmt: skip
    if not ((p >= 0) & (p <= 1 + 1e-6)).all():
        raise ValueError(f"proba has values from {p.min():.3g} to {p.max():.3g}; probabilities are needed")
    truth = y[:, None] == labels[None, :]
    if not truth.any(1).all():
        raise ValueError(f"y holds the label {y[~truth.any(1)][0]!r}, which is not among classes={labels!r}")
    return labels, p.clip(0.0, 1.0), truth


def _places(labels: NDArray[Any], by_class: bool | Iterable[Any]) -> list[int]:
    wanted = labels.tolist() if isinstance(by_class, bool) else list(by_class)
    unknown = [label for label in wanted if label not in labels.tolist()]
    if unknown or not wanted:
        raise ValueError(f"by_class={by_class!r} cannot be used; True, False or labels among {labels!r} may be")
    return [labels.tolist().index(label) for label in wanted]


def _curve(name: str, confidence: Array, came_true: NDArray[np.bool_], n_bins: int, strategy: str) -> Curve:
    if n_bins < 1:
        raise ValueError(f"n_bins={n_bins} cannot be used; a number of bins from 1 up is needed")
    bins = bins_of(confidence, n_bins, strategy)
    count = np.array([len(places) for places in bins])
    accuracy = np.array([came_true[places].mean() for places in bins])
    means = np.array([confidence[places].mean() for places in bins])
    spread = np.histogram(confidence, bins=n_bins, range=(0.0, 1.0))[0]
    interval, ece = wilson(accuracy * count, count), calibration_error(confidence, came_true)
    return Curve(name, means, accuracy, *interval, count, ece, spread)
