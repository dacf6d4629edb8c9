"""Where the model is unsure: two kinds of doubt of each row, and what setting aside the least sure rows gains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cavity.report.charts.frame import Frame, picture, words
from cavity.report.charts.marks import cross
from cavity.report.charts.scale import Scale, reach
from cavity.report.findings import Array, Findings
from cavity.report.html import Markup, el, join
from cavity.report.numerals import number, percent, tidy, whole

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 46.0, 382.0, 30.0, 318.0, 364.0
DRAWN = 900
KEPT = np.linspace(1.0, 0.5, 51)


def doubt(key: str, found: Findings) -> Markup:
    """Aleatoric along, epistemic up, by square roots: most rows lie near 0."""
    x, y = (reach([*part.tolist(), 0.01], zero=True)[1] for part in (found.aleatoric, found.epistemic))
    frame = Frame(Scale(0.0, x, LEFT, RIGHT, root=True), Scale(0.0, y, BOTTOM, TOP, root=True))
    axes = [
        frame.bottom("aleatoric / nats", frame.x.ticks(), tidy),
        frame.left("epistemic / nats", frame.y.ticks(), tidy),
    ]
    rows = drawn(found.is_right)
    right = [_row(frame, found, i) for i in rows if found.is_right[i]]
    wrong = [_row(frame, found, i) for i in rows if not found.is_right[i]]
    return picture(key, HEIGHT, "Two kinds of doubt", _seen(found), *axes, el("g", *right, class_="right"),
                   el("g", *wrong, class_="wrong"))  # fmt: skip


def drawn(is_right: NDArray[np.bool_]) -> list[int]:
    """The rows to draw, at most so many: those that are wrong first, others evenly spread."""
    wrong, right = np.flatnonzero(~is_right), np.flatnonzero(is_right)
    wrong = _thinned(wrong, DRAWN // 2)
    return sorted([*wrong.tolist(), *_thinned(right, DRAWN - len(wrong)).tolist()])


def _thinned(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]


def _row(frame: Frame, found: Findings, i: int) -> Markup:
    a, e = float(found.aleatoric[i]), float(found.epistemic[i])
    x, y = frame.at(a, e)
    tip = el("title", f"row {found.row_names[i]}: aleatoric {number(a)}, epistemic {number(e)}")
    return el("circle", tip, cx=x, cy=y, r=3) if found.is_right[i] else el("path", tip, d=cross(x, y))


def _seen(found: Findings) -> str:
    parts = []
    for what, rows in (("right", found.is_right), ("wrong", ~found.is_right)):
        if rows.any():
            a, e = (number(float(np.median(part[rows]))) for part in (found.aleatoric, found.epistemic))
            parts.append(f"{whole(rows.sum())} rows that are {what}: median aleatoric {a}, epistemic {e} nats.")
    return " ".join(parts)


def gain(total: Array, is_right: NDArray[np.bool_]) -> Array:
    """The share of errors among the surest rows, for each share of rows kept."""
    wrong = np.cumsum(~is_right[np.argsort(total, kind="stable")])
    kept = np.maximum(np.round(KEPT * len(total)).astype(int), 1)
    return wrong[kept - 1] / kept


def set_aside(key: str, found: Findings) -> Markup:
    """The error of what is left when the least sure rows are handed to a person."""
    errors, aside = gain(found.total, found.is_right), 1.0 - KEPT
    high = reach([*errors.tolist(), 0.01], zero=True)[1] * 1.08
    frame = Frame(Scale(0.0, 0.5, LEFT, RIGHT), Scale(0.0, high, BOTTOM, TOP))
    decimals = 0 if high > 0.05 else 1
    axes = [
        frame.bottom("least sure rows set aside", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5], lambda v: percent(v, 0)),
        frame.left("error of the rest", frame.y.ticks(), lambda v: percent(v, decimals)),
    ]
    curve = el("path", d=frame.line(aside.tolist(), errors.tolist()), class_="curve")
    marks = [_mark(frame, float(aside[i]), float(errors[i]), i in (0, 10, 50)) for i in range(0, len(KEPT), 10)]
    seen = "; ".join(f"{percent(aside[i], 0)} set aside: {percent(errors[i])}" for i in range(0, len(KEPT), 10))
    return picture(key, HEIGHT, "Error of the rows that are left", f"Error of the rest: {seen}.", *axes, curve, *marks)


def _mark(frame: Frame, aside: float, error: float, is_named: bool) -> Markup:
    x, y = frame.at(aside, error)
    anchor = "end" if aside > 0.45 else "start"
    dot = el("circle", el("title", f"{percent(aside, 0)} set aside: {percent(error)}"), cx=x, cy=y, r=4, class_="dot")
    said = words(percent(error), x if anchor == "end" else x + 4, y - 9, anchor, "value")
    return join([dot, said if is_named else None])
