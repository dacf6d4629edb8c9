"""Which features matter, and for which class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavity.plot.style import COLORS, axes_for, look, names_of
from cavity.report.figures import plain
from cavity.report.relevance import relevance_of

Array = NDArray[np.float64]

MOST_DOTS = len(COLORS)  # classes that can be told apart as dots


class RelevanceDisplay:
    """Relevance of each feature: one over its length-scale, in units of the scaled features.

    A latent function hardly moves along a feature whose length-scale is long, so such a feature says little of the
    class. A short one does not prove that a feature is useful, and of two features that say the same either may get it.
    Of a sum or product of kernels it is the root mean square of the slope of f, over its standard deviation.

    Args:
        relevance: (C, D), or (1, D) where the classes share a kernel.
        classes: labels, in the order of the rows.
        feature_names: in the order of the columns.

    Attributes:
        relevance, classes, feature_names: as given.
        order_: numbers of the features drawn, the most relevant first.
        ax_, figure_: where it was drawn last.
        bars_: the means over the classes; None in a heat map.
        dots_: one collection of points for each class; none in a heat map.
        image_, colorbar_: the heat map; None with bars.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = GPClassifier(max_epochs=20, random_state=0).fit(X, y)
    >>> display = RelevanceDisplay.from_estimator(clf, top=2)
    >>> display.relevance.shape, len(display.order_)
    ((3, 4), 2)
    """

    def __init__(self, relevance: ArrayLike, *, classes: ArrayLike, feature_names: Iterable[Any]) -> None:
        self.relevance = np.atleast_2d(np.asarray(relevance, dtype=np.float64))
        self.classes, self.feature_names = (
            np.asarray(classes),
            np.array([str(name) for name in feature_names], dtype=object),
        )
        wanted = len(self.feature_names), len(self.classes)
        if self.relevance.shape[1] != wanted[0] or len(self.relevance) not in (1, wanted[1]):
            raise ValueError(f"relevance has shape {self.relevance.shape}; (1 or {wanted[1]}, {wanted[0]}) is needed")

    @classmethod
    def from_estimator(
        cls, clf: Any, *, feature_names: Iterable[Any] | None = None, ax: Any = None, **kw: Any
    ) -> RelevanceDisplay:
        """Of a fitted `GPClassifier`.

        Args:
            clf: the classifier.
            feature_names: by default those of the frame it was fitted on, or numbers.
            ax: axes to draw on; a new figure by default.
            kw: as for `plot`.
        """
        relevance = _relevance(clf)
        names = names_of(clf, relevance.shape[1], feature_names)
        return cls(relevance, classes=clf.classes_, feature_names=list(names)).plot(ax, **kw)

    def plot(self, ax: Any = None, *, kind: str = "auto", top: int | None = 15, **kw: Any) -> RelevanceDisplay:
        """Draw it.

        Args:
            ax: axes; a new figure by default.
            kind: "bars" (the mean over the classes, with a dot for each class), "heatmap" (classes by features), or
                "auto": bars where there are few classes.
            top: how many features, the most relevant first; None for all.
            kw: for `Axes.barh` or `Axes.imshow`.

        Returns:
            The display itself.
        """
        if kind not in ("auto", "bars", "heatmap"):
            raise ValueError(f"kind={kind!r} cannot be used; 'auto', 'bars' or 'heatmap' may be")
        if top is not None and top < 1:
            raise ValueError(f"top={top} cannot be used; a number of features from 1 up, or None for all")
        self.order_ = np.argsort(-self.relevance.mean(0), kind="stable")[:top]
        is_bars = kind == "bars" or (kind == "auto" and len(self.relevance) <= MOST_DOTS)
        width = 5.6 if is_bars else 3.6 + 0.35 * len(self.relevance)
        self.ax_ = axes_for(ax, width, max(2.6, 1.2 + 0.26 * len(self.order_)))
        self.figure_ = self.ax_.figure
        self.bars_: Any = None
        self.dots_: list[Any] = []
        self.image_: Any = None
        self.colorbar_: Any = None
        (self._bars if is_bars else self._heatmap)(kw)
        return self

    def _bars(self, kw: dict[str, Any]) -> None:
        plain(self.ax_, grid="x")
        places, shown = np.arange(len(self.order_)), self.relevance[:, self.order_]
        self.bars_ = self.ax_.barh(places, shown.mean(0), **({"color": "0.85", "height": 0.7} | kw))
        self.dots_ = [] if len(shown) == 1 else [self._dots(k, places, row) for k, row in enumerate(shown)]
        self.ax_.set_yticks(places, self.feature_names[self.order_])
        self.ax_.set(xlabel="relevance: 1 / length-scale", ylim=(len(places) - 0.4, -0.6))
        self.ax_.tick_params(axis="y", length=0)
        if self.dots_:
            self.ax_.legend(title="class", frameon=False, loc="lower right", fontsize="small")

    def _dots(self, k: int, places: NDArray[np.int64], row: Array) -> Any:
        style = look(k)
        return self.ax_.scatter(row, places, s=26, color=style.color, marker=style.marker, edgecolors="white",
                                linewidths=0.6, label=str(self.classes[k]), zorder=3)  # fmt: skip

    def _heatmap(self, kw: dict[str, Any]) -> None:
        shown = self.relevance[:, self.order_].T
        limits = {"vmin": 0.0, "aspect": "auto", "cmap": "Blues"}
        self.image_ = self.ax_.imshow(shown, **(limits | kw))
        self.colorbar_ = self.figure_.colorbar(self.image_, ax=self.ax_, label="relevance: 1 / length-scale")
        self.colorbar_.outline.set_visible(False)
        labels = [str(label) for label in self.classes] if shown.shape[1] > 1 else ["all classes"]
        self.ax_.set_yticks(np.arange(len(shown)), self.feature_names[self.order_])
        self.ax_.set_xticks(np.arange(len(labels)), labels)
        self.ax_.set_xlabel("class")
        self.ax_.spines[:].set_visible(False)
        self.ax_.tick_params(length=0)


def _relevance(clf: Any) -> Array:
    """Of a fitted classifier's kernel, (C or 1, D)."""
    kernel = getattr(clf, "kernel_", None)
    if kernel is None:
        raise TypeError(f"{type(clf).__name__} has no kernel_; a fitted GPClassifier is needed (of a pipeline the last "
                        "step, pipeline[-1])")  # fmt: skip
    found = relevance_of(kernel)
    if found is None:
        raise ValueError(
            f"the kernel {type(kernel).__name__} has no part with length-scales, so there is nothing to draw"
        )
    return found
