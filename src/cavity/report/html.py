"""HTML and SVG elements as escaped text, and what sections are made of: figures, tables, controls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from cavity.report.text import clean, name

VOID = {"br", "col", "input", "link", "meta"}
PERCENT = re.compile(r"(?<=\d) %")
LONG_TABLE = 20  # rows of a narrow table that print in columns


class Markup(str):
    """Text that goes on the page unescaped."""

    __slots__ = ()


class Cell(NamedTuple):
    """What a table cell shows, and the number it is sorted by."""

    shown: str
    order: float | None


Row = list[str | Cell]


# --- Elements ---


def el(tag: str, /, *children: str | None, **attributes: str | float | bool | None) -> Markup:
    """Make an element. Children that are not `Markup` are escaped; attributes of None or False are dropped.

    A trailing underscore in the name of an attribute is dropped; other underscores become hyphens.

    >>> el("p", "1 < 2", el("br"), class_="a", aria_label='"b"')
    '<p class="a" aria-label="&quot;b&quot;">1 &lt; 2<br></p>'
    """
    made = ""
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            made += f" {key}"
        elif isinstance(value, Markup):  # a page within the page must not change
            made += f' {key}="{escape(value)}"'
        elif value is not None and value is not False:
            made += f' {key}="{text(value) if isinstance(value, str) else short(value)}"'
    return Markup(f"<{tag}{made}>" if tag in VOID else f"<{tag}{made}>{join(children)}</{tag}>")


def join(parts: Iterable[str | None]) -> Markup:
    """Concatenate parts; plain text is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts if part is not None))


def text(plain: str) -> Markup:
    """Escape plain text; a number and its % sign stay on one line.

    >>> text("<b>")
    '&lt;b&gt;'
    """
    return Markup(escape(PERCENT.sub("\u202f%", clean(plain))))


def short(value: float) -> str:
    """Write a coordinate with at most two decimals.

    >>> short(12.0), short(0.126), short(-0.001)
    ('12', '0.13', '0')
    """
    written = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if written == "-0" else written


def point(x: float, y: float) -> str:
    """Write a position."""
    return f"{short(x)} {short(y)}"


# --- Parts of sections ---


def figure(chart: Markup, title: str, caption: str, data: Markup | None = None, **attributes: str) -> Markup:
    """A chart with a title, a caption, and a table of its numbers that can be unfolded."""
    behind = None if data is None else el("details", el("summary", "Show the numbers"), data, class_="data")
    return el("figure", el("figcaption", el("h3", title), el("p", caption)), chart, behind, **attributes)


def pair(*parts: str | None) -> Markup:
    """Parts side by side where there is room."""
    return el("div", *parts, class_="pair")


def label(given: str, width: int = 60) -> Markup:
    """A name from the data, in running text or in a cell."""
    shown = name(given, width)
    return el("bdi", shown, title=None if shown == given else name(given, 500))


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[str | Cell]], numbers: int, class_: str = "",
    sortable: bool = False,
) -> Markup:  # fmt: skip
    """A table in a scrolling box; the first cell of each row is its header, and the last columns hold `numbers`."""
    first = len(header) - numbers
    heads = [el("th", title, scope="col", class_="n" if j >= first else None) for j, title in enumerate(header)]
    body = []
    for row in rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell, None) for cell in row]
        body.append(el("tr", *(
            el("td" if j else "th", shown, scope=None if j else "row", class_="n" if j >= first else None,
               data_order=None if order is None else f"{order:.6g}")
            for j, (shown, order) in enumerate(cells)
        )))  # fmt: skip
    made = el("table", el("caption", caption), el("thead", el("tr", *heads)), el("tbody", *body),
              class_=class_ or None, data_sortable=sortable)  # fmt: skip
    is_long = len(body) > LONG_TABLE and len(header) <= 4
    return scroll(caption, made, "long" if is_long else "")


def scroll(title: str, inside: Markup, class_: str = "") -> Markup:
    """A box that scrolls on its own, also by keyboard."""
    return el("div", inside, class_=f"scroll {class_}".strip(), tabindex="0", role="region", aria_label=title)


def picker(key: str, title: str, options: Iterable[tuple[str, str]], chosen: str, for_: str) -> Markup:
    """A drop-down list that the script shows; without the script, everything is visible."""
    made = [el("option", name(shown, 40), value=value, selected=value == chosen) for value, shown in options]
    return el("p", el("label", title, for_=key), " ", el("select", *made, id=key, data_for=for_), class_="control",
              hidden=True)  # fmt: skip


def prose(sentence: str) -> Markup:
    """A sentence, with text in backquotes as code.

    >>> prose("give `train`")
    'give <code>train</code>'
    """
    return join(el("code", part) if i % 2 else part for i, part in enumerate(sentence.split("`")))
