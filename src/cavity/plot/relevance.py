"""Plot the relevance of features, over all classes and for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cavity.plot.style import axes_for, nth_style, plain
from cavity.report import features
from cavity.report.palette import COLORS

MAX_DOTS = len(COLORS)  # classes that can be told apart as dots
LABEL = "relevance: 1 / length-scale"


class RelevanceDisplay:
    """Relevance of each feature: 1 / length-scale, in units of the scaled features.

    A latent function hardly changes along a feature of long length-scale, so such a feature says little about the
    class. A short length-scale does not prove that a feature is useful, and of two redundant features either can have
    it. For a sum or product of kernels, relevance is the root mean square slope of f over its standard deviation.

    In a table with categories, dates or gaps there is one entry for each column. The levels of a category share one
    length-scale. A column with several, such as a date with its cycles, has the root of the sum of their squared
    relevances. A column that is left out has relevance 0.

    Args:
        relevance: (C, D), or (1, D) if the classes share a kernel.
        classes: labels, in the order of the rows.
        feature_names: in the order of the columns.

    Attributes:
        relevance, classes, feature_names: as given.
        order_: indices of the features drawn, the most relevant first.
        ax_, figure_: of the last drawing.
        bars_: the means over the classes; None for a heat map.
        dots_: one collection of points for each class; empty for a heat map.
        image_, colorbar_: the heat map; None for bars.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = GPClassifier(max_epochs=20, random_state=0).fit(X, y)
    >>> display = RelevanceDisplay.from_estimator(clf, top=2)
    >>> display.relevance.shape, len(display.order_)
    ((3, 4), 2)
    """

    def __init__(self, relevance: ArrayLike, *, classes: ArrayLike, feature_names: Iterable[Any]) -> None:
        self.relevance, self.classes = np.atleast_2d(np.asarray(relevance, dtype=np.float64)), np.asarray(classes)
        self.feature_names = np.array([str(name) for name in feature_names], dtype=object)
        n_classes, n_features = len(self.classes), len(self.feature_names)
        if self.relevance.shape[1] != n_features or len(self.relevance) not in (1, n_classes):
            wanted = f"(1, {n_features}) or ({n_classes}, {n_features})"
            raise ValueError(f"`relevance` must have shape {wanted}, got {self.relevance.shape}.")

    @classmethod
    def from_estimator(
        cls, clf: Any, *, feature_names: Iterable[Any] | None = None, ax: Any = None, **kw: Any
    ) -> RelevanceDisplay:
        """Plot the relevance of a fitted `GPClassifier`.

        Args:
            clf: the classifier.
            feature_names: by default those of the training frame, or x0, x1, …
            ax: axes to draw on; a new figure by default.
            kw: as for `plot`.
        """
        kernel = getattr(clf, "kernel_", None)
        if kernel is None:
            raise TypeError(f"`clf` must be a fitted GPClassifier, got {type(clf).__name__} without kernel_; pass the "
                            "last step of a pipeline, pipeline[-1].")  # fmt: skip
        relevance = features.column_relevance(clf)
        if relevance is None:
            raise ValueError(f"The kernel must have length-scales to plot, but {type(kernel).__name__} has none.")
        names = features.feature_names(clf, relevance.shape[1], feature_names)
        return cls(relevance, classes=clf.classes_, feature_names=names).plot(ax, **kw)

    def plot(self, ax: Any = None, *, kind: str = "auto", top: int | None = 15, **kw: Any) -> RelevanceDisplay:
        """Draw the display.

        Args:
            ax: axes; a new figure by default.
            kind: "bars" (the mean over the classes, with a dot for each class), "heatmap" (classes by features), or
                "auto": bars if there are few classes.
            top: number of features, the most relevant first; None for all.
            kw: for `Axes.barh` or `Axes.imshow`.

        Returns:
            The display itself.
        """
        if kind not in ("auto", "bars", "heatmap"):
            raise ValueError(f"`kind` must be 'auto', 'bars' or 'heatmap', got kind={kind!r}.")
        if top is not None and top < 1:
            raise ValueError(f"`top` must be a positive int or None, got top={top}.")
        self.order_ = np.argsort(-self.relevance.mean(0), kind="stable")[:top]
        is_bars = kind == "bars" or (kind == "auto" and len(self.relevance) <= MAX_DOTS)
        width = 5.6 if is_bars else 3.6 + 0.35 * len(self.relevance)
        self.ax_ = axes_for(ax, width, max(2.6, 1.2 + 0.26 * len(self.order_)))
        self.figure_ = self.ax_.figure
        self.bars_ = self.image_ = self.colorbar_ = None
        self.dots_: list[Any] = []
        y, shown = np.arange(len(self.order_)), self.relevance[:, self.order_]
        if is_bars:
            plain(self.ax_, grid="x")
            self.bars_ = self.ax_.barh(y, shown.mean(0), **({"color": "0.85", "height": 0.7} | kw))
            for k, row in enumerate(shown if len(shown) > 1 else []):
                style = {"color": nth_style(k).color, "marker": nth_style(k).marker, "label": str(self.classes[k])}
                self.dots_.append(self.ax_.scatter(row, y, s=26, edgecolors="white", linewidths=0.6, zorder=3, **style))
            self.ax_.set(xlabel=LABEL, ylim=(len(y) - 0.4, -0.6))
            self.ax_.tick_params(axis="y", length=0)
            if self.dots_:
                self.ax_.legend(title="class", frameon=False, loc="lower right", fontsize="small")
        else:
            self.image_ = self.ax_.imshow(shown.T, **({"vmin": 0.0, "aspect": "auto", "cmap": "Blues"} | kw))
            self.colorbar_ = self.figure_.colorbar(self.image_, ax=self.ax_, label=LABEL)
            self.colorbar_.outline.set_visible(False)
            labels = [str(label) for label in self.classes] if len(shown) > 1 else [features.ALL_CLASSES]
            self.ax_.set_xticks(np.arange(len(labels)), labels)
            self.ax_.set_xlabel("class")
            self.ax_.spines[:].set_visible(False)
            self.ax_.tick_params(length=0)
        self.ax_.set_yticks(y, self.feature_names[self.order_])
        return self
