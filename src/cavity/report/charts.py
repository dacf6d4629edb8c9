"""The charts of the page, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from cavity.metrics import Array, Indices, Interval, Mask, ReliabilityCurve
from cavity.report.findings import Findings, Map, NovelRows, TrainingCurve
from cavity.report.html import Markup, el, point, short
from cavity.report.svg import (
    WIDTH,
    Formatter,
    Frame,
    Scale,
    are_glyphs,
    class_color,
    picture,
    shape,
    value_range,
    words,
)
from cavity.report.text import name, number, percent, text_width, tidy, whole

LEFT, RIGHT, TOP = 46.0, 382.0, 30.0  # of most charts
MAX_POINTS = 900  # rows or inducing points in a scatter plot
SHARES = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
percent_tick = partial(percent, digits=0)

# --- Confidence intervals in the cells of a table ---

WHISKER_WIDTH, WHISKER_HEIGHT, WHISKER_EDGE = 132.0, 16.0, 6.0
FAR_OUT = 3.0  # an interval that ends this many times further out than the next one gets an arrow


def common_end(intervals: Sequence[Interval]) -> float:
    """Return the end of a scale for all these intervals, except those that are far out."""
    ends = sorted((i.high for i in intervals if math.isfinite(i.high) and i.high > 0.0), reverse=True)
    while len(ends) > 1 and ends[0] > FAR_OUT * ends[1]:
        ends.pop(0)
    return ends[0] if ends else 1.0


def whisker(key: str, interval: Interval, end: float, title: str, description: str, is_best: bool) -> Markup:
    """Draw an interval between 0 and `end`; an arrow marks one that extends beyond."""
    x, middle = Scale(0.0, end, WHISKER_EDGE, WHISKER_WIDTH - WHISKER_EDGE), WHISKER_HEIGHT / 2
    low, high = (x(end if math.isnan(v) else v) for v in (interval.low, interval.high))
    limit = end * (1.0 + 1e-9)
    parts = [
        el("path", d=f"M{point(x.start, middle)}H{short(x.end)}", class_="rail"),
        el("path", d=f"M{point(low, middle)}H{short(high)}", class_="whisker"),
    ]
    if not interval.high <= limit:
        tip, back = x.end + 3, x.end - 3
        arrow = f"M{point(back, middle - 5)}L{point(tip, middle)}L{point(back, middle + 5)}"
        parts.append(el("path", d=arrow, class_="whisker"))
    if interval.value <= limit:
        parts.append(el("circle", cx=x(interval.value), cy=middle, r=4.5, class_="dot best" if is_best else "dot"))
    return picture(key, WHISKER_HEIGHT, title, description, *parts, width=WHISKER_WIDTH)


# --- Reliability ---

RELIABILITY_BOTTOM, RELIABILITY_HEIGHT = 334.0, 452.0
COUNTS_BOTTOM, COUNTS_TOP, SLOTS = 410.0, 358.0, 20


def reliability_diagram(key: str, curve: ReliabilityCurve) -> Markup:
    """Draw accuracy against confidence with 95 % intervals, the diagonal of perfect calibration, and row counts."""
    frame = Frame(Scale(0.0, 1.0, LEFT, RIGHT), Scale(0.0, 1.0, RELIABILITY_BOTTOM, TOP))
    is_top = curve.name is None
    grid = "".join(f"M{point(frame.x(v), RELIABILITY_BOTTOM)}V{TOP:g}" for v in SHARES)
    bars = zip(curve.confidence, curve.low, curve.high, strict=True)
    spans = "".join(f"M{point(*frame.at(c, low))}V{short(frame.y(high))}" for c, low, high in bars)
    line, dots = frame.line(curve.confidence, curve.accuracy), []
    for confidence, accuracy, rows in zip(curve.confidence, curve.accuracy, curve.rows, strict=True):
        tip = f"confidence {percent(confidence)}, observed {percent(accuracy)}, {whole(rows)} rows"
        x, y = frame.at(float(confidence), float(accuracy))
        dots.append(el("circle", el("title", tip), cx=x, cy=y, r=4, class_="dot"))
    hints = ("underconfident", "overconfident") if is_top else ("more frequent than predicted", "less frequent")
    parts = [
        el("path", d=grid, class_="grid"),
        frame.left("accuracy" if is_top else "frequency of this class", SHARES, percent_tick),
        el("path", d=frame.line([0.0, 1.0], [0.0, 1.0]), class_="ideal"),
        words(hints[0], *frame.at(0.03, 0.93), class_="hint"),
        words(hints[1], *frame.at(0.97, 0.05), "end", "hint"),
        el("g", el("path", d=spans or None, class_="span"), el("path", d=line, class_="curve"), *dots),
        _reliability_counts(curve),
    ]
    title = f"Reliability of {'the most probable label' if is_top else name(curve.name or '')}"
    (first, last), (seen_first, seen_last) = ([percent(part[i]) for i in (0, -1)] for part in curve[1:3])
    told = (f"{len(curve.rows)} bins. First bin: {first} predicted, {seen_first} observed. Last bin: "
            f"{last} predicted, {seen_last} observed. The 95 % interval contains the confidence in "
            f"{int(agrees(curve).sum())} bins. Calibration error {number(curve.ece)}.")  # fmt: skip
    return picture(key, RELIABILITY_HEIGHT, title, told, *parts)


def agrees(curve: ReliabilityCurve) -> Mask:
    """Return in which bins the interval of the accuracy contains the confidence."""
    return np.asarray((curve.low <= curve.confidence + 1e-9) & (curve.confidence <= curve.high + 1e-9))


def _reliability_counts(curve: ReliabilityCurve) -> Markup:
    """Bars of the number of rows by confidence; a bin counts at its mean."""
    slot = np.minimum((curve.confidence * SLOTS).astype(int), SLOTS - 1)
    rows = np.bincount(slot, weights=curve.rows, minlength=SLOTS)
    most = float(max(rows.max(initial=0.0), 1.0))
    frame = Frame(Scale(0.0, 1.0, LEFT, RIGHT), Scale(0.0, most, COUNTS_BOTTOM, COUNTS_TOP))
    bars = []
    for i in np.flatnonzero(rows > 0):
        x, y = frame.at(i / SLOTS, float(rows[i]))
        tip = f"{whole(rows[i])} rows from {percent(i / SLOTS, 0)} to {percent((i + 1) / SLOTS, 0)}"
        bars.append(el("rect", el("title", tip), x=x + 1, y=y, width=(RIGHT - LEFT) / SLOTS - 2,
                       height=COUNTS_BOTTOM - y, class_="bar"))  # fmt: skip
    axis = "confidence" if curve.name is None else "predicted probability"
    return el("g", frame.bottom(axis, SHARES, percent_tick),
              el("path", d=f"M{LEFT:g} {COUNTS_BOTTOM:g}H{RIGHT:g}", class_="rule"),
              words(whole(most), LEFT - 8, COUNTS_TOP + 5, "end"),
              words("rows", LEFT - 8, COUNTS_BOTTOM, "end", "axis"), *bars)  # fmt: skip


# --- Bars and heat maps ---

ROW, MARGIN, LETTER = 22.0, 6.0, 7.4
HEAD = 24.0  # height of a line of text above
LABEL_WIDTH = 16  # letters
KEY_HEIGHT, SHADES, PALEST = 30.0, 6, 0.06
COLUMN_WIDTH = 12  # letters of a column name
MIN_VERTICAL = 14.0  # least width of a column with a vertical name
EVERY = (1, 2, 5, 10, 20, 50, 100)
MATRIX = 360.0


class Bar(NamedTuple):
    """A bar, and the range of the values that it is the mean of."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


def bar_chart(
    key: str, bars: Sequence[Bar], title: str, description: str, write: Formatter, axis: str = "", head: float = HEAD
) -> Markup:
    """Draw horizontal bars from 0; `axis` is written above them, in a space of height `head`."""
    left = _label_margin([bar.label for bar in bars])
    ends = [bar.value if bar.high is None else bar.high for bar in bars]
    x = Scale(0.0, max(value_range(ends, zero=True)[1], 1e-12), left, WIDTH - 56.0)
    top = MARGIN + head if axis else MARGIN
    above = words(axis, left, top - 10.0, class_="axis") if axis else None
    height, rows = top + MARGIN + ROW * len(bars), []
    for i, bar in enumerate(bars):
        middle, end = top + ROW * (i + 0.5), max(x(bar.value), left + 1.0)
        block = el("rect", el("title", f"{name(bar.label, 200)}: {write(bar.value)}"), x=left,
                   y=top + ROW * i + 4.0, width=end - left, height=ROW - 8.0, class_="bar")  # fmt: skip
        rows += [_row_label(bar.label, left, middle + 4.0), block]
        if bar.low is not None and bar.high is not None:
            end = max(end, x(bar.high))
            rows.append(el("path", d=f"M{point(x(bar.low), middle)}H{short(x(bar.high))}", class_="span"))
        rows.append(words(write(bar.value), end + 8.0, middle + 4.0, class_="value"))
    return picture(key, height, title, description, above, *rows)


def _label_margin(labels: Sequence[str]) -> float:
    return 10.0 + LETTER * max((text_width(name(label, LABEL_WIDTH)) for label in labels), default=0)


def _row_label(label: str, x: float, y: float) -> Markup:
    tip = name(label, 200) if text_width(label) > LABEL_WIDTH else ""
    return words(name(label, LABEL_WIDTH), x - 8.0, y, "end", tip=tip)


def heat_map(
    key: str, rows: Sequence[str], columns: Sequence[str], values: Array, title: str, description: str, write: Formatter
) -> Markup:
    """Draw rows by columns, in a stronger color for larger values, with a key below."""
    left, step, longest = _columns(rows, columns)
    top = MARGIN + column_head(rows, columns)
    depth, gap = Scale(*value_range(values.ravel().tolist()), PALEST, 1.0), 1.0 if step > 6.0 else 0.0
    cells = [
        el("rect", el("title", f"{name(row)}, {name(column)}: {write(float(values[i, j]))}"), x=left + step * j,
           y=top + ROW * i + 1.0, width=step - gap, height=ROW - 2.0, class_="heat",
           fill_opacity=depth(float(values[i, j])))
        for i, row in enumerate(rows) for j, column in enumerate(columns)
    ]  # fmt: skip
    names = [_row_label(row, left, top + ROW * (i + 0.5) + 4.0) for i, row in enumerate(rows)]
    is_vertical = MIN_VERTICAL <= step < LETTER * longest
    every = next((n for n in EVERY if is_vertical or n * step >= LETTER * (longest + 1.0)), len(columns))
    if every > len(columns) // 3 > 0:
        heads = [words(f"{len(columns)} classes, in order", left, top - 10.0, class_="axis")]
    else:
        heads = [words(name(columns[j], COLUMN_WIDTH), left + step * (j + 0.5) + (4.0 if is_vertical else 0.0),
                       top - 10.0, "start" if is_vertical else "middle", tip=columns[j], up=is_vertical)
                 for j in range(0, len(columns), every)]  # fmt: skip
    low, high, end = write(depth.low), write(depth.high), top + MARGIN + ROW * len(rows) + 10.0
    start = left + LETTER * len(low) + 4.0
    shades = [el("rect", x=start + 20.0 * i, y=end, width=20.0, height=10.0, class_="heat",
                 fill_opacity=PALEST + (1.0 - PALEST) * i / (SHADES - 1)) for i in range(SHADES)]  # fmt: skip
    scale = el("g", words(low, left, end + 9.0), *shades, words(high, start + 20.0 * SHADES + 6.0, end + 9.0))
    return picture(key, end - 10.0 + KEY_HEIGHT, title, description, *heads, *names, *cells, scale)


def column_head(rows: Sequence[str], columns: Sequence[str]) -> float:
    """Return the height of the column names: more if they must be vertical."""
    _, step, longest = _columns(rows, columns)
    return 12.0 + LETTER * longest if MIN_VERTICAL <= step < LETTER * longest else HEAD


def _columns(rows: Sequence[str], columns: Sequence[str]) -> tuple[float, float, float]:
    """Where columns begin, how wide they are, and the width of the longest name in letters."""
    left, longest = _label_margin(rows), max((text_width(name(c, COLUMN_WIDTH)) for c in columns), default=0.0)
    return left, (WIDTH - left) / max(len(columns), 1), longest


def confusion_chart(key: str, classes: Sequence[str], counts: Indices, description: str) -> Markup:
    """Draw a confusion matrix of many classes: only cells that hold rows, errors in another color."""
    step, shares = MATRIX / len(classes), counts / np.maximum(counts.sum(1, keepdims=True), 1)
    left, top = WIDTH - MATRIX, 24.0
    cells = [
        el("rect", el("title", f"{name(classes[i])} predicted as {name(classes[j])}: {counts[i, j]}"),
           x=left + step * j, y=top + step * i, width=max(step, 4.0), height=max(step, 4.0),
           class_="heat" if i == j else "heat miss", fill_opacity=0.4 + 0.6 * float(shares[i, j]) ** 0.5)
        for i, j in np.argwhere(counts)
    ]  # fmt: skip
    return picture(key, top + MATRIX + 4.0, "Confusion matrix", description,
                   el("rect", x=left, y=top, width=MATRIX, height=MATRIX, class_="box"),
                   words("predicted class →", left, top - 8.0, class_="axis"),
                   words("← true class", left - 8.0, top, "end", up=True), *cells)  # fmt: skip


# --- Uncertainty ---

UNCERTAINTY_BOTTOM, UNCERTAINTY_HEIGHT = 318.0, 364.0
KEPT = np.linspace(1.0, 0.5, 51)


def choose_points(is_right: Mask) -> list[int]:
    """Choose at most 900 rows to draw: errors first, others evenly spaced."""

    def thin(rows: Indices, most: int) -> Indices:
        return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]

    wrong = thin(np.flatnonzero(~is_right), MAX_POINTS // 2)
    return sorted([*wrong.tolist(), *thin(np.flatnonzero(is_right), MAX_POINTS - len(wrong)).tolist()])


def uncertainty_scatter(key: str, found: Findings) -> Markup:
    """Draw aleatoric against epistemic uncertainty on square-root axes, because most rows are near 0."""
    x, y = (value_range([*part.tolist(), 0.01], zero=True)[1] for part in (found.aleatoric, found.epistemic))
    frame = Frame(Scale(0.0, x, LEFT, RIGHT, root=True), Scale(0.0, y, UNCERTAINTY_BOTTOM, TOP, root=True))
    groups, told, shown = [], [], choose_points(found.is_right)
    for kind, what, rows in (("right", "correct", found.is_right), ("wrong", "wrong", ~found.is_right)):
        marks = []
        for i in shown:
            if rows[i]:
                a, e = float(found.aleatoric[i]), float(found.epistemic[i])
                tip = el("title", f"row {found.row_names[i]}: aleatoric {number(a)}, epistemic {number(e)}")
                x, y = frame.at(a, e)
                cross = f"M{point(x - 4, y - 4)}l8 8m0 -8l-8 8"
                marks.append(el("circle", tip, cx=x, cy=y, r=3) if kind == "right" else el("path", tip, d=cross))
        groups.append(el("g", *marks, class_=kind))
        if rows.any():
            a, e = (float(np.median(part[rows])) for part in (found.aleatoric, found.epistemic))
            told.append(f"{whole(rows.sum())} {what} rows: median aleatoric {number(a)}, epistemic {number(e)} nats.")
    return picture(key, UNCERTAINTY_HEIGHT, "Aleatoric and epistemic uncertainty", " ".join(told),
                   frame.bottom("aleatoric / nats", frame.x.ticks(), tidy),
                   frame.left("epistemic / nats", frame.y.ticks(), tidy),
                   *groups)  # fmt: skip


def errors_of_kept(total: Array, is_right: Mask) -> Array:
    """Return the error of the most certain rows, for each share of rows kept."""
    wrong = np.cumsum(~is_right[np.argsort(total, kind="stable")])
    kept = np.maximum(np.round(KEPT * len(total)).astype(int), 1)
    return np.asarray(wrong[kept - 1] / kept)


def rejection_curve(key: str, found: Findings) -> Markup:
    """Draw the error of the remaining rows against the share of uncertain rows set aside."""
    errors, aside = errors_of_kept(found.total, found.is_right), 1.0 - KEPT
    high = value_range([*errors.tolist(), 0.01], zero=True)[1] * 1.08
    frame = Frame(Scale(0.0, 0.5, LEFT, RIGHT), Scale(0.0, high, UNCERTAINTY_BOTTOM, TOP))
    digits, every = 0 if high > 0.05 else 1, range(0, len(KEPT), 10)
    told = [f"{percent(aside[i], 0)} set aside: {percent(errors[i])}" for i in every]
    marks: list[Markup] = []
    for i, tip in zip(every, told, strict=True):
        x, y = frame.at(float(aside[i]), float(errors[i]))
        marks.append(el("circle", el("title", tip), cx=x, cy=y, r=4, class_="dot"))
        if i in (0, 10, 50):
            at, anchor = (x, "end") if i == 50 else (x + 4, "start")
            marks.append(words(percent(errors[i]), at, y - 9, anchor, "value"))
    title = "Error of the remaining rows"
    return picture(key, UNCERTAINTY_HEIGHT, title, f"{title}: {'; '.join(told)}.",
                   frame.bottom("most uncertain rows set aside", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5], percent_tick),
                   frame.left("error of the remaining rows", frame.y.ticks(), lambda v: percent(v, digits)),
                   el("path", d=frame.line(aside, errors), class_="curve"), *marks)  # fmt: skip


def novelty_histogram(key: str, found: NovelRows, description: str) -> Markup:
    """Draw how many rows have each novelty, and how many would if all were like the training rows."""
    n_bins, mean = len(found.histogram), found.n_rows / len(found.histogram)
    high = value_range([*found.histogram.tolist(), mean, 1.0], zero=True)[1] * 1.08
    frame = Frame(Scale(0.0, 1.0, LEFT, RIGHT), Scale(0.0, high, UNCERTAINTY_BOTTOM, TOP))
    bars = []
    for i, n in enumerate(found.histogram.tolist()):
        (x, y), end = frame.at(i / n_bins, float(n)), frame.x((i + 1) / n_bins)
        tip = f"{whole(n)} rows from {percent(i / n_bins, 0)} to {percent((i + 1) / n_bins, 0)}"
        kind = "bar novel" if (i + 1) / n_bins <= found.level + 1e-9 else "bar"
        bars.append(el("rect", el("title", tip), x=x + 1, y=y, width=end - x - 2, height=UNCERTAINTY_BOTTOM - y,
                       class_=kind))  # fmt: skip
    expected = el("path", d=frame.line([0.0, 1.0], [mean, mean]), class_="ideal")
    return picture(key, UNCERTAINTY_HEIGHT, "Rows by novelty", description,
                   frame.bottom("novelty", SHARES, percent_tick), frame.left("rows", frame.y.ticks(), tidy),
                   *bars, expected)  # fmt: skip


# --- Map ---

MAP_BOTTOM, MAP_HEIGHT = 338.0, 384.0
SHARED = -1  # the class of inducing points that all classes share
MANY_CLASSES = 10  # from here on, they have their names on the map instead of different marks
NAME_HEIGHT = 14.0


def map_of_rows(key: str, found: Map, classes: Sequence[str]) -> Markup:
    """Draw the rows by true class, with rings around errors."""
    (frame, *axes), shown = _map_frame(found), choose_points(found.row_is_right)
    tips = [f"{name(classes[found.row_class[i]])}, {'correct' if found.row_is_right[i] else 'wrong'}" for i in shown]
    rings: dict[int, str] = {}  # by class, as the marks are
    for i in shown:
        if not found.row_is_right[i]:
            c = int(found.row_class[i])
            rings[c] = rings.get(c, "") + shape(0, *frame.at(*found.rows[i].tolist()), 7.5)
    present = [c for c in range(len(classes)) if (found.row_class == c).any()][:12]
    centers = [found.rows[found.row_class == c].mean(0) for c in present]
    told = ", ".join(f"{name(classes[c], 20)} ({x:.2g}, {y:.2g})" for c, (x, y) in zip(present, centers, strict=True))
    n_wrong = whole((~found.row_is_right).sum())
    described = f"{whole(len(found.rows))} rows, {n_wrong} of them wrong. Class centers: {told}."
    return picture(key, MAP_HEIGHT, "Rows by true class", described, *axes,
                   *_map_marks(frame, found.rows[shown], found.row_class[shown], classes, tips),
                   *(el("path", d=d, class_="ring", data_class=str(c)) for c, d in sorted(rings.items())))  # fmt: skip


def drawn_inducing(found: Map) -> slice:
    """Return which inducing points of the map are drawn."""
    return slice(None, None, max(1, -(-len(found.inducing) // MAX_POINTS)))


def map_of_inducing(key: str, found: Map, classes: Sequence[str]) -> Markup:
    """Draw the inducing points by class, with the rows as dots."""
    frame, *axes = _map_frame(found)
    points, of = found.inducing[drawn_inducing(found)], found.inducing_class[drawn_inducing(found)]
    tips = [f"inducing point of {_class_name(c, classes)}" for c in of.tolist()]
    shown = choose_points(found.row_is_right)
    dots = "".join(f"M{point(*frame.at(*found.rows[i].tolist()))}h0" for i in shown) or None
    described = f"{whole(len(points))} inducing points of {len(classes)} classes; the rows are dots."
    return picture(key, MAP_HEIGHT, "Inducing points by class", described, *axes,
                   el("path", d=dots, class_="dust"), *_map_marks(frame, points, of, classes, tips))  # fmt: skip


def _map_frame(found: Map) -> tuple[Frame, Markup, Markup]:
    """The scales and both axes."""
    both = np.concatenate([found.rows, found.inducing]) if len(found.inducing) else found.rows
    x, y = (value_range(both[:, i].tolist(), margin=0.04) for i in (0, 1))
    frame = Frame(Scale(*x, LEFT, RIGHT), Scale(*y, MAP_BOTTOM, TOP))
    across, up = (name(axis, 40) for axis in found.axes)
    return frame, frame.bottom(across, frame.x.ticks()), frame.left(up, frame.y.ticks())


def _map_marks(frame: Frame, at: Array, of: Indices, classes: Sequence[str], tips: list[str]) -> list[Markup]:
    """Marks grouped by class, so that one class can be highlighted; dots and the names of the classes if many."""
    is_many, glyphs, groups, names = len(classes) >= MANY_CLASSES, are_glyphs(classes), [], []
    used: list[tuple[float, float, float]] = []  # where names are, and half of their widths
    present, counts = np.unique(of, return_counts=True)
    for c in present[np.argsort(-counts, kind="stable")].tolist():  # names of large classes come first
        own, label, is_glyph = [], _class_name(c, classes), glyphs and c != SHARED
        for i in np.flatnonzero(of == c):
            (x, y), tip = frame.at(*at[i].tolist()), el("title", tips[i])
            if is_many:
                own.append(el("circle", tip, cx=x, cy=y, r=2.5))
            else:
                own.append(el("text", label, tip, x=x, y=y + 3.5) if is_glyph else el("path", tip, d=shape(c, x, y)))
        mark, number = "dots" if is_many else "glyphs" if glyphs else "marks", None if c == SHARED else str(c)
        kind = f"{'marks' if mark == 'glyphs' and c == SHARED else mark} {'all' if c == SHARED else class_color(c)}"
        groups.append(el("g", *own, class_=kind, data_class=number))
        if is_many and c != SHARED:  # a name that would cover another one appears when its class is highlighted
            x, y = frame.at(*np.median(at[of == c], axis=0).tolist())
            half = 0.5 * LETTER * text_width(name(label, LABEL_WIDTH)) + 2.0
            x = min(max(x, frame.x.start + half), frame.x.end - half)
            is_free = all(abs(x - u) > half + other or abs(y - v) > NAME_HEIGHT for u, v, other in used)
            used += [(x, y, half)] if is_free else []
            names.append(el("g", el("text", name(label, LABEL_WIDTH), x=x, y=y + 4.5), data_class=number,
                            class_=f"names {class_color(c)}{'' if is_free else ' crowded'}"))  # fmt: skip
    return [*groups, *names]


def _class_name(c: int, classes: Sequence[str]) -> str:
    return "all classes" if c == SHARED else name(classes[c])


# --- Training ---

TRAINING_LEFT, TRAINING_TOP, TRAINING_BOTTOM, TRAINING_HEIGHT = 60.0, 52.0, 262.0, 308.0
MAX_FLAGS, MAX_DOTS, FLAG_DISTANCE = 12, 40, 20.0


def training_chart(key: str, curve: TrainingCurve, by_seconds: bool) -> Markup:
    """Draw the objective against epochs or seconds, with numbered flags for events."""
    known = np.isfinite(curve.objective)
    along = (curve.seconds if by_seconds else curve.epoch.astype(np.float64))[known]
    objective, unit = curve.objective[known], "seconds" if by_seconds else "epochs"
    first, best = int(np.argmax(objective >= axis_floor(objective))), int(objective.argmax())
    y = value_range([axis_floor(objective), float(objective.max())], margin=0.04)
    frame = Frame(Scale(*value_range(along.tolist(), zero=True), TRAINING_LEFT, RIGHT),
                  Scale(*y, TRAINING_BOTTOM, TRAINING_TOP))  # fmt: skip
    shown = list(zip(along[first:].tolist(), objective[first:].tolist(), strict=True))
    dots = [el("circle", el("title", f"{tidy(x)} {unit}: {tidy(y, 5)}"), cx=frame.x(x), cy=frame.y(y), r=2.5,
               class_="speck") for x, y in shown]  # fmt: skip
    start, end, top = (tidy(float(objective[i]), 5) for i in (0, -1, best))
    described = (f"{whole(len(along))} records, from {start} to {end}. "
                 f"The highest is {top}, at {tidy(float(along[best]))} {unit}.")  # fmt: skip
    return picture(key, TRAINING_HEIGHT, f"Objective against {unit}", described, frame.bottom(unit, frame.x.ticks()),
                   frame.left("objective", frame.y.ticks(4), above=40.0 if curve.events else 14.0),
                   el("path", d=frame.line(along[first:], objective[first:]), class_="curve"),
                   *(dots if len(dots) <= MAX_DOTS else []), *_flags(frame, curve, by_seconds))  # fmt: skip


def axis_floor(objective: Array) -> float:
    """Return where the axis begins: at the least value, or after a steep start that would hide the rest."""
    least, late = float(objective.min()), objective[min(len(objective) // 20 + 1, len(objective) - 1) :]
    after, top = float(late.min()), float(objective.max())
    return after if top - least > 4.0 * (top - after) > 0.0 else least


def _flags(frame: Frame, curve: TrainingCurve, by_seconds: bool) -> list[Markup]:
    """Numbered flags; events that are too close share one."""
    groups: list[tuple[float, list[int]]] = []
    for i, event in enumerate(curve.events[:MAX_FLAGS]):
        is_timed = by_seconds and len(curve.epoch) > 0
        x = frame.x(float(np.interp(event.epoch, curve.epoch, curve.seconds) if is_timed else event.epoch))
        if groups and abs(x - groups[-1][0]) < FLAG_DISTANCE:
            groups[-1][1].append(i)
        else:
            groups.append((x, [i]))
    flags = []
    for x, of in groups:
        numbers = str(of[0] + 1) if len(of) == 1 else f"{of[0] + 1}–{of[-1] + 1}"
        half = 8.0 if len(of) == 1 else 5.0 + 3.5 * len(numbers)
        pole = el("path", d=f"M{short(x)} {TRAINING_TOP - 10:g}V{TRAINING_BOTTOM:g}")
        box = el("rect", x=x - half, y=TRAINING_TOP - 26.0, width=2 * half, height=16.0, rx=8.0)
        tip = el("title", name("; ".join(curve.events[i].text for i in of), 200))
        flags.append(el("g", tip, pole, box, words(numbers, x, TRAINING_TOP - 14.0, "middle"), class_="flag"))
    return flags
