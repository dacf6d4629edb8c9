"""Scores: the model beside baselines, each with its interval as numbers and as a line."""

from __future__ import annotations

import math
from typing import NamedTuple

from cavity.report.charts.whisker import common_end, whisker
from cavity.report.findings import Findings, Interval, ScoreLine
from cavity.report.html import Markup, el
from cavity.report.numerals import between, name, number, percent
from cavity.report.sections.parts import label, prose, scrolls, section


class Measure(NamedTuple):
    """A score: its field, its name, and what it says."""

    field: str
    title: str
    says: str
    as_percent: bool = False

    def of(self, line: ScoreLine) -> Interval:
        """Its value for one model."""
        found: Interval = getattr(line, self.field)
        return found

    def write(self, value: float) -> str:
        """As people read it."""
        return percent(value) if self.as_percent else number(value)


MEASURES = (
    Measure("error", "Error", "share of rows whose likeliest label is wrong", as_percent=True),
    Measure("nll", "NLL", "negative log-likelihood of the true label, in nats: it judges all of the "
            "probabilities, and a single row given no chance makes it infinite"),
    Measure("brier", "Brier score", "squared distance of the probabilities from the truth, 0 to 2"),
    Measure("ece", "Calibration error", "how far confidence and accuracy lie apart, on average over bins of rows"),
)  # fmt: skip


def scores(found: Findings) -> Markup:
    """The table, and what its columns mean."""
    lead = "Lower is better in every column. Lines are 95 % confidence intervals, the dot is what was measured."
    terms = [part for m in MEASURES for part in (el("dt", m.title), el("dd", m.says))]
    return section("scores", "Scores", lead, scrolls("Scores of the model and of baselines", _table(found)),
                   el("details", el("summary", "What these measure"), el("dl", *terms), class_="data"))  # fmt: skip


def _table(found: Findings) -> Markup:
    heads = [el("th", "Model", scope="col"), *(el("th", m.title, scope="col") for m in MEASURES)]
    body = [_row(found.scores, i) for i in range(len(found.scores))]
    ends = [el("td", f"0 to {m.write(common_end([m.of(line) for line in found.scores]))}") for m in MEASURES]
    foot = el("tfoot", el("tr", el("th", "The lines run from", scope="row"), *ends))
    caption = el("caption", "Scores of the model and of baselines, with 95 % intervals")
    return el("table", caption, el("thead", el("tr", *heads)), el("tbody", *body), foot, class_="scores")


def _row(lines: list[ScoreLine], i: int) -> Markup:
    line = lines[i]
    note = el("small", prose(line.note)) if line.note else None
    cells = [_cell(lines, i, measure) for measure in MEASURES]
    return el("tr", el("th", label(line.name, 40), note, scope="row"), *cells, class_="model" if i == 0 else None)


def _cell(lines: list[ScoreLine], i: int, measure: Measure) -> Markup:
    found = [measure.of(line) for line in lines]
    own, is_best = found[i], len(lines) > 1 and _is_best(found[i], found)
    spread = between(own, measure.as_percent)
    seen = f"{measure.write(own.value)}, 95 % interval {spread}."
    title = f"{measure.title} of {name(lines[i].name)}"
    drawn = whisker(f"score-{i}-{measure.field}", own, common_end(found), title, seen, is_best)
    best = el("span", "best", class_="best") if is_best else None
    return el("td", el("b", measure.write(own.value)), best, drawn, el("small", spread))


def _is_best(own: Interval, others: list[Interval]) -> bool:
    return math.isfinite(own.value) and own.value <= min(other.value for other in others)
