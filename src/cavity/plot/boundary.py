"""Plot the decision boundary of a classifier over two features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavity.metrics import Array, one_hot
from cavity.plot.style import axes_for, nth_style, probabilities
from cavity.report.features import feature_names
from cavity.report.palette import INK

Fixed = str | Mapping[Any, float] | ArrayLike

SHADES = ("confidence", "total", "aleatoric", "epistemic")
COARSE = 50  # points along each axis for an uncertainty, which is slow to compute
DARKEST = 1.6  # times the largest value would be black: lines and rows must stay visible
PALEST, FULL = 0.06, 0.55  # share of color that a class keeps at chance level, and at full confidence


class Plane(NamedTuple):
    """A grid over two features, with the others fixed."""

    axes: list[Array]  # the values along both axes
    points: Any  # with all features, row by row from the bottom; a data frame if the rows are one
    shown: Array  # the two features of the rows, (N, 2)
    columns: list[int]  # the indices of these features
    names: list[str]  # of these features
    note: str = ""  # the values of the other features, for the title; empty if there are none


class BoundaryDisplay:
    """Decision boundary of a classifier over two features.

    The color is that of the most probable class, paler at lower confidence; lines separate the classes. For a
    `GPClassifier`, the shade can also be one of its uncertainties.

    Args:
        plane: the grid of points, and the names of its axes.
        proba: probabilities at these points, (height, width, C).
        classes: labels, in the order of the last axis.
        entropy: name and values of an uncertainty in nats, on a grid of the same corners that can be coarser; None
            shades by confidence.
        rows: labeled rows, ((N, 2), labels); the labels can be None.
        inducing: inducing points, (n, 2).

    Attributes:
        ax_, figure_: of the last drawing.
        surface_: the image.
        boundary_: one set of contour lines for each class.
        rows_: one collection of points for each class.
        inducing_: the collection of inducing points, or None.
        colorbar_: of the uncertainty, or None.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(n_inducing=20, max_epochs=20, random_state=0).fit(X[:, 2:], y)
    >>> display = BoundaryDisplay.from_estimator(clf, X[:, 2:], y, resolution=20)
    >>> display.proba.shape
    (20, 20, 3)
    """

    def __init__(
        self,
        plane: Plane,
        proba: Array,
        classes: NDArray[Any],
        *,
        entropy: tuple[str, Array] | None = None,
        rows: tuple[Array, NDArray[Any] | None] | None = None,
        inducing: Array | None = None,
    ) -> None:
        self.plane, self.proba, self.classes = plane, proba, classes
        self.entropy, self.rows, self.inducing = entropy, rows, inducing

    @classmethod
    def from_estimator(
        cls,
        clf: Any,
        X: Any,
        y: Any = None,
        *,
        features: Iterable[Any] | None = None,
        fixed: Fixed = "median",
        shade: str = "confidence",
        resolution: int = 120,
        margin: float = 0.15,
        ax: Any = None,
        **kw: Any,
    ) -> BoundaryDisplay:
        """Plot any fitted classifier that has `predict_proba`.

        Args:
            clf: the classifier.
            X: rows to show, an array or a data frame; the plane extends a little beyond them.
            y: their labels; None shows them in gray.
            features: the two features to draw, by index or name; required if there are more.
            fixed: the values of the other features: "median" or "mean" of X, one value for each feature, or a dict
                from feature to value (the rest at the median).
            shade: "confidence", or for a `GPClassifier` "total", "aleatoric" or "epistemic" uncertainty.
            resolution: points along each axis; at most 50 for an uncertainty, which takes much longer.
            margin: how far the plane extends beyond the rows, as a share of their range.
            ax: axes to draw on; a new figure by default.
            kw: as for `plot`.
        """
        if shade not in SHADES:
            raise ValueError(f"`shade` must be one of {SHADES}, got shade={shade!r}.")
        plane = make_plane(clf, X, features, fixed, resolution, margin)
        proba = probabilities(clf, plane.points).reshape(resolution, resolution, -1)
        classes = np.asarray(clf.classes_)
        n, labels = len(plane.shown), None if y is None else np.asarray(y)
        if labels is not None:
            if labels.shape != (n,):
                raise ValueError(f"`y` must have shape ({n},), a label for each row of X, got {labels.shape}.")
            one_hot(labels, classes)  # raises if a label is unknown
        entropy = None
        if shade != "confidence":
            if not hasattr(clf, "uncertainty"):
                raise TypeError(f"shade={shade!r} needs a classifier with uncertainty(X), such as GPClassifier, got "
                                f"{type(clf).__name__}; use shade='confidence'.")  # fmt: skip
            size = min(resolution, COARSE)
            coarse = make_plane(clf, X, features, fixed, size, margin)
            values = np.asarray(getattr(clf.uncertainty(coarse.points), shade), dtype=np.float64)
            entropy = shade, values.reshape(size, size)
        inducing = getattr(clf, "inducing_points_", None)
        if inducing is not None:  # of all classes, each point once
            points = np.asarray(inducing).reshape(-1, np.shape(inducing)[-1])
            inducing = np.unique(points[:, plane.columns], axis=0)
        display = cls(plane, proba, classes, entropy=entropy, rows=(plane.shown, labels), inducing=inducing)
        return display.plot(ax, **kw)

    def plot(self, ax: Any = None, *, rows: bool = True, inducing: bool = False, **kw: Any) -> BoundaryDisplay:
        """Draw the display.

        Args:
            ax: axes; a new figure by default.
            rows: whether to show the rows.
            inducing: whether to show the inducing points, if the classifier has some.
            kw: for `Axes.imshow`: cmap, alpha, …

        Returns:
            The display itself.
        """
        self.ax_ = axes_for(ax, 5.4, 4.4)
        self.figure_ = self.ax_.figure
        self._draw_surface(kw)
        self.boundary_ = []
        for k in range(len(self.classes)):  # where class k is as probable as the best of the others
            lead = self.proba[..., k] - np.delete(self.proba, k, axis=-1).max(-1, initial=0.0)
            style = {"levels": [0.0], "colors": INK, "linewidths": 1.0}
            is_seen = lead.min() < 0 < lead.max()  # contour warns if there is no line
            self.boundary_.append(self.ax_.contour(*self.plane.axes, lead, **style) if is_seen else None)
        self.rows_ = []
        if rows and self.rows is not None:
            points, labels = self.rows
            settings: dict[str, Any] = {"s": 22, "edgecolors": "white", "linewidths": 0.6}
            settings |= {"alpha": 0.55} if self.plane.note else {}  # the rows are not in the plane
            if labels is None:
                self.rows_.append(self.ax_.scatter(*points.T, color="0.35", **settings))
            for k, c in enumerate(self.classes if labels is not None else []):
                style = {"label": str(c), "color": nth_style(k).color, "marker": nth_style(k).marker}
                self.rows_.append(self.ax_.scatter(*points[labels == c].T, **style, **settings))
        self.inducing_ = None
        if inducing and self.inducing is not None:
            self.inducing_ = self.ax_.scatter(*self.inducing.T, s=26, marker="+", color=INK, linewidths=0.9,
                                              label="inducing points")  # fmt: skip
        x, y = (axis[[0, -1]] for axis in self.plane.axes)
        self.ax_.set(xlim=x, ylim=y, xlabel=self.plane.names[0], ylabel=self.plane.names[1])
        self.ax_.spines[["top", "right"]].set_visible(False)
        if self.plane.note:
            self.ax_.set_title(self.plane.note, fontsize="small", loc="left", color="0.35")
        if any(drawn.get_label()[:1] != "_" for drawn in self.ax_.collections):
            self.ax_.legend(loc="best", fontsize="small", framealpha=0.85, edgecolor="none")
        return self

    def _draw_surface(self, kw: dict[str, Any]) -> None:
        """Draw an image whose outer pixels are centered at the ends of the axes; an uncertainty has a color bar."""
        from matplotlib.colors import to_rgb

        self.colorbar_, count = None, len(self.classes)
        if self.entropy is None:  # the color of the best class, paler where its probability is closer to chance
            colors = np.array([to_rgb(nth_style(k).color) for k in range(count)])[self.proba.argmax(-1)]
            above = (self.proba.max(-1) - 1 / count) / (1 - 1 / count) if count > 1 else np.ones(self.proba.shape[:-1])
            image, limits = 1.0 - (PALEST + (FULL - PALEST) * above)[..., None] * (1.0 - colors), {}
        else:
            image, highest = self.entropy[1], float(self.entropy[1].max())
            limits = {"cmap": "Greys", "vmin": 0.0, "vmax": DARKEST * (highest or 1.0)}
        extent: list[float] = []
        for axis, pixels in zip(self.plane.axes, (image.shape[1], image.shape[0]), strict=True):
            half = 0.5 * (axis[-1] - axis[0]) / (pixels - 1)
            extent += [float(axis[0] - half), float(axis[-1] + half)]
        settings = {"origin": "lower", "aspect": "auto", "interpolation": "bilinear", "extent": extent}
        self.surface_ = self.ax_.imshow(image, **(settings | limits | kw))
        if self.entropy is not None:
            label = f"{self.entropy[0]} uncertainty / nats"
            self.colorbar_ = bar = self.figure_.colorbar(self.surface_, ax=self.ax_, label=label)
            bar.outline.set_visible(False)
            bar.ax.set_ylim(bar.vmin, min(bar.vmax, highest or bar.vmax))


def make_plane(clf: Any, X: Any, features: Iterable[Any] | None, fixed: Fixed, resolution: int, margin: float) -> Plane:
    """Make a grid over two features that extends a little beyond the rows; arguments as for `BoundaryDisplay`."""
    if resolution < 2:
        raise ValueError(f"`resolution` must be at least 2, got resolution={resolution}.")
    rows = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X, dtype=np.float64)
    if rows.ndim != 2 or not len(rows) or rows.shape[1] < 2:
        raise ValueError(f"`X` must have shape (N, D) with rows and at least two features, got {rows.shape}.")
    if not np.isfinite(rows).all():
        raise ValueError("`X` must be finite, got missing or infinite values.")
    names = feature_names(clf, rows.shape[1], getattr(X, "columns", None))
    if features is None and len(names) > 2:
        raise ValueError(f"`features` must name two of the {len(names)} features of X, for example "
                         f"features=({names[0]!r}, {names[1]!r}); the others are fixed.")  # fmt: skip
    columns = [_column(feature, names) for feature in ((0, 1) if features is None else features)]
    if len(columns) != 2 or columns[0] == columns[1]:
        raise ValueError(f"`features` must be two different features, got features={features!r}.")
    axes = []
    for x in rows[:, columns].T:
        low, high = float(x.min()), float(x.max())
        beyond = margin * (high - low) if high > low else 0.5 * max(abs(low), 1.0)  # if constant
        axes.append(np.linspace(low - beyond, high + beyond, resolution))
    base, note = _fixed_values(fixed, rows, names, columns)
    points: Any = np.tile(base, (resolution * resolution, 1))
    points[:, columns] = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    if hasattr(X, "columns"):  # a classifier can require the feature names of its training frame
        named = list(X.columns)
        points = type(X)(points, columns=named) if hasattr(X, "iloc") else type(X)(points, schema=named)
    return Plane(axes, points, rows[:, columns], columns, [names[i] for i in columns], note)


def _column(feature: Any, names: list[str]) -> int:
    """The index of a feature given by name or index."""
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"The feature {feature!r} must be one of {names}.")
        return names.index(feature)
    if not 0 <= int(feature) < len(names):
        raise ValueError(f"The feature {feature!r} must be an index from 0 to {len(names) - 1}.")
    return int(feature)


def _fixed_values(fixed: Any, rows: Array, names: list[str], drawn: list[int]) -> tuple[Array, str]:
    """The values of the features, and a note about those not drawn."""
    has_others = rows.shape[1] > 2
    if isinstance(fixed, str):
        if fixed not in ("median", "mean"):
            raise ValueError(f"`fixed` must be 'median', 'mean', a dict or one value per feature, got fixed={fixed!r}.")
        base = np.median(rows, axis=0) if fixed == "median" else rows.mean(0)
        return base, f"other features at their {fixed}" if has_others else ""
    if isinstance(fixed, Mapping):
        base = np.median(rows, axis=0)
        held = {_column(feature, names): float(value) for feature, value in fixed.items()}
        base[list(held)] = list(held.values())
        shown = ", ".join(f"{names[i]} = {value:g}" for i, value in held.items() if i not in drawn)
        return base, shown if len(held) >= rows.shape[1] - 2 else ", ".join(filter(None, [shown, "others at median"]))
    base = np.asarray(fixed, dtype=np.float64)
    if base.shape != (rows.shape[1],):
        raise ValueError(f"`fixed` must have shape ({rows.shape[1]},), a value for each feature, got {base.shape}.")
    return base, "other features at given values" if has_others else ""
