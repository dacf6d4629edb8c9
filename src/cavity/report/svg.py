"""Drawing primitives of the charts: scales, axes, text and the marks of classes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from cavity.report.html import Markup, el, point, short
from cavity.report.palette import COLORS
from cavity.report.text import name, text_width, tick_format

WIDTH = 400.0
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
GLYPH_WIDTH = 2
Formatter = Callable[[float], str]
Shape = Callable[[float, float, float], str]  # the path around x and y, of some size

# --- Scales ---


class Scale(NamedTuple):
    """Map values from `low` to `high` to positions from `start` to `end`; with `root`, by their square roots.

    >>> Scale(0.0, 10.0, 100.0, 200.0)(5.0)
    150.0
    """

    low: float
    high: float
    start: float
    end: float
    root: bool = False

    def __call__(self, value: float) -> float:
        """Return the position of a value, clipped to the scale."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.root:
            low, high, value = (math.sqrt(max(v, 0.0)) for v in (low, high, value))
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round values along the scale; by square roots, fractions of a round value."""
        if not self.root:
            return ticks(self.low, self.high, about)
        top = _step(self.high * 0.8)
        top = top if top <= self.high else top / 2.0
        return [0.0, *(_rounded(top * share, top * 0.01) for share in (0.05, 0.2, 0.5, 1.0))]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round values from `low` to `high`.

    >>> ticks(0.0, 1.0), ticks(-830.0, -390.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [-800.0, -700.0, -600.0, -500.0, -400.0])
    """
    step = _step((high - low) / about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [_rounded(i * step, step) for i in range(first, last + 1)]


def value_range(values: Iterable[float], zero: bool = False, margin: float = 0.0) -> tuple[float, float]:
    """Return the range of the finite values, never empty, with a margin on both sides as a share of the range."""
    finite = [float(v) for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    low = min(low, 0.0) if zero else low
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        high = low + (abs(low) or 1.0)
    return low - margin * (high - low), high + margin * (high - low)


def _step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return min((factor * size for factor in STEPS), key=lambda step: abs(math.log(step / rough)))


def _rounded(value: float, step: float) -> float:
    """Remove the rounding error of a product."""
    return round(value, max(0, 2 - math.floor(math.log10(step)))) + 0.0


# --- Pictures and axes ---


def picture(key: str, height: float, title: str, description: str, *parts: str | None, width: float = WIDTH) -> Markup:
    """An SVG image with a title, and a description in numbers for screen readers; `key` is unique on the page."""
    told = [el("title", title, id=f"{key}-title"), el("desc", description, id=f"{key}-desc")]
    return el("svg", *told, *parts, viewBox=f"0 0 {short(width)} {short(height)}", role="img",
              aria_labelledby=f"{key}-title {key}-desc")  # fmt: skip


class Frame(NamedTuple):
    """The scales of a chart; y increases upward."""

    x: Scale
    y: Scale

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a pair of values."""
        return self.x(x), self.y(y)

    def line(self, xs: Iterable[float], ys: Iterable[float]) -> str:
        """Return the path through pairs of values."""
        return "M" + "L".join(point(*self.at(float(x), float(y))) for x, y in zip(xs, ys, strict=True))

    def bottom(self, label: str, values: Sequence[float], write: Formatter | None = None) -> Markup:
        """Draw the horizontal axis: grid lines, tick labels and the name of the axis."""
        low, high, write = self.y.start, self.y.end, write or tick_format(values)
        lines = "".join(f"M{point(self.x(v), low)}V{short(high)}" for v in values)
        numbers = [words(write(v), self.x(v), low + 18, "middle") for v in values]
        return el("g", el("path", d=lines or None, class_="grid"), *numbers,
                  words(label, (self.x.start + self.x.end) / 2, low + 38, "middle", "axis"))  # fmt: skip

    def left(self, label: str, values: Sequence[float], write: Formatter | None = None, above: float = 14.0) -> Markup:
        """Draw the vertical axis, with its name above it rather than rotated."""
        low, high, write = self.x.start, self.x.end, write or tick_format(values)
        lines = "".join(f"M{point(low, self.y(v))}H{short(high)}" for v in values)
        numbers = [words(write(v), low - 8, self.y(v) + 4, "end") for v in values]
        return el("g", el("path", d=lines or None, class_="grid"), *numbers,
                  words(label, 0, self.y.end - above, class_="axis"))  # fmt: skip


def words(
    text: str, x: float, y: float, anchor: str | None = None, class_: str | None = None, tip: str = "", up: bool = False
) -> Markup:
    """Text at a position, with an optional tooltip; `up` makes it run upward."""
    at = {"transform": f"translate({point(x, y)}) rotate(-90)"} if up else {"x": short(x), "y": short(y)}
    tooltip = el("title", name(tip, 200)) if tip else None
    return el("text", text, tooltip, **at, text_anchor=anchor, class_=class_)


# --- Marks that tell classes apart by shape and color ---


def class_color(k: int) -> str:
    """Return the style sheet class of the color of class k."""
    return f"k{k % len(COLORS)}"


def are_glyphs(classes: Sequence[str]) -> bool:
    """Whether all labels are so short that they can be the marks themselves."""
    return all(text_width(name(label)) <= GLYPH_WIDTH for label in classes)


def shape(k: int, x: float, y: float, size: float = 4.0) -> str:
    """Return the path of the shape of class k, one of eight."""
    return SHAPES[k % len(SHAPES)](x, y, size)


def disc(x: float, y: float, size: float) -> str:
    """Return the path of a circle."""
    r, d = short(size), short(2 * size)
    return f"M{point(x - size, y)}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z"


def _polygon(n: int, turn: float, grow: float, x: float, y: float, size: float, inner: float | None = None) -> str:
    """The path of a polygon with n corners, or of a star whose inner corners are at this share of its radius."""
    radii = n * ([size * grow] if inner is None else [size * grow, size * grow * inner])
    angles = [turn + 2 * math.pi * i / len(radii) for i in range(len(radii))]
    corners = [point(x + r * math.sin(a), y - r * math.cos(a)) for r, a in zip(radii, angles, strict=True)]
    return "M" + "L".join(corners) + "z"


# Eight shapes and seven colors have no factor in common, so 56 classes look different.
SHAPES: list[Shape] = [
    disc,
    partial(_polygon, 4, math.pi / 4, 1.25),  # a square
    partial(_polygon, 3, 0.0, 1.35),
    partial(_polygon, 4, 0.0, 1.35),  # a diamond
    partial(_polygon, 3, math.pi, 1.35),
    partial(_polygon, 4, 0.0, 1.55, inner=0.35),  # a plus
    partial(_polygon, 5, 0.0, 1.45, inner=0.45),  # a star
    partial(_polygon, 4, math.pi / 4, 1.55, inner=0.35),  # a cross
]
