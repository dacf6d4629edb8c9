"""What is taken for what: a matrix in shades and numbers, the most frequent confusions, and each class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cavity.report.charts.heat import matrix
from cavity.report.findings import Findings
from cavity.report.html import Markup, el
from cavity.report.numerals import listed, many, name, percent, whole, wide
from cavity.report.sections.parts import Cell, Row, figure, label, pair, scrolls, section, table

PRINTED, LISTED = 20, 10  # classes of a matrix with numbers; confusions in the list
CELL = 36.0  # letters in a row of cells; with more, names of columns stand upright


def confusion(found: Findings) -> Markup:
    """Numbers in the matrix where there is room for them."""
    drawn = _printed(found) if len(found.classes) <= PRINTED else _compact(found)
    lead = "Each row of the matrix is a true class, each column what its rows were taken for. The diagonal is right."
    return section("confusion", "Confusions", lead, pair(drawn, _frequent(found)), _by_class(found))


def pairs(counts: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Confusions, the most frequent first: true class, class taken for it, rows."""
    off = counts * (1 - np.eye(len(counts), dtype=np.int64))
    places = np.argwhere(off)
    order = np.argsort(-off[tuple(places.T)], kind="stable")
    return [(int(i), int(j), int(off[i, j])) for i, j in places[order]]


def _said(found: Findings) -> str:
    """The matrix in one sentence."""
    first = [
        f"{name(found.classes[i], 20)} for {name(found.classes[j], 20)} ({n})" for i, j, n in pairs(found.confusion)[:3]
    ]
    right = f"{whole(np.trace(found.confusion))} of {whole(found.confusion.sum())} rows lie on the diagonal."
    return f"{right} Most often taken: {listed(first)}." if first else f"{right} No row is confused."


def _printed(found: Findings) -> Markup:
    corner = el("td", el("span", "true ↓"), " ", el("span", "taken for →"))
    tall = max(wide(name(c, 12)) for c in found.classes) > CELL / len(found.classes)
    heads = [el("th", label(c, 12), scope="col") for c in found.classes]
    body = [_line(found, i) for i in range(len(found.classes))]
    parts = [el("caption", "Confusion matrix: true class by row, predicted class by column"),
             el("thead", el("tr", corner, *heads)), el("tbody", *body)]  # fmt: skip
    made = el("table", *parts, class_="matrix tall" if tall else "matrix", style=f"--classes:{len(found.classes)}")
    return el("figure", el("figcaption", el("h3", "Confusion matrix"), el("p", _said(found))),
              scrolls("Confusion matrix", made))  # fmt: skip


def _line(found: Findings, i: int) -> Markup:
    row = found.confusion[i]
    share = row / max(int(row.sum()), 1)
    cells = [_count(int(n), float(share[j]), i == j) for j, n in enumerate(row)]
    return el("tr", el("th", label(found.classes[i], 16), scope="row"), *cells)


def _count(n: int, share: float, is_right: bool) -> Markup:
    """A cell, the darker the larger the share of its row; errors by square roots, for they are few."""
    if not n:
        return el("td", el("span", "0", class_="unseen"))
    depth = share if is_right else share**0.5
    return el("td", whole(n), class_="hit" if is_right else "miss", style=f"--depth:{depth:.2f}")


def _compact(found: Findings) -> Markup:
    chart = matrix("confusion-matrix", found.classes, found.confusion, "Confusion matrix", _said(found))
    return figure(chart, "Confusion matrix", _said(found))


def _frequent(found: Findings) -> Markup:
    made = pairs(found.confusion)
    if not made:
        return el("div", el("h3", "Most frequent confusions"), el("p", "There are none."))
    rows = [[label(found.classes[i], 24), label(found.classes[j], 24), whole(n),
             percent(n / max(int(found.counts[i]), 1))] for i, j, n in made[:LISTED]]  # fmt: skip
    rest = sum(n for *_, n in made[LISTED:])
    more = el("p", f"{many(rest, 'more row')} in other pairs.", class_="quiet") if rest else None
    head = ["True", "Taken for", "Rows", "Of the class"]
    return el("div", el("h3", "Most frequent confusions"), table("Most frequent confusions", head, rows, 2), more)


def _by_class(found: Findings) -> Markup:
    taken = found.confusion.sum(0)
    rows: list[Row] = [
        [label(c, 40), Cell(whole(found.counts[k]), float(found.counts[k])),
         _share(found.confusion[k, k], found.counts[k]), _share(found.confusion[k, k], taken[k])]
        for k, c in enumerate(found.classes)
    ]  # fmt: skip
    head = ["Class", "Rows", "Found (recall)", "Right when named (precision)"]
    made = table("Each class", head, rows, 3, sortable=True)
    return el("details", el("summary", "Each class: rows, recall and precision"), made, class_="data")


def _share(part: np.int64, of: np.int64) -> Cell:
    return Cell(percent(part / of), float(part / of)) if of else Cell("–", -1.0)
