"""Plot the training history: the objective by epoch or second, and events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cavity.plot.style import axes_for, nth_style, plain
from cavity.report.findings import training_events
from cavity.report.palette import INK

BY = {"epoch": "epoch", "seconds": "seconds of training"}
MAX_EVENTS = 4  # in the legend; all are marked
MAX_LETTERS = 48  # of an event in the legend


class HistoryDisplay:
    """The objective during training; marks at the bottom show events, such as an early stop.

    The objective estimates log Z_q plus the log-priors, from the rows of each epoch; for VI it is a lower bound.

    Args:
        records: one dict per epoch, as in `history_`: epoch, objective (None if not computed), seconds, event.
        name: for the legend.

    Attributes:
        records, name: as given.
        ax_, figure_: of the last drawing.
        line_: the curve.
        events_: the marks, one for each event in the legend, the last for all others.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(max_epochs=20, calibrate=False, random_state=0).fit(X, y)
    >>> display = HistoryDisplay.from_estimator(clf)
    >>> display.line_.get_xdata()[[0, -1]].tolist()
    [1.0, 20.0]
    """

    def __init__(self, records: Sequence[dict[str, Any]], *, name: str | None = None) -> None:
        self.records, self.name = list(records), name

    @classmethod
    def from_estimator(cls, clf: Any, *, name: str | None = None, ax: Any = None, **kw: Any) -> HistoryDisplay:
        """Plot the history of a fitted `GPClassifier`.

        Args:
            clf: the classifier.
            name: for the legend; its method by default.
            ax: axes to draw on, also those of another history; a new figure by default.
            kw: as for `plot`.
        """
        if not hasattr(clf, "history_"):
            raise TypeError(f"`clf` must be a fitted GPClassifier, got {type(clf).__name__} without history_.")
        return cls(clf.history_, name=name or str(getattr(clf, "method_", "")).upper() or None).plot(ax, **kw)

    def plot(self, ax: Any = None, *, by: str = "epoch", **kw: Any) -> HistoryDisplay:
        """Draw the display.

        Args:
            ax: axes; a new figure by default.
            by: "epoch" or "seconds".
            kw: for `Axes.plot`: color, linestyle, …

        Returns:
            The display itself.
        """
        if by not in BY:
            raise ValueError(f"`by` must be 'epoch' or 'seconds', got by={by!r}.")
        known = [record for record in self.records if record.get("objective") is not None]
        if not known:
            raise ValueError("The history has no objective to plot: only q(u) was learned.")
        if any(record.get(by) is None for record in known):
            raise ValueError(f"by={by!r} needs records with {by}, but partial_fit records none; use by='epoch'.")
        x, y = (np.array([record[key] for record in known], dtype=np.float64) for key in (by, "objective"))
        self.ax_ = plain(axes_for(ax, 5.4, 3.4))
        self.figure_ = self.ax_.figure
        style = nth_style(len(self.ax_.get_lines()))
        settings = {"color": style.color, "linewidth": 1.6, "label": self.name, "linestyle": style.line}
        self.line_ = self.ax_.plot(x, y, **(settings | kw))[0]
        found: dict[str, list[float]] = {}  # the first few events are marked separately, the others together
        for event in training_events(self.records):
            text = event.text if len(event.text) <= MAX_LETTERS else event.text[: MAX_LETTERS - 1].rstrip() + "…"
            found.setdefault(text, []).append(float((event.epoch if by == "epoch" else event.seconds) or 0.0))
        groups = [(text if len(x) == 1 else f"{text} ({len(x)} times)", x) for text, x in found.items()]
        rest = [x for _, several in groups[MAX_EVENTS:] for x in several]
        groups = [*groups[:MAX_EVENTS], *([(f"{len(rest)} other events", rest)] if rest else [])]
        look = {"s": 34, "color": INK, "zorder": 4, "clip_on": False, "transform": self.ax_.get_xaxis_transform()}
        self.events_ = [
            self.ax_.scatter(x, np.full(len(x), 0.03), marker=marker, label=label, **look)
            for (label, x), marker in zip(groups, ("^", "v", "D", "s", "o"), strict=False)
        ]
        self.ax_.set(xlabel=BY[by], ylabel="objective / nats")
        if by == "epoch":
            from matplotlib.ticker import MaxNLocator

            self.ax_.xaxis.set_major_locator(MaxNLocator(integer=True))
        if self.ax_.get_legend_handles_labels()[0]:
            self.ax_.legend(frameon=False, fontsize="small", loc="best")
        return self
