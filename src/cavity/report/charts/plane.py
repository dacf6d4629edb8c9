"""Rows and inducing points in two dimensions, side by side on the same axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cavity.report.charts.doubt import drawn
from cavity.report.charts.frame import Frame, picture
from cavity.report.charts.marks import are_glyphs, color, disc, mark
from cavity.report.charts.scale import Scale, reach, roomy
from cavity.report.findings import Array, Map
from cavity.report.html import Markup, el, short
from cavity.report.numerals import name, whole

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 46.0, 382.0, 30.0, 338.0, 384.0
INDUCING = 900
OF_ALL = -1  # the class of inducing points that all classes share


def rows(key: str, found: Map, classes: Sequence[str]) -> Markup:
    """The rows by their true class; those that are wrong have a ring."""
    frame, places = _frame(found), drawn(found.row_is_right)
    tips = [f"{name(classes[found.row_class[i]])}, {'right' if found.row_is_right[i] else 'wrong'}" for i in places]
    marks = _marks(frame, found.rows[places], found.row_class[places], classes, tips)
    seen = (
        f"{whole(len(found.rows))} rows, {whole((~found.row_is_right).sum())} of them wrong. {_where(found, classes)}"
    )
    return picture(key, HEIGHT, "Rows by true class", seen, *_axes(frame, found), *marks, *_rings(frame, found, places))


def _rings(frame: Frame, found: Map, places: list[int]) -> list[Markup]:
    """Around rows that are wrong, class by class as the marks are."""
    rings: dict[int, str] = {}
    for i in places:
        if not found.row_is_right[i]:
            c = int(found.row_class[i])
            rings[c] = rings.get(c, "") + disc(*frame.at(*found.rows[i].tolist()), 7.5)
    return [el("path", d=d, class_="ring", data_class=str(c)) for c, d in sorted(rings.items())]


def inducing(key: str, found: Map, classes: Sequence[str]) -> Markup:
    """The inducing points by the class whose function they hold up, over the rows as dots."""
    frame, places = _frame(found), drawn(found.row_is_right)
    step = max(1, -(-len(found.inducing) // INDUCING))
    points, of = found.inducing[::step], found.inducing_class[::step]
    marks = _marks(frame, points, of, classes, [f"inducing point of {_owner(c, classes)}" for c in of.tolist()])
    dots = "".join("M{} {}h0".format(*map(short, frame.at(*found.rows[i].tolist()))) for i in places)
    seen = f"{whole(len(found.inducing))} inducing points of {len(classes)} classes, over the rows as dots."
    return picture(key, HEIGHT, "Inducing points by class", seen, *_axes(frame, found),
                   el("path", d=dots or None, class_="dust"), *marks)  # fmt: skip


def _frame(found: Map) -> Frame:
    both = np.concatenate([found.rows, found.inducing]) if len(found.inducing) else found.rows
    x, y = (roomy(*reach(both[:, i].tolist())) for i in (0, 1))
    return Frame(Scale(*x, LEFT, RIGHT), Scale(*y, BOTTOM, TOP))


def _axes(frame: Frame, found: Map) -> list[Markup]:
    along, up = (name(axis, 40) for axis in found.axes)
    return [frame.bottom(along, frame.x.ticks()), frame.left(up, frame.y.ticks())]


def _marks(frame: Frame, at: Array, of: NDArray[np.int64], classes: Sequence[str], tips: list[str]) -> list[Markup]:
    """Marks class by class, so that one class can be picked out."""
    glyph, groups = are_glyphs(classes), []
    for c in np.unique(of).tolist():
        own = [mark(c, _owner(c, classes), *frame.at(*at[i].tolist()), glyph and c != OF_ALL, tips[i])
               for i in np.flatnonzero(of == c)]  # fmt: skip
        kind = "marks all" if c == OF_ALL else f"{'glyphs' if glyph else 'marks'} {color(c)}"
        groups.append(el("g", *own, class_=kind, data_class=None if c == OF_ALL else str(c)))
    return groups


def _owner(c: int, classes: Sequence[str]) -> str:
    return "all classes" if c == OF_ALL else name(classes[c])


def _where(found: Map, classes: Sequence[str]) -> str:
    """The centers of the first classes, in words."""
    seen = [c for c in range(len(classes)) if (found.row_class == c).any()][:12]
    centers = [found.rows[found.row_class == c].mean(0) for c in seen]
    told = ", ".join(f"{name(classes[c], 20)} ({x:.2g}, {y:.2g})" for c, (x, y) in zip(seen, centers, strict=True))
    return f"Centers of classes: {told}."
