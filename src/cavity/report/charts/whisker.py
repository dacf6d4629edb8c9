"""A figure with its interval as a dot on a line, small enough for the cell of a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cavity.report.charts.frame import picture
from cavity.report.charts.scale import Scale
from cavity.report.findings import Interval
from cavity.report.html import Markup, el, short

WIDTH, HEIGHT, EDGE = 132.0, 16.0, 6.0
FAR = 3.0  # an interval that ends so many times further out than the next one is left to an arrow


def common_end(intervals: Sequence[Interval]) -> float:
    """Where the scale of a column ends: with the intervals, except for those that lie far out."""
    ends = sorted((i.high for i in intervals if math.isfinite(i.high) and i.high > 0.0), reverse=True)
    while len(ends) > 1 and ends[0] > FAR * ends[1]:
        ends.pop(0)
    return ends[0] if ends else 1.0


def whisker(key: str, interval: Interval, end: float, title: str, seen: str, is_best: bool) -> Markup:
    """The interval between 0 and `end`; an arrow where it goes on."""
    x, middle = Scale(0.0, end, EDGE, WIDTH - EDGE), HEIGHT / 2
    base = el("path", d=f"M{short(EDGE)} {middle:g}H{short(WIDTH - EDGE)}", class_="rail")
    low, high = (x(end if math.isnan(v) else v) for v in (interval.low, interval.high))
    line = el("path", d=f"M{short(low)} {middle:g}H{short(high)}", class_="whisker")
    parts = [base, line, _arrow() if _is_beyond(interval.high, end) else None]
    if not _is_beyond(interval.value, end):
        parts.append(el("circle", cx=x(interval.value), cy=middle, r=4.5, class_="dot best" if is_best else "dot"))
    return picture(key, HEIGHT, title, seen, *parts, width=WIDTH)


def _is_beyond(value: float, end: float) -> bool:
    return not value <= end * (1.0 + 1e-9)


def _arrow() -> Markup:
    x, y = WIDTH - EDGE, HEIGHT / 2
    return el("path", d=f"M{short(x - 3)} {y - 5:g}L{short(x + 3)} {y:g}L{short(x - 3)} {y + 5:g}", class_="whisker")
