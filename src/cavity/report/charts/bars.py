"""Bars that lie, with names at the left and numbers at the right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cavity.report.charts.frame import WIDTH, picture, words
from cavity.report.charts.scale import Scale, reach
from cavity.report.html import Markup, el, join, short
from cavity.report.numerals import name, wide

ROW, TOP, LETTER = 22.0, 6.0, 7.4
HEAD = 24.0  # room for a line of words above
WIDEST = 16  # letters of a name


class Bar(NamedTuple):
    """A bar, and the span from the least to the largest of what it is the mean of."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


def bars(
    key: str, found: Sequence[Bar], title: str, seen: str, write: Callable[[float], str], axis: str = "",
    head: float = HEAD,
) -> Markup:  # fmt: skip
    """One bar below the other, all from 0; `axis` says what they are, in the room of `head` above them."""
    left = margin([bar.label for bar in found])
    ends = [bar.value if bar.high is None else bar.high for bar in found]
    x = Scale(0.0, max(reach(ends, zero=True)[1], 1e-12), left, WIDTH - 56.0)
    top = TOP + head if axis else TOP
    rows = [_row(bar, x, top + ROW * i, write) for i, bar in enumerate(found)]
    above = words(axis, left, top - 10.0, class_="axis") if axis else None
    return picture(key, top + TOP + ROW * len(found), title, seen, above, *rows)


def margin(labels: Sequence[str]) -> float:
    """Room for names at the left."""
    return 10.0 + LETTER * max((wide(name(label, WIDEST)) for label in labels), default=0)


def row_name(label: str, x: float, y: float) -> Markup:
    """A name that ends at x; in full for who points at it."""
    return words(name(label, WIDEST), x - 8.0, y, "end", more=name(label, 200) if wide(label) > WIDEST else "")


def _row(bar: Bar, x: Scale, top: float, write: Callable[[float], str]) -> Markup:
    middle, end = top + ROW / 2, max(x(bar.value), x.start + 1.0)
    block = el("rect", el("title", f"{name(bar.label, 200)}: {write(bar.value)}"), x=x.start, y=top + 4.0,
               width=end - x.start, height=ROW - 8.0, class_="bar")  # fmt: skip
    span, last = None, end
    if bar.low is not None and bar.high is not None:
        last = max(end, x(bar.high))
        span = el("path", d=f"M{short(x(bar.low))} {short(middle)}H{short(x(bar.high))}", class_="span")
    return join([row_name(bar.label, x.start, middle + 4.0), block, span,
                 words(write(bar.value), last + 8.0, middle + 4.0, class_="value")])  # fmt: skip
