"""Elements of HTML and SVG as text; whatever is not markup is escaped, so that no label can break a page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

VOID = {"br", "col", "input", "link", "meta"}
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # controls, and what no file can hold
PERCENT = re.compile(r"(?<=\d) %")
SPACES = re.compile(r"[ \t\n\r\f\v]+")


class Markup(str):
    """Text that goes on the page as it is."""

    __slots__ = ()


def el(tag: str, /, *children: str | None, **attributes: str | float | bool | None) -> Markup:
    """An element. Children that are no `Markup` are escaped; attributes of None or False are left out.

    A trailing underscore of an attribute's name is dropped, others become hyphens.

    >>> el("p", "1 < 2", el("br"), class_="a", aria_label='"b"')
    '<p class="a" aria-label="&quot;b&quot;">1 &lt; 2<br></p>'
    """
    found = "".join(_attribute(name, value) for name, value in attributes.items())
    return Markup(f"<{tag}{found}>" if tag in VOID else f"<{tag}{found}>{join(children)}</{tag}>")


def join(parts: Iterable[str | None]) -> Markup:
    """Parts one after the other, escaped where they are plain text."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts if part is not None))


def text(plain: str) -> Markup:
    """Plain text, escaped; a number and its % are not parted.

    >>> text("<b>")
    '&lt;b&gt;'
    """
    return Markup(escape(PERCENT.sub("\u202f%", clean(plain))))


def clean(plain: str) -> str:
    """On one line, with a sign in place of what cannot be shown.

    >>> clean("a\\n b\\0")
    'a b\ufffd'
    """
    return UNSEEN.sub("\ufffd", SPACES.sub(" ", plain))


def _attribute(name: str, value: str | float | bool | None) -> str:
    name = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    if isinstance(value, Markup):  # a page within the page: not a sign of it may change
        return f' {name}="{escape(value)}"'
    return f' {name}="{text(value) if isinstance(value, str) else short(value)}"'


def short(value: float) -> str:
    """A coordinate: two decimals at most, none where none are needed.

    >>> short(12.0), short(0.126), short(-0.001)
    ('12', '0.13', '0')
    """
    written = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if written == "-0" else written
