"""Plot the decision boundary of a classifier over two features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavity.data.labels import label_text
from cavity.data.schema import CATEGORY, LEFT_OUT, NUMBER, Column, find_schema, is_missing, needs_schema
from cavity.metrics import Array, one_hot
from cavity.plot.style import axes_for, nth_style, probabilities
from cavity.report.columns import value_text
from cavity.report.features import feature_names
from cavity.report.palette import INK

Fixed = str | Mapping[Any, Any] | ArrayLike

SHADES = ("confidence", "total", "aleatoric", "epistemic")
COARSE = 50  # points along each axis for an uncertainty, which is slow to compute
DARKEST = 1.6  # times the largest value would be black: lines and rows must stay visible
SHOWN_LEVELS = 10  # in a message
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
            X: rows to show, an array, a data frame or an Arrow table; the plane extends a little beyond them. Rows with
                a gap in one of the two features are not shown.
            y: their labels; None shows them in gray.
            features: the two features to draw, by index or name; required if there are more. They must hold numbers.
            fixed: the values of the other features: "median" or "mean" of X (for a category its most frequent level,
                for a date the median), one value for each feature, or a dict from feature to value or level (the rest
                at the median). None is a gap.
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
            points = np.asarray(inducing).reshape(-1, np.shape(inducing)[-1])[:, plane.columns].astype(np.float64)
            inducing = np.unique(points[~np.isnan(points).any(1)], axis=0)
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
    table = _Table.of(clf, X)
    rows, names = table.cells, table.names
    if rows.ndim != 2 or not len(rows) or rows.shape[1] < 2:
        raise ValueError(f"`X` must have shape (N, D) with rows and at least two features, got {rows.shape}.")
    if np.isinf(rows).any():
        raise ValueError("`X` must be finite, got infinite values.")
    if features is None and len(names) > 2:
        raise ValueError(f"`features` must name two of the {len(names)} features of X, for example "
                         f"features=({names[0]!r}, {names[1]!r}); the others are fixed.")  # fmt: skip
    columns = [_column(feature, names) for feature in ((0, 1) if features is None else features)]
    if len(columns) != 2 or columns[0] == columns[1]:
        raise ValueError(f"`features` must be two different features, got features={features!r}.")
    axes = []
    for i in columns:
        kind, x = table.columns[i], rows[~np.isnan(rows[:, i]), i]
        if kind.kind != NUMBER or not len(x):
            found = f"a {kind.describe()}" if kind.kind != LEFT_OUT and len(x) else "no values"
            raise ValueError(f"The feature {names[i]!r} must hold numbers to be drawn, got {found}. Draw others, and "
                             f"give this one a value with fixed={{{names[i]!r}: …}}.")  # fmt: skip
        low, high = float(x.min()), float(x.max())
        beyond = margin * (high - low) if high > low else 0.5 * max(abs(low), 1.0)  # if constant
        axes.append(np.linspace(low - beyond, high + beyond, resolution))
    base, note = _fixed_values(fixed, table, columns)
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    points = table.repeat(base, dict(zip(columns, grid.T, strict=True)))
    return Plane(axes, points, rows[:, columns], columns, [names[i] for i in columns], note)


class _Table(NamedTuple):
    """Rows of any kind, their cells (`cavity.data.schema`), and what the columns hold."""

    X: Any
    cells: Array
    columns: Sequence[Column]
    names: list[str]

    @staticmethod
    def of(clf: Any, X: Any) -> _Table:
        labels = getattr(X, "column_names", getattr(X, "columns", None))
        X = X if labels is not None or hasattr(X, "dtype") else np.array(X, dtype=object)
        schema = getattr(clf, "_schema", None)
        if schema is None and (hasattr(X, "column_names") or needs_schema(X, "from_dtype")):
            schema = find_schema(X)
        if schema is None:
            cells = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X, dtype=np.float64)
        else:
            cells = schema.read(X)
        width = cells.shape[-1]
        columns = (Column(None),) * width if schema is None else schema.columns
        return _Table(X, cells, columns, feature_names(clf, width, labels))

    def typical(self, j: int, how: str) -> Any:
        """Return a typical value of a column: a number, or for other kinds the index of a row that has it."""
        column, x = self.columns[j], self.cells[:, j]
        known = np.flatnonzero(~np.isnan(x))
        if column.kind == LEFT_OUT or not len(known):
            return None
        if column.kind == NUMBER:
            return float(np.mean(x[known]) if how == "mean" else np.median(x[known]))
        if column.kind == CATEGORY:
            return _Row(int(known[x[known] == np.bincount(x[known].astype(np.int64)).argmax()][0]))
        return _Row(int(known[np.argsort(x[known], kind="stable")[len(known) // 2]]))

    def given(self, j: int, value: Any) -> Any:
        """Check a value for a column."""
        column = self.columns[j]
        if is_missing(value) or column.kind == LEFT_OUT:
            return None
        if column.kind == CATEGORY:
            levels = column.levels or ()
            if label_text(value) not in levels:
                raise ValueError(f"`fixed` must have a level of {self.names[j]!r} or None, got {value!r}; its levels "
                                 f"are {', '.join(map(repr, levels[:SHOWN_LEVELS]))}"
                                 f"{' …' if len(levels) > SHOWN_LEVELS else ''}.")  # fmt: skip
            rows = np.flatnonzero(self.cells[:, j] == levels.index(label_text(value)))
            return _Row(int(rows[0])) if len(rows) else value  # of the type that the column has
        if column.kind != NUMBER:
            return value
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ValueError(f"`fixed` must have a number for {self.names[j]!r}, got {value!r}.") from None

    def repeat(self, base: list[Any], drawn: dict[int, Array]) -> Any:
        """Return a table of the same type with the values of `base` in every row, except in the drawn columns."""
        n = len(next(iter(drawn.values())))
        found: list[Any] = []
        for j, value in enumerate(base):
            if j in drawn or isinstance(value, float):
                found.append(drawn.get(j, np.full(n, value)))
            elif isinstance(value, _Row):
                found.append(self._column(j, np.full(n, value.at)))
            else:
                found.append(np.full(n, np.nan) if self.columns[j].kind == NUMBER else [value] * n)
        if hasattr(self.X, "column_names"):
            return type(self.X).from_pydict(dict(zip(self.names, found, strict=True)))
        if hasattr(self.X, "columns"):
            return type(self.X)(dict(zip(self.X.columns, found, strict=True)))
        if all(isinstance(part, np.ndarray) and part.dtype.kind == "f" for part in found):
            return np.column_stack(found)
        points = np.empty((n, len(found)), dtype=object)
        for j, part in enumerate(found):
            points[:, j] = part
        return points

    def _column(self, j: int, rows: NDArray[np.int64]) -> Any:
        if hasattr(self.X, "column_names"):
            return self.X.column(j).take(rows)
        if hasattr(self.X, "iloc"):
            return self.X.iloc[rows, j].array
        return self.X[self.X.columns[j]][rows] if hasattr(self.X, "columns") else self.X[rows, j]


class _Row(NamedTuple):
    """The row whose value is meant."""

    at: int


def _column(feature: Any, names: list[str]) -> int:
    """The index of a feature given by name or index."""
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"The feature {feature!r} must be one of {names}.")
        return names.index(feature)
    if not 0 <= int(feature) < len(names):
        raise ValueError(f"The feature {feature!r} must be an index from 0 to {len(names) - 1}.")
    return int(feature)


def _fixed_values(fixed: Any, table: _Table, drawn: list[int]) -> tuple[list[Any], str]:
    """Return a value for each column, as `_Table.repeat` takes them, and a note about those not drawn."""
    n, typical = len(table.names), "median"
    others = [column.kind for j, column in enumerate(table.columns) if j not in drawn]
    if any(kind == CATEGORY for kind in others):
        typical = "median or most frequent level" if any(kind != CATEGORY for kind in others) else "most frequent level"
    if isinstance(fixed, str):
        if fixed not in ("median", "mean"):
            raise ValueError(f"`fixed` must be 'median', 'mean', a dict or one value per feature, got fixed={fixed!r}.")
        base = [table.typical(j, fixed) for j in range(n)]
        return base, f"other features at their {typical.replace('median', fixed)}" if n > 2 else ""
    if isinstance(fixed, Mapping):
        held = {_column(feature, table.names): value for feature, value in fixed.items()}
        base = [table.given(j, held[j]) if j in held else table.typical(j, "median") for j in range(n)]
        texts = {i: f"{value:g}" if isinstance(value, int | float) else value_text(value) for i, value in held.items()}
        shown = ", ".join(f"{table.names[i]} = {text}" for i, text in texts.items() if i not in drawn)
        return base, shown if len(held) >= n - 2 else ", ".join(filter(None, [shown, f"others at {typical}"]))
    values = list(fixed)
    if np.ndim(fixed) > 1 or len(values) != n:
        raise ValueError(f"`fixed` must have shape ({n},), a value for each feature, got {np.shape(fixed)}.")
    return [table.given(j, value) for j, value in enumerate(values)], "other features at given values" if n > 2 else ""
