"""Where the model is unsure, of what kind its doubt is, and the rows that a person should look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cavity.report.charts.doubt import DRAWN, KEPT, doubt, gain, set_aside
from cavity.report.findings import Findings, UnsureRow
from cavity.report.html import Markup, el, join
from cavity.report.numerals import many, number, percent, whole
from cavity.report.sections.parts import Cell, figure, label, pair, section, table

LEAD = (
    "Doubt has two parts. Aleatoric doubt is in the data: classes overlap there, and more rows would not help. "
    "Epistemic doubt is the model's own: it has seen few rows like this one, and more of them would help."
)
TENTH = 10  # the place of 90 % in KEPT


def unsure(found: Findings) -> Markup:
    """Two charts and a table."""
    if not len(found.total):
        return section("unsure", "Where it is unsure", "There are no rows.")
    return section("unsure", "Where it is unsure", LEAD, pair(_scatter(found), _aside(found)), _rows(found))


def _scatter(found: Findings) -> Markup:
    wrong = int((~found.is_right).sum())
    some = f" {whole(DRAWN)} of {whole(len(found.total))} rows are drawn." if len(found.total) > DRAWN else ""
    caption = join([_key(wrong, len(found.total)), some, " Axes are by square roots."])
    return figure(doubt("doubt", found), "Two kinds of doubt", caption, _quantiles(found))


def _quantiles(found: Findings) -> Markup:
    """Medians, and what one row in ten exceeds."""
    head = ["Rows that are", "Rows", "Aleatoric: median", "90th percentile", "Epistemic: median", "90th percentile"]
    rows = [["right", *_doubts(found, found.is_right)], ["wrong", *_doubts(found, ~found.is_right)]]
    return table("Doubt of rows that are right and wrong, in nats", head, rows, 5)


def _doubts(found: Findings, which: NDArray[np.bool_]) -> list[str]:
    if not which.any():
        return ["0", *4 * ["–"]]
    both = [np.quantile(part[which], [0.5, 0.9]) for part in (found.aleatoric, found.epistemic)]
    return [whole(which.sum()), *(number(float(value)) for part in both for value in part)]


def _key(wrong: int, rows: int) -> Markup:
    right = el("span", "●", class_="right", aria_hidden="true")
    cross = el("span", "✕", class_="wrong", aria_hidden="true")
    return join([right, f" right ({whole(rows - wrong)}), ", cross, f" wrong ({whole(wrong)})."])


def _aside(found: Findings) -> Markup:
    errors = gain(found.total, found.is_right)
    caption = (f"Hand the least sure tenth to a person, and the error of the rest goes from {percent(errors[0])} "
               f"to {percent(errors[TENTH])}.")  # fmt: skip
    rows = [[percent(1 - KEPT[i], 0), percent(errors[i])] for i in range(0, len(KEPT), 5)]
    data = table("Error of the rest", ["Set aside", "Error of the rest"], rows, 2)
    return figure(set_aside("set-aside", found), "What setting rows aside gains", caption, data)


def _rows(found: Findings) -> Markup:
    """The rows to look at, as a table that can be sorted."""
    if not found.unsure:
        return el("p", "No row stands out.")
    head = ["Row", "Truth", "The model says", "Why look", "Total", "Aleatoric", "Epistemic"]
    made = table("Rows to look at", head, map(_row, found.unsure), 3, "rows", sortable=True)
    return el("div", el("h3", f"{many(len(found.unsure), 'row')} to look at".capitalize()), made, class_="wide")


def _row(row: UnsureRow) -> list[str | Cell]:
    doubts = [Cell(number(value), value) for value in (row.total, row.aleatoric, row.epistemic)]
    is_right = bool(row.top) and row.top[0][0] == row.truth
    sign = el(
        "span",
        "✓" if is_right else "✕",
        class_="right" if is_right else "wrong",
        title="right" if is_right else "wrong",
    )
    truth = join([sign, el("span", "right: " if is_right else "wrong: ", class_="unseen"), " ", label(row.truth, 24)])
    best = row.top[0][1] if row.top else 0.0
    return [Cell(whole(row.row), float(row.row)), truth, Cell(_top(row), best), row.why, *doubts]


def _top(row: UnsureRow) -> Markup:
    """Its likeliest labels, each with its probability as a number and as a bar."""
    return el("ul", *(el("li", label(said, 16), " ", el("span", percent(p, 0), class_="p"), style=f"--p:{100 * p:.0f}%")
                      for said, p in row.top), class_="top")  # fmt: skip
