"""The matplotlib style of every plot, in the colors of `cavity.report.palette`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.report.palette import COLORS

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")


class Style(NamedTuple):
    """How a class, curve or method is drawn: by color, marker and line, so that it can be told apart in gray."""

    label: str
    color: str
    marker: str
    line: Any


def nth_style(i: int) -> Style:
    """Return the style of class or curve i; after seven, colors repeat with other markers and lines."""
    again = i // len(COLORS)
    return Style("", COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)], (0, (4, 1 + again)) if again else "-")


def axes_for(ax: Any, width: float, height: float) -> Any:
    """Return the given axes, or those of a new pyplot figure, which a notebook shows; sizes in inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'cavity[report]'") from error
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def plain(axes: Any, grid: str = "y") -> Any:
    """Remove what axes do not need, and draw a pale grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="0.92")
    axes.set_axisbelow(True)
    return axes


def probabilities(clf: Any, X: Any) -> NDArray[np.float64]:
    """Return the probabilities of any fitted classifier, (N, C)."""
    if not (hasattr(clf, "predict_proba") and hasattr(clf, "classes_")):
        raise TypeError(f"`clf` must be a fitted classifier with predict_proba and classes_, got {clf!r}.")
    return np.asarray(clf.predict_proba(X), dtype=np.float64)
