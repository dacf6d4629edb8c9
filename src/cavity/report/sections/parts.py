"""What sections are made of: figures with their data behind them, tables, controls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cavity.report.html import Markup, el, join
from cavity.report.numerals import name

LONG = 20  # rows of a narrow table that paper shows in columns


class Cell(NamedTuple):
    """What a cell shows, and what it is sorted by."""

    shown: str
    order: float


Row = list[str | Cell]


def section(key: str, title: str, lead: str | None, *parts: str | None) -> Markup:
    """A part of the page that the contents lead to."""
    head = el("h2", title, id=f"{key}-title")
    first = None if lead is None else el("p", lead, class_="lead")
    return el("section", head, first, *parts, id=key, aria_labeledby=f"{key}-title")


def figure(chart: Markup, title: str, caption: str, data: Markup | None = None, **attributes: str) -> Markup:
    """A chart with a title, a sentence on what is to be seen, and the numbers behind it."""
    behind = None if data is None else el("details", el("summary", "The numbers"), data, class_="data")
    return el("figure", el("figcaption", el("h3", title), el("p", caption)), chart, behind, **attributes)


def pair(*parts: str | None) -> Markup:
    """Side by side where there is room."""
    return el("div", *parts, class_="pair")


def label(said: str, width: int = 60) -> Markup:
    """A name out of the data, in running text or in a cell."""
    short = name(said, width)
    return el("bdi", short, title=None if short == said else name(said, 500))


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[str | Cell]], numbers: int, class_: str = "",
    sortable: bool = False,
) -> Markup:  # fmt: skip
    """A table in a box that scrolls by itself; the first cell of a row is its name.

    Args:
        numbers: so many columns at the end hold numbers.
        sortable: whether clicks on the header sort it.
    """
    first = len(header) - numbers
    heads = [el("th", said, scope="col", class_="n" if j >= first else None) for j, said in enumerate(header)]
    body = [el("tr", *(_cell(cell, j, j >= first) for j, cell in enumerate(row))) for row in rows]
    made = el("table", el("caption", caption), el("thead", el("tr", *heads)), el("tbody", *body),
              class_=class_ or None, data_sortable=sortable)  # fmt: skip
    is_long = len(body) > LONG and len(header) <= 4
    return scrolls(caption, made, "long" if is_long else "")


def scrolls(what: str, inside: Markup, class_: str = "") -> Markup:
    """A box that scrolls by itself, with the keyboard as well."""
    return el("div", inside, class_=f"scroll {class_}".strip(), tabindex="0", role="region", aria_label=what)


def _cell(cell: str | Cell, column: int, is_number: bool) -> Markup:
    shown, order = (cell.shown, f"{cell.order:.6g}") if isinstance(cell, Cell) else (cell, None)
    class_ = "n" if is_number else None
    if column == 0:
        return el("th", shown, scope="row", class_=class_, data_order=order)
    return el("td", shown, class_=class_, data_order=order)


def picker(key: str, said: str, options: Iterable[tuple[str, str]], chosen: str, for_: str) -> Markup:
    """A choice that needs the script; without it all is shown and the choice is not."""
    made = [el("option", name(shown, 40), value=value, selected=value == chosen) for value, shown in options]
    return el("p", el("label", said, for_=key), " ", el("select", *made, id=key, data_for=for_), class_="control",
              hidden=True)  # fmt: skip


def prose(said: str) -> Markup:
    """A sentence, with what stands in backquotes as code.

    >>> prose("give `train`")
    'give <code>train</code>'
    """
    return join(el("code", part) if i % 2 else part for i, part in enumerate(said.split("`")))


def items(entries: Iterable[str], class_: str | None = None) -> Markup:
    """A list."""
    return el("ul", join(el("li", entry) for entry in entries), class_=class_)
