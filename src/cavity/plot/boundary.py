"""What a classifier says all over a plane: which class, how sure, and why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavity.plot.plane import Plane, plane_of
from cavity.plot.style import INK, axes_for, look, probabilities

Array = NDArray[np.float64]

SHADES = ("confidence", "total", "aleatoric", "epistemic")
COARSE = 50  # points along each axis, where an uncertainty is asked for
DARKEST = 1.6  # times what is found would be black: lines and rows must stay visible
PALEST, FULL = 0.06, 0.55  # share of its color that a class keeps where it is no likelier than others, and where sure


class BoundaryDisplay:
    """Decision boundary of a classifier over two features.

    The color is that of the most probable class, paler where it is less sure; lines are drawn where the class changes.
    In place of the confidence, the shade may be one of the uncertainties of a `GPClassifier`.

    Args:
        plane: the grid of points, and names of its two axes.
        proba: probabilities at its points, (height, width, C).
        classes: labels, in the order of the last axis.
        entropy: name and values of an uncertainty in nats, on a grid of the same corners that may be coarser; None
            shades by confidence.
        rows: labeled rows, ((N, 2), labels); labels may be None.
        inducing: inducing points, (n, 2).

    Attributes:
        ax_, figure_: where it was drawn last.
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
        fixed: str | Mapping[Any, float] | ArrayLike = "median",
        shade: str = "confidence",
        resolution: int = 120,
        margin: float = 0.15,
        ax: Any = None,
        **kw: Any,
    ) -> BoundaryDisplay:
        """Of any fitted classifier that has `predict_proba`.

        Args:
            clf: the classifier.
            X: rows to show, an array or a frame; the plane reaches a little beyond them.
            y: their labels; None shows them in grey.
            features: the two features to draw, by number or name; needed where there are more.
            fixed: what the other features are held at: "median" or "mean" of X, a value for each feature, or a dict
                from feature to value (the rest at the median).
            shade: "confidence", or for a `GPClassifier` "total", "aleatoric" or "epistemic" uncertainty.
            resolution: points along each axis; for an uncertainty, which takes far longer, no more than 50.
            margin: how far beyond the rows, as a share of their range.
            ax: axes to draw on; a new figure by default.
            kw: as for `plot`.
        """
        if shade not in SHADES:
            raise ValueError(f"shade={shade!r} cannot be used; one of {SHADES} may be")
        plane = plane_of(clf, X, features, fixed, resolution, margin)
        proba = probabilities(clf, plane.points).reshape(resolution, resolution, -1)
        labels = None if y is None else _labels(y, plane, np.asarray(clf.classes_))
        entropy = None
        if shade != "confidence":
            coarse = min(resolution, COARSE)
            entropy = shade, _entropy(clf, plane_of(clf, X, features, fixed, coarse, margin), shade)
        display = cls(plane, proba, np.asarray(clf.classes_), entropy=entropy, rows=(plane.shown, labels),
                      inducing=_inducing(clf, plane))  # fmt: skip
        return display.plot(ax, **kw)

    def plot(self, ax: Any = None, *, rows: bool = True, inducing: bool = False, **kw: Any) -> BoundaryDisplay:
        """Draw it.

        Args:
            ax: axes; a new figure by default.
            rows: whether to show the rows.
            inducing: whether to show the inducing points, where the classifier has some.
            kw: for `Axes.imshow`: cmap, alpha, …

        Returns:
            The display itself.
        """
        self.ax_ = axes_for(ax, 5.4, 4.4)
        self.figure_ = self.ax_.figure
        self.surface_ = self._surface(kw)
        self.colorbar_ = self._colorbar()
        self.boundary_ = [self._boundary(k) for k in range(len(self.classes))]
        self.rows_ = self._rows(*self.rows) if rows and self.rows is not None else []
        self.inducing_ = self._inducing(self.inducing) if inducing and self.inducing is not None else None
        self._frame()
        return self

    def _surface(self, kw: dict[str, Any]) -> Any:
        image = _tints(self.proba) if self.entropy is None else self.entropy[1]
        settings = {
            "origin": "lower",
            "aspect": "auto",
            "interpolation": "bilinear",
            "extent": self.plane.extent(image),
        }
        if self.entropy is None:
            return self.ax_.imshow(image, **(settings | kw))
        limits = {"cmap": "Greys", "vmin": 0.0, "vmax": DARKEST * (float(image.max()) or 1.0)}
        return self.ax_.imshow(image, **(settings | limits | kw))

    def _colorbar(self) -> Any:
        if self.entropy is None:
            return None
        bar = self.figure_.colorbar(self.surface_, ax=self.ax_, label=f"{self.entropy[0]} uncertainty / nats")
        bar.outline.set_visible(False)
        bar.ax.set_ylim(bar.vmin, min(bar.vmax, float(self.entropy[1].max()) or bar.vmax))
        return bar

    def _boundary(self, k: int) -> Any:
        """Where class k is as probable as the best of the others."""
        others = np.delete(self.proba, k, axis=-1).max(-1, initial=0.0)
        lead = self.proba[..., k] - others
        if lead.min() >= 0 or lead.max() <= 0:
            return None  # contour warns of a line that is nowhere
        return self.ax_.contour(*self.plane.axes, lead, levels=[0.0], colors=INK, linewidths=1.0)

    def _rows(self, points: Array, labels: NDArray[Any] | None) -> list[Any]:
        settings: dict[str, Any] = {"s": 22, "edgecolors": "white", "linewidths": 0.6}
        if self.plane.note:
            settings["alpha"] = 0.55  # they lie beside the plane
        if labels is None:
            return [self.ax_.scatter(*points.T, color="0.35", **settings)]
        looks = [{"color": look(k).color, "marker": look(k).marker} for k in range(len(self.classes))]
        return [
            self.ax_.scatter(*points[labels == label].T, label=str(label), **settings, **style)
            for label, style in zip(self.classes, looks, strict=True)
        ]

    def _inducing(self, points: Array) -> Any:
        return self.ax_.scatter(*points.T, s=26, marker="+", color=INK, linewidths=0.9, label="inducing points")

    def _frame(self) -> None:
        x, y = (axis[[0, -1]] for axis in self.plane.axes)
        self.ax_.set(xlim=x, ylim=y, xlabel=self.plane.names[0], ylabel=self.plane.names[1])
        self.ax_.spines[["top", "right"]].set_visible(False)
        if self.plane.note:
            self.ax_.set_title(self.plane.note, fontsize="small", loc="left", color="0.35")
        if any(box.get_label()[:1] != "_" for box in self.ax_.collections):
            self.ax_.legend(loc="best", fontsize="small", framealpha=0.85, edgecolor="none")


def _labels(y: Any, plane: Plane, classes: NDArray[Any]) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.shape != (len(plane.shown),):
        raise ValueError(f"y has shape {labels.shape}; ({len(plane.shown)},) is needed, a label for each row of X")
    unknown = labels[~np.isin(labels, classes)]
    if len(unknown):
        raise ValueError(f"y holds the label {unknown[0]!r}, which is not among classes_={classes!r}")
    return labels


def _tints(proba: Array) -> Array:
    """The color of the most probable class, mixed with white by how far it is from knowing nothing."""
    from matplotlib.colors import to_rgb

    count = proba.shape[-1]
    colors = np.array([to_rgb(look(k).color) for k in range(count)])[proba.argmax(-1)]
    sure = (proba.max(-1) - 1 / count) / (1 - 1 / count) if count > 1 else np.ones(proba.shape[:-1])
    weight = (PALEST + (FULL - PALEST) * sure)[..., None]
    return 1.0 - weight * (1.0 - colors)


def _entropy(clf: Any, plane: Plane, shade: str) -> Array:
    if not hasattr(clf, "uncertainty"):
        raise TypeError(f"shade={shade!r} needs a classifier with uncertainty(X), a GPClassifier; "
                        f"{type(clf).__name__} takes shade='confidence'")  # fmt: skip
    found = np.asarray(getattr(clf.uncertainty(plane.points), shade), dtype=np.float64)
    return found.reshape(len(plane.axes[1]), len(plane.axes[0]))


def _inducing(clf: Any, plane: Plane) -> Array | None:
    """Of all classes, each point once."""
    points = getattr(clf, "inducing_points_", None)
    if points is None:
        return None
    return np.unique(np.asarray(points).reshape(-1, np.shape(points)[-1])[:, list(plane.places)], axis=0)
