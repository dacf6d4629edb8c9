"""The training curve: the objective against epochs, and against seconds."""

from __future__ import annotations

import numpy as np

from cavity.report.charts.frame import Frame, picture, words
from cavity.report.charts.scale import Scale, reach, roomy
from cavity.report.findings import Array, Course
from cavity.report.html import Markup, el, join, short
from cavity.report.numerals import name, tidy, whole

LEFT, RIGHT, TOP, BOTTOM, HEIGHT = 60.0, 382.0, 52.0, 262.0, 308.0
MARKED, DOTS, APART = 12, 40, 20.0


def curve(key: str, found: Course, by_seconds: bool) -> Markup:
    """The objective, which should rise and settle; numbered flags where something happened."""
    known = np.isfinite(found.objective)
    along = (found.seconds if by_seconds else found.epoch.astype(np.float64))[known]
    objective, what = found.objective[known], "seconds" if by_seconds else "epochs"
    frame, shown = _frame(along, objective), _risen(objective)
    axes = [
        frame.bottom(what, frame.x.ticks()),
        frame.left("objective", frame.y.ticks(4), above=40.0 if found.events else 14.0),
    ]
    line = el("path", d=frame.line(along[shown:].tolist(), objective[shown:].tolist()), class_="curve")
    return picture(key, HEIGHT, f"Objective against {what}", _seen(along, objective, what), *axes, line,
                   _dots(frame, along[shown:], objective[shown:], what), *_flags(frame, found, by_seconds))  # fmt: skip


def place(found: Course, epoch: int, by_seconds: bool) -> float:
    """Where an event lies along the axis."""
    if not by_seconds or not len(found.epoch):
        return float(epoch)
    return float(np.interp(epoch, found.epoch, found.seconds))


def floor(objective: Array) -> float:
    """Where the axis begins: at the least value, or where the first steep rise is over if that hides the rest."""
    least, late = float(objective.min()), objective[min(len(objective) // 20 + 1, len(objective) - 1) :]
    after, top = float(late.min()), float(objective.max())
    return after if top - least > 4.0 * (top - after) > 0.0 else least


def _risen(objective: Array) -> int:
    """The first record that lies on the axis."""
    return int(np.argmax(objective >= floor(objective)))


def _frame(along: Array, objective: Array) -> Frame:
    low, high = roomy(*reach([floor(objective), float(objective.max())]))
    return Frame(Scale(*reach(along.tolist(), zero=True), LEFT, RIGHT), Scale(low, high, BOTTOM, TOP))


def _dots(frame: Frame, along: Array, objective: Array, what: str) -> Markup | None:
    """A dot for each record, where they are few."""
    if len(along) > DOTS:
        return None
    pairs = zip(along.tolist(), objective.tolist(), strict=True)
    return join(el("circle", el("title", f"{tidy(x)} {what}: {tidy(y, 5)}"), cx=frame.x(x), cy=frame.y(y), r=2.5,
                   class_="speck") for x, y in pairs)  # fmt: skip


def _flags(frame: Frame, found: Course, by_seconds: bool) -> list[Markup]:
    """Numbered flags, one for events that lie too close for two."""
    groups: list[tuple[float, list[int]]] = []
    for i, (epoch, _) in enumerate(found.events[:MARKED]):
        x = frame.x(place(found, epoch, by_seconds))
        if groups and abs(x - groups[-1][0]) < APART:
            groups[-1][1].append(i)
        else:
            groups.append((x, [i]))
    return [_flag(x, of, [found.events[i][1] for i in of]) for x, of in groups]


def _flag(x: float, of: list[int], said: list[str]) -> Markup:
    number = str(of[0] + 1) if len(of) == 1 else f"{of[0] + 1}–{of[-1] + 1}"
    half = 8.0 if len(of) == 1 else 5.0 + 3.5 * len(number)
    box = el("rect", x=x - half, y=TOP - 26.0, width=2 * half, height=16.0, rx=8.0)
    return el("g", el("title", name("; ".join(said), 200)), el("path", d=f"M{short(x)} {TOP - 10:g}V{BOTTOM:g}"), box,
              words(number, x, TOP - 14.0, "middle"), class_="flag")  # fmt: skip


def _seen(along: Array, objective: Array, what: str) -> str:
    first, last = tidy(float(objective[0]), 5), tidy(float(objective[-1]), 5)
    best = int(objective.argmax())
    return (f"{whole(len(along))} records, from {first} to {last}. "
            f"The highest is {tidy(float(objective[best]), 5)}, at {tidy(float(along[best]))} {what}.")  # fmt: skip
