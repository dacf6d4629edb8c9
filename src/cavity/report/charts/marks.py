"""Marks that tell classes apart by shape and by color."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cavity.report.html import Markup, el, short
from cavity.report.numerals import name, wide

COLORS = 7  # k0 to k6 of the style sheet; no factor in common with the shapes, so 56 classes differ
GLYPH_WIDTH = 2
Shape = Callable[[float, float, float], str]  # the path around x and y, of some size


def color(place: int) -> str:
    """The class of the style sheet that a class of the data has."""
    return f"k{place % COLORS}"


def are_glyphs(classes: Sequence[str]) -> bool:
    """Whether labels are so short that they can be the marks themselves."""
    return all(wide(name(label)) <= GLYPH_WIDTH for label in classes)


def mark(place: int, label: str, x: float, y: float, glyph: bool, tip: str = "") -> Markup:
    """The mark of a class: its label, or a shape of its own."""
    told = el("title", tip) if tip else None
    if glyph:
        return el("text", name(label), told, x=x, y=y + 3.5)
    return el("path", told, d=shape(place, x, y))


def shape(place: int, x: float, y: float, size: float = 4.0) -> str:
    """The path of one of eight shapes around a place."""
    return SHAPES[place % len(SHAPES)](x, y, size)


def cross(x: float, y: float, size: float = 4.0) -> str:
    """Two lines that cross."""
    a, b, c, d = (short(v) for v in (x - size, x + size, y - size, y + size))
    return f"M{a} {c}L{b} {d}M{a} {d}L{b} {c}"


def disc(x: float, y: float, size: float) -> str:
    """A circle, as a path."""
    r, d = short(size), short(2 * size)
    return f"M{short(x - size)} {short(y)}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z"


def polygon(corners: int, turn: float, grow: float, inner: float | None = None) -> Shape:
    """Draws a polygon of so many corners; a star where `inner` says how deep it is cut."""
    radii = [1.0] if inner is None else [1.0, inner]
    angles = [turn + 2 * math.pi * i / (corners * len(radii)) for i in range(corners * len(radii))]

    def draw(x: float, y: float, size: float) -> str:
        reach = [size * grow * radii[i % len(radii)] for i in range(len(angles))]
        points = [
            f"{short(x + r * math.sin(a))} {short(y - r * math.cos(a))}" for r, a in zip(reach, angles, strict=True)
        ]
        return "M" + "L".join(points) + "z"

    return draw


SHAPES: list[Shape] = [
    disc,
    polygon(4, math.pi / 4, 1.25),  # a square
    polygon(3, 0.0, 1.35),
    polygon(4, 0.0, 1.35),  # a diamond
    polygon(3, math.pi, 1.35),
    polygon(4, 0.0, 1.55, 0.35),  # a plus
    polygon(5, 0.0, 1.45, 0.45),  # a star
    polygon(4, math.pi / 4, 1.55, 0.35),  # a cross
]
