"""How training went."""

from __future__ import annotations

import numpy as np

from cavity.report.charts.course import MARKED, curve, floor
from cavity.report.findings import Course, Findings
from cavity.report.html import Markup, el
from cavity.report.numerals import number, tidy, whole
from cavity.report.sections.parts import figure, pair, section, table

LISTED = 30
LEAD = (
    "The objective estimates the log-probability that the model gives to all of its training labels. It should rise, "
    "then settle; a model that is still rising may gain from more epochs."
)


def training(found: Findings) -> Markup:
    """The curve against epochs and against seconds, and what happened."""
    course = found.course
    if np.isfinite(course.objective).sum() < 2:
        return section("training", "Training", "The course of training was not kept.", _events(course))
    by_epoch = figure(curve("course-epochs", course, False), "By epoch", _caption(course), _numbers(course))
    return section("training", "Training", LEAD, pair(by_epoch, _by_time(course)), _events(course))


def _by_time(course: Course) -> Markup | None:
    """None where no time was kept."""
    if not course.seconds.max() > 0.0:
        return None
    return figure(curve("course-seconds", course, True), "By time", _time(course))


def _caption(course: Course) -> str:
    known = course.objective[np.isfinite(course.objective)]
    low = floor(known)
    cut = f" It begins at {tidy(float(known.min()), 4)}, below the axis." if low > known.min() else ""
    return f"It ends at {tidy(float(known[-1]), 5)} after {whole(course.epoch[-1])} epochs.{cut}"


def _time(course: Course) -> str:
    seconds = float(course.seconds[-1])
    pace = seconds / max(int(course.epoch[-1]), 1)
    return f"{tidy(seconds)} seconds in all, {tidy(pace, 2)} an epoch."


def _numbers(course: Course) -> Markup:
    """Some of the records: the first, the last and those evenly between."""
    some = np.unique(np.linspace(0, len(course.epoch) - 1, min(len(course.epoch), LISTED)).astype(int))
    rows = [[whole(course.epoch[i]), number(course.seconds[i], 2), tidy(float(course.objective[i]), 6)] for i in some]
    return table("Course of training", ["Epoch", "Seconds", "Objective"], rows, 3)


def _events(course: Course) -> Markup | None:
    """What happened on the way; the first have numbered flags in the charts."""
    if not course.events:
        return None
    flagged = [el("li", f"Epoch {whole(epoch)}: {said}") for epoch, said in course.events[:LISTED]]
    rest = len(course.events) - LISTED
    more = el("p", f"And {whole(rest)} more.", class_="quiet") if rest > 0 else None
    note = f"The first {MARKED} are flagged in the charts." if len(course.events) > MARKED else None
    return el(
        "div", el("h3", "What happened"), el("p", note) if note else None, el("ol", *flagged, class_="events"), more
    )
