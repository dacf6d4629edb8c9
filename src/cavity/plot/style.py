"""What all displays share: axes, colors that stay apart for most kinds of color blindness, names of features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Those of Okabe and Ito, with grey for their yellow, which is pale on white; black belongs to no class.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
INK = "#222222"


class Look(NamedTuple):
    """How one class or curve is drawn: color, marker and line, so that no two are alike."""

    color: str
    marker: str
    line: Any


def look(place: int) -> Look:
    """Of curve number `place`: beyond the seventh the colors come again, with another marker and line."""
    again = place // len(COLORS)
    return Look(COLORS[place % len(COLORS)], MARKERS[place % len(MARKERS)], (0, (4, 1 + again)) if again else "-")


def axes_for(ax: Any, width: float, height: float) -> Any:
    """The axes given, or those of a new figure of pyplot, which a notebook shows; sizes in inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("a plot needs matplotlib: pip install 'cavity[report]'") from error
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def names_of(clf: Any, count: int, given: Iterable[Any] | None = None) -> NDArray[np.object_]:
    """Those given, else those that the fit knew, else numbers."""
    names = getattr(clf, "feature_names_in_", None) if given is None else given
    names = [f"feature {i}" for i in range(count)] if names is None else [str(name) for name in names]
    if len(names) != count:
        raise ValueError(f"feature_names has {len(names)} names; {count} are needed, one for each feature")
    return np.array(names, dtype=object)


def probabilities(clf: Any, X: Any) -> NDArray[np.float64]:
    """What a fitted classifier of any kind says of rows, (N, C)."""
    if not (hasattr(clf, "predict_proba") and hasattr(clf, "classes_")):
        raise TypeError(f"clf={clf!r} has no predict_proba or no classes_; a fitted classifier with both is needed")
    return np.asarray(clf.predict_proba(X), dtype=np.float64)
