"""A map of the rows and of the inducing points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cavity.report.charts.doubt import DRAWN
from cavity.report.charts.marks import are_glyphs, color, shape
from cavity.report.charts.plane import OF_ALL, inducing, rows
from cavity.report.findings import Array, Findings, Map
from cavity.report.html import Markup, el
from cavity.report.numerals import listed, name, percent, tidy, whole
from cavity.report.sections.parts import figure, items, label, pair, picker, section, table

LEGEND = 56


def plane(found: Findings) -> Markup:
    """Two maps on the same axes, and a choice of the class to pick out."""
    if found.map is None or not len(found.map.rows):
        return section("map", "Map", "These data have no view in two dimensions.")
    axes, share = (name(axis, 80) for axis in found.map.axes), percent(found.map.share, 0)
    lead = f"Rows seen along {listed(list(axes))}, which hold {share} of their variance."
    if found.map.share < 1.0:
        lead += " What lies close here may lie far apart in the other dimensions."
    options = [("", "all"), *((str(k), name(c)) for k, c in enumerate(found.classes))]
    control = picker("pick-mark", "Pick out class", options, "", "map-figures")
    legend = None if are_glyphs(found.classes) else _legend(found.classes)
    figures = el("div", pair(_rows(found.map, found.classes), _inducing(found.map, found.classes)), id="map-figures")
    return section("map", "Map", lead, control, legend, figures)


def _rows(found: Map, classes: list[str]) -> Markup:
    wrong = int((~found.row_is_right).sum())
    some = f" {whole(DRAWN)} of {whole(len(found.rows))} rows are drawn." if len(found.rows) > DRAWN else ""
    marks = "Each mark is a row's true label." if are_glyphs(classes) else "Marks tell the true class."
    caption = f"{marks} The {whole(wrong)} that are wrong have a ring.{some}"
    data = _centers(found.rows, found.row_class, classes, "Rows")
    return figure(rows("map-rows", found, classes), "Rows", caption, data)


def _inducing(found: Map, classes: list[str]) -> Markup | None:
    if not len(found.inducing):
        return None
    caption = f"The {whole(len(found.inducing))} points that the classes' functions rest on, by class; rows are dots."
    data = _centers(found.inducing, found.inducing_class, classes, "Points")
    return figure(inducing("map-inducing", found, classes), "Inducing points", caption, data)


def _centers(at: Array, of: NDArray[np.int64], classes: list[str], what: str) -> Markup:
    """Where the classes lie."""
    found = [(c, at[of == c]) for c in np.unique(of).tolist()]
    names = [label("all" if c == OF_ALL else classes[c], 40) for c, _ in found]
    lines = [
        [said, whole(len(own)), *map(tidy, own.mean(0).tolist())] for said, (_, own) in zip(names, found, strict=True)
    ]
    return table(f"{what}: centers of classes", ["Class", what, "Center along", "and up"], lines, 3)


def _legend(classes: list[str]) -> Markup:
    """The marks of the classes, for as many as differ."""
    shown = [el("span", _swatch(k), " ", label(c, 24), class_=color(k)) for k, c in enumerate(classes[:LEGEND])]
    more = [f"and {len(classes) - LEGEND} more, whose marks repeat"] if len(classes) > LEGEND else []
    return items([*shown, *more], "legend")


def _swatch(k: int) -> Markup:
    return el("svg", el("path", d=shape(k, 7.0, 7.0)), viewBox="0 0 14 14", class_="swatch", aria_hidden="true")
