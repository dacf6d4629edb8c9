"""How training went: the objective by epoch or second, and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.plot.style import INK, axes_for, look
from cavity.report.figures import plain
from cavity.training import describe

Array = NDArray[np.float64]
Record = dict[str, Any]

BY = {"epoch": "epoch", "seconds": "seconds of training"}
EVENTS_TOLD = 4  # in the legend; all are marked
LONGEST = 48  # letters of an event in the legend


class HistoryDisplay:
    """The objective during training; a triangle at the bottom marks what went wrong or ended it early.

    The objective is an estimate of log Z_q with its priors, of the rows an epoch has seen; for VI a lower bound.

    Args:
        records: one dict an epoch, as in `history_`: epoch, objective (None where there is none), seconds, event.
        name: for the legend.

    Attributes:
        records, name: as given.
        ax_, figure_: where it was drawn last.
        line_: the curve.
        events_: the marks, one for each event that the legend tells, the last for all others.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(max_epochs=20, calibrate=False, random_state=0).fit(X, y)
    >>> display = HistoryDisplay.from_estimator(clf)
    >>> display.line_.get_xdata()[[0, -1]].tolist()
    [1.0, 20.0]
    """

    def __init__(self, records: Sequence[Record], *, name: str | None = None) -> None:
        self.records, self.name = list(records), name

    @classmethod
    def from_estimator(cls, clf: Any, *, name: str | None = None, ax: Any = None, **kw: Any) -> HistoryDisplay:
        """Of a fitted `GPClassifier`.

        Args:
            clf: the classifier.
            name: for the legend; its method by default.
            ax: axes to draw on, also those of another history; a new figure by default.
            kw: as for `plot`.
        """
        if not hasattr(clf, "history_"):
            raise TypeError(f"{type(clf).__name__} has no history_; a fitted GPClassifier is needed")
        return cls(clf.history_, name=name or str(getattr(clf, "method_", "")).upper() or None).plot(ax, **kw)

    def plot(self, ax: Any = None, *, by: str = "epoch", **kw: Any) -> HistoryDisplay:
        """Draw it.

        Args:
            ax: axes; a new figure by default.
            by: "epoch" or "seconds".
            kw: for `Axes.plot`: color, linestyle, …

        Returns:
            The display itself.
        """
        x, y = self._curve(by)
        self.ax_ = plain(axes_for(ax, 5.4, 3.4))
        self.figure_ = self.ax_.figure
        style = look(len(self.ax_.get_lines()))
        settings = {"color": style.color, "linewidth": 1.6, "label": self.name, "linestyle": style.line}
        self.line_ = self.ax_.plot(x, y, **(settings | kw))[0]
        self.events_ = self._events(by)
        self.ax_.set(xlabel=BY[by], ylabel="objective / nats")
        if by == "epoch":
            _whole_numbers(self.ax_.xaxis)
        if self.ax_.get_legend_handles_labels()[0]:
            self.ax_.legend(frameon=False, fontsize="small", loc="best")
        return self

    def _curve(self, by: str) -> tuple[Array, Array]:
        if by not in BY:
            raise ValueError(f"by={by!r} cannot be used; 'epoch' or 'seconds' may be")
        known = [record for record in self.records if record.get("objective") is not None]
        if not known:
            raise ValueError("the history has no objective: with nothing to learn but q(u) there is no curve to draw")
        if any(record.get(by) is None for record in known):
            raise ValueError(f"by={by!r} cannot be used: some records have none, as after partial_fit; use by='epoch'")
        x, y = (np.array([record[key] for record in known], dtype=np.float64) for key in (by, "objective"))
        return x, y

    def _events(self, by: str) -> list[Any]:
        """The first few with a number and their words, the others together."""
        found: dict[str, list[float]] = {}
        for record in self.records:
            if record.get("event") is not None:
                found.setdefault(_short(describe(record)), []).append(float(record.get(by) or 0.0))
        groups = list(found.items())
        told, rest = groups[:EVENTS_TOLD], [x for _, places in groups[EVENTS_TOLD:] for x in places]
        marks = [self._mark(i, text, places) for i, (text, places) in enumerate(told)]
        return [*marks, self._mark(len(told), f"{len(rest)} other events", rest)] if rest else marks

    def _mark(self, place: int, text: str, x: list[float]) -> Any:
        marker = ("^", "v", "D", "s", "o")[place]
        label = text if len(x) == 1 or place == EVENTS_TOLD else f"{text} ({len(x)} times)"
        return self.ax_.scatter(x, np.full(len(x), 0.03), marker=marker, s=34, color=INK, zorder=4, label=label,
                                clip_on=False, transform=self.ax_.get_xaxis_transform())  # fmt: skip


def _whole_numbers(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _short(event: str) -> str:
    return event if len(event) <= LONGEST else event[: LONGEST - 1].rstrip() + "…"
