"""Calibration: of all labels together, then of each class."""

from __future__ import annotations

import numpy as np

from cavity.report.charts.bars import Bar, bars
from cavity.report.charts.reliability import is_met, reliability
from cavity.report.findings import Findings, Reliability
from cavity.report.html import Markup, el
from cavity.report.numerals import alike, listed, many, name, number, percent, whole
from cavity.report.sections.parts import Cell, Row, figure, label, pair, picker, section, table

BARS, DIAGRAMS = 20, 100


def calibration(found: Findings) -> Markup:
    """Diagrams, and the calibration error of each class."""
    lead = ("When the model says 80 %, is it right in 80 of 100 cases? Points on the diagonal say yes; "
            "the lines through them are 95 % intervals of what the data allow.")  # fmt: skip
    if not found.reliability:
        return section("calibration", "Calibration", "There are too few rows to judge probabilities by.")
    top, each = found.reliability[0], found.reliability[1:]
    whole_model = figure(reliability("reliability", top), "All classes", _caption(top), _numbers(top))
    return section("calibration", "Calibration", lead, pair(whole_model, _each(each) if each else None),
                   _errors(each) if each else None)  # fmt: skip


def _caption(found: Reliability) -> str:
    inside, bins = int(is_met(found).sum()), len(found.confidence)
    what = "the confidence in the likeliest label" if found.label is None else "the probability of this class"
    return f"In {inside} of {bins} bins, {what} agrees with the data. Calibration error {number(found.ece)}."


def _numbers(found: Reliability) -> Markup:
    rows = [
        [percent(found.confidence[i]), percent(found.frequency[i]),
         f"{number(100 * found.low[i], 1)} to {percent(found.high[i])}", whole(found.count[i])]
        for i in range(len(found.confidence))
    ]  # fmt: skip
    what = "of the likeliest label" if found.label is None else f"of {name(found.label)}"
    return table(f"Reliability {what}", ["Says", "Is", "95 % interval", "Rows"], rows, 4)


def _each(each: list[Reliability]) -> Markup:
    """One diagram a class: all of them, or with the script the one that is picked."""
    shown = _worst(each, DIAGRAMS)
    first = max(shown, key=lambda k: each[k].ece)
    options = [(str(k), f"{name(each[k].label or '')} (error {number(each[k].ece)})") for k in shown]
    control = picker("pick-class", "Class", options, str(first), "reliability-of")
    left_out = "" if len(shown) == len(each) else f", those of the {len(shown)} largest calibration errors"
    say = el("summary", f"A diagram of each class{left_out}")
    figures = [_of_class(k, each[k]) for k in shown]
    return el("div", control, el("details", say, *figures, class_="each", id="reliability-of"), class_="classes")


def _of_class(k: int, found: Reliability) -> Markup:
    chart = reliability(f"reliability-{k}", found)
    return figure(chart, f"Class {name(found.label or '', 30)}", _caption(found), _numbers(found), data_choice=str(k))


def _errors(each: list[Reliability]) -> Markup:
    """The calibration error of each class as bars, the largest first."""
    order = sorted(range(len(each)), key=lambda k: -each[k].ece)
    found = [Bar(each[k].label or "", each[k].ece) for k in order[:BARS]]
    mean, write = float(np.mean([r.ece for r in each])), alike([r.ece for r in each], 2)
    seen = f"From {write(found[0].value)} for {name(found[0].label)} down to {write(each[order[-1]].ece)}."
    chart = bars("class-errors", found, "Calibration error by class", f"{seen} Mean over classes {write(mean)}.", write)
    worst = listed([name(bar.label, 20) for bar in found[:3]])
    caption = f"Largest for {worst}; {write(mean)} on average over {many(len(each), 'class', 'classes')}."
    rows: list[Row] = [[label(each[k].label or ""), Cell(write(each[k].ece), each[k].ece)] for k in order]
    data = table("Calibration error by class", ["Class", "Calibration error"], rows, 1, sortable=True)
    title = "Calibration error by class" if len(each) <= BARS else f"The {BARS} largest calibration errors"
    return pair(figure(chart, title, caption, data), _reading())


def _reading() -> Markup:
    """How to read the diagrams."""
    told = [
        "Bins hold equally many rows, so there are more points where the model says more.",
        "Below the diagonal it is surer than it should be, above it is right more often than it says.",
        "With few rows the error of even perfect probabilities is above 0: compare it with the intervals.",
    ]
    return el("aside", el("h3", "How to read this"), el("ul", *(el("li", line) for line in told)), class_="reading")


def _worst(each: list[Reliability], most: int) -> list[int]:
    """The classes of the largest errors, in their own order."""
    return sorted(sorted(range(len(each)), key=lambda k: -each[k].ece)[:most])
