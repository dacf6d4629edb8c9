"""What every chart has: a picture with a title and a description, axes, words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cavity.report.charts.scale import Scale
from cavity.report.html import Markup, el, short
from cavity.report.numerals import even

WIDTH = 400.0
Writer = Callable[[float], str]


def picture(key: str, height: float, title: str, seen: str, *parts: str | None, width: float = WIDTH) -> Markup:
    """An SVG that a screen reader can tell of: `seen` says in numbers what there is to be seen.

    Args:
        key: a name that no other picture of the page has.
    """
    words = [el("title", title, id=f"{key}-title"), el("desc", seen, id=f"{key}-desc")]
    return el("svg", *words, *parts, viewBox=f"0 0 {short(width)} {short(height)}", role="img",
              aria_labeledby=f"{key}-title {key}-desc")  # fmt: skip


class Frame(NamedTuple):
    """The scales of a chart; y grows upwards."""

    x: Scale
    y: Scale

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a pair of values."""
        return self.x(x), self.y(y)

    def line(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        """The path through pairs of values."""
        return "M" + "L".join(_pair(*self.at(float(x), float(y))) for x, y in zip(xs, ys, strict=True))

    def bottom(self, label: str, values: Sequence[float], write: Writer | None = None) -> Markup:
        """The axis below: lines up, numbers and what they are."""
        low, high, write = self.y.start, self.y.end, write or even(values)
        lines = "".join(f"M{_pair(self.x(v), low)}V{short(high)}" for v in values)
        numbers = [words(write(v), self.x(v), low + 18, "middle") for v in values]
        middle = (self.x.start + self.x.end) / 2
        return el("g", el("path", d=lines or None, class_="grid"), *numbers,
                  words(label, middle, low + 38, "middle", "axis"))  # fmt: skip

    def left(self, label: str, values: Sequence[float], write: Writer | None = None, above: float = 14.0) -> Markup:
        """The axis at the left, with what its numbers are above it: no one has to tilt the head."""
        low, high, write = self.x.start, self.x.end, write or even(values)
        lines = "".join(f"M{_pair(low, self.y(v))}H{short(high)}" for v in values)
        numbers = [words(write(v), low - 8, self.y(v) + 4, "end") for v in values]
        return el("g", el("path", d=lines or None, class_="grid"), *numbers,
                  words(label, 0, self.y.end - above, class_="axis"))  # fmt: skip


def words(
    said: str, x: float, y: float, anchor: str | None = None, class_: str | None = None, more: str = ""
) -> Markup:
    """Words at a place; `more` is shown to who points at them."""
    return el("text", said, el("title", more) if more else None, x=x, y=y, text_anchor=anchor, class_=class_)


def _pair(x: float, y: float) -> str:
    return f"{short(x)} {short(y)}"
