"""Reliability: how often the model is right, against how sure it is, with the rows that say so below."""

from __future__ import annotations

import numpy as np

from cavity.report.charts.frame import Frame, picture, words
from cavity.report.charts.scale import Scale
from cavity.report.findings import Reliability
from cavity.report.html import Markup, el, join, short
from cavity.report.numerals import name, number, percent, whole

LEFT, RIGHT, TOP, BOTTOM = 46.0, 382.0, 30.0, 334.0
FLOOR, ROOF = 410.0, 358.0  # of the counts
HEIGHT, SLOTS = 452.0, 20
SHARES = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def reliability(key: str, found: Reliability) -> Markup:
    """The diagram, with 95 % intervals and a diagonal that perfect probabilities would follow."""
    frame = Frame(Scale(0.0, 1.0, LEFT, RIGHT), Scale(0.0, 1.0, BOTTOM, TOP))
    what = "the likeliest label" if found.label is None else name(found.label)
    above = "share that is right" if found.label is None else "share that has this label"
    up = el("path", d="".join(f"M{short(frame.x(v))} {BOTTOM:g}V{TOP:g}" for v in SHARES), class_="grid")
    parts = [
        up,
        frame.left(above, SHARES, _share),
        _diagonal(frame),
        _hints(frame),
        _points(frame, found),
        _counts(found),
    ]
    return picture(key, HEIGHT, f"Reliability of {what}", _seen(found), *parts)


def is_met(found: Reliability) -> np.ndarray:
    """In which bins the confidence lies within what the frequency may be."""
    return (found.low <= found.confidence + 1e-9) & (found.confidence <= found.high + 1e-9)


def _seen(found: Reliability) -> str:
    if not len(found.confidence):
        return "No rows."
    least, most = (f"{percent(found.frequency[i])} where it says {percent(found.confidence[i])}" for i in (0, -1))
    return (
        f"{len(found.confidence)} bins. It is so in {least}, and in {most}. "
        f"In {int(is_met(found).sum())} bins the 95 % interval holds the confidence. "
        f"Calibration error {number(found.ece)}."
    )


def _diagonal(frame: Frame) -> Markup:
    return el("path", d=frame.line([0.0, 1.0], [0.0, 1.0]), class_="ideal")


def _hints(frame: Frame) -> Markup:
    """What it means to lie off the diagonal."""
    x, y = frame.at(0.03, 0.93)
    v, w = frame.at(0.97, 0.05)
    return join([words("more often than it says", x, y, class_="hint"),
                 words("less often than it says", v, w, "end", "hint")])  # fmt: skip


def _points(frame: Frame, found: Reliability) -> Markup:
    bars = zip(found.confidence, found.low, found.high, strict=True)
    spans = "".join(f"M{short(frame.x(c))} {short(frame.y(a))}V{short(frame.y(b))}" for c, a, b in bars)
    line = frame.line(found.confidence.tolist(), found.frequency.tolist()) if len(found.confidence) else None
    dots = [_dot(frame, found, i) for i in range(len(found.confidence))]
    return el("g", el("path", d=spans or None, class_="span"), el("path", d=line, class_="curve"), *dots)


def _dot(frame: Frame, found: Reliability, i: int) -> Markup:
    x, y = frame.at(float(found.confidence[i]), float(found.frequency[i]))
    said = f"says {percent(found.confidence[i])}, is {percent(found.frequency[i])} of {whole(found.count[i])} rows"
    return el("circle", el("title", said), cx=x, cy=y, r=4, class_="dot")


def _counts(found: Reliability) -> Markup:
    """How many rows the model is so sure of; a bin counts where its mean lies."""
    slot = np.minimum((found.confidence * SLOTS).astype(int), SLOTS - 1)
    rows = np.bincount(slot, weights=found.count, minlength=SLOTS)
    most = float(max(rows.max(initial=0.0), 1.0))
    frame = Frame(Scale(0.0, 1.0, LEFT, RIGHT), Scale(0.0, most, FLOOR, ROOF))
    bars = [_bar(frame, i, float(n)) for i, n in enumerate(rows) if n > 0]
    base = el("path", d=f"M{LEFT:g} {FLOOR:g}H{RIGHT:g}", class_="rule")
    top = words(whole(most), LEFT - 8, ROOF + 5, "end")
    label = words("rows", LEFT - 8, FLOOR, "end", "axis")
    return el("g", frame.bottom("how sure the model is", SHARES, _share), base, top, label, *bars)


def _bar(frame: Frame, slot: int, rows: float) -> Markup:
    x, y = frame.at(slot / SLOTS, rows)
    said = f"{whole(rows)} rows from {percent(slot / SLOTS, 0)} to {percent((slot + 1) / SLOTS, 0)}"
    step = (RIGHT - LEFT) / SLOTS
    return el("rect", el("title", said), x=x + 1, y=y, width=step - 2, height=FLOOR - y, class_="bar")


def _share(value: float) -> str:
    return percent(value, 0)
