"""Tables of numbers as shades: relevance by class and feature, and a confusion matrix too large to print."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cavity.report.charts.bars import HEAD, LETTER, ROW, TOP, margin, row_name
from cavity.report.charts.frame import WIDTH, picture, words
from cavity.report.charts.scale import Scale, reach
from cavity.report.html import Markup, el, join, short
from cavity.report.numerals import name, wide

KEY, SIDE, STEPS, PALE = 30.0, 360.0, 6, 0.06
NAMED, UPRIGHT = 12, 14.0  # letters of a name; the least step at which names stand upright
EVERY = (1, 2, 5, 10, 20, 50, 100)


def heat(
    key: str, rows: Sequence[str], columns: Sequence[str], values: NDArray[np.float64], title: str, seen: str,
    write: Callable[[float], str],
) -> Markup:  # fmt: skip
    """Rows by columns, from pale for the least value to dark for the largest, with a key below."""
    left, top = margin(rows), TOP + head_room(rows, columns)
    step, depth = _step(rows, columns), Scale(*reach(values.ravel().tolist()), PALE, 1.0)
    cells = [
        _cell(left + step * j, top + ROW * i, step, depth(float(values[i, j])),
              f"{name(row)}, {name(column)}: {write(float(values[i, j]))}")
        for i, row in enumerate(rows) for j, column in enumerate(columns)
    ]  # fmt: skip
    names = [row_name(row, left, top + ROW * (i + 0.5) + 4.0) for i, row in enumerate(rows)]
    end = top + TOP + ROW * len(rows)
    return picture(key, end + KEY, title, seen, _heads(columns, left, top - 10.0, step), *names, *cells,
                   _key(left, end + 10.0, write(depth.low), write(depth.high)))  # fmt: skip


def head_room(rows: Sequence[str], columns: Sequence[str]) -> float:
    """How much room the names of the columns take: more where they must stand upright."""
    step, longest = _step(rows, columns), _longest(columns)
    return 12.0 + LETTER * longest if UPRIGHT <= step < LETTER * longest else HEAD


def _step(rows: Sequence[str], columns: Sequence[str]) -> float:
    return (WIDTH - margin(rows)) / max(len(columns), 1)


def _longest(columns: Sequence[str]) -> float:
    return max((wide(name(label, NAMED)) for label in columns), default=0.0)


def _heads(columns: Sequence[str], left: float, y: float, step: float) -> Markup:
    """The names of the columns: flat, upright, or of many some."""
    longest = _longest(columns)
    if UPRIGHT <= step < LETTER * longest:
        return join(
            upright(name(label, NAMED), left + step * (j + 0.5) + 4.0, y, label) for j, label in enumerate(columns)
        )
    every = next((n for n in EVERY if n * step >= LETTER * (longest + 1.0)), 0)
    if not every or every > len(columns) // 3 > 0:
        return words(f"{len(columns)} classes, in order", left, y, class_="axis")
    return join(words(name(label, NAMED), left + step * (j + 0.5), y, "middle", more=name(label, 200))
                for j, label in enumerate(columns) if j % every == 0)  # fmt: skip


def upright(said: str, x: float, y: float, more: str = "", anchor: str = "start") -> Markup:
    """Words that run upwards."""
    return el("text", said, el("title", name(more, 200)) if more else None, text_anchor=anchor,
              transform=f"translate({short(x)} {short(y)}) rotate(-90)")  # fmt: skip


def _cell(x: float, y: float, step: float, depth: float, said: str) -> Markup:
    gap = 1.0 if step > 6.0 else 0.0
    return el("rect", el("title", said), x=x, y=y + 1.0, width=step - gap, height=ROW - 2.0, class_="heat",
              fill_opacity=depth)  # fmt: skip


def _key(x: float, y: float, low: str, high: str) -> Markup:
    """The shades from least to largest, between their numbers."""
    start = x + LETTER * len(low) + 4.0
    shades = [el("rect", x=start + 20.0 * i, y=y, width=20.0, height=10.0, class_="heat",
                 fill_opacity=PALE + (1.0 - PALE) * i / (STEPS - 1)) for i in range(STEPS)]  # fmt: skip
    return el("g", words(low, x, y + 9.0), *shades, words(high, start + 20.0 * STEPS + 6.0, y + 9.0))


def matrix(key: str, classes: Sequence[str], counts: NDArray[np.int64], title: str, seen: str) -> Markup:
    """A confusion matrix of many classes: only cells that hold rows, those off the diagonal in another color."""
    step, shares = SIDE / len(classes), counts / np.maximum(counts.sum(1, keepdims=True), 1)
    left, top = WIDTH - SIDE, 24.0
    cells = [
        el("rect", el("title", f"{name(classes[i])} taken for {name(classes[j])}: {counts[i, j]}"),
           x=left + step * j, y=top + step * i, width=max(step, 4.0), height=max(step, 4.0),
           class_="heat" if i == j else "heat miss", fill_opacity=0.4 + 0.6 * float(shares[i, j]) ** 0.5)
        for i, j in np.argwhere(counts)
    ]  # fmt: skip
    box = el("rect", x=left, y=top, width=SIDE, height=SIDE, class_="box")
    axes = [
        words("taken for →", left, top - 8.0, class_="axis"),
        upright("← true class", left - 8.0, top, anchor="end"),
    ]
    return picture(key, top + SIDE + 4.0, title, seen, box, *axes, *cells)
