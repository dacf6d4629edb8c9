"""The sections of the page: text, charts and tables."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cavity.metrics import Array, Indices, Interval, Mask, ReliabilityCurve, ScoreIntervals
from cavity.report import charts
from cavity.report.charts import KEPT, MAX_FLAGS, MAX_POINTS, SHARED, Bar
from cavity.report.findings import Advice, Findings, Map, Relevance, TrainingCurve, UncertainRow
from cavity.report.html import Cell, Markup, Row, el, figure, join, label, pair, picker, prose, scroll, section, table
from cavity.report.svg import are_glyphs, class_color, shape
from cavity.report.text import between, counted, listed, name, number, percent, text_width, tidy, uniform_format, whole

# --- Scores ---


class Measure(NamedTuple):
    """A score: its field, its title and its meaning."""

    field: str
    title: str
    meaning: str
    as_percent: bool = False

    def of(self, models: list[ScoreIntervals]) -> list[Interval]:
        """Return the values for all models."""
        return [getattr(model, self.field) for model in models]

    def write(self, value: float) -> str:
        """Format a value."""
        return percent(value) if self.as_percent else number(value)


MEASURES = (
    Measure("error", "Error", "share of rows whose most probable label is wrong", as_percent=True),
    Measure("nll", "NLL", "negative log-likelihood of the true label, in nats. It scores all of the "
            "probabilities; a single observed label of probability 0 makes it infinite"),
    Measure("brier", "Brier score", "squared distance between the probabilities and the one-hot label, 0 to 2"),
    Measure("ece", "Calibration error", "mean distance between confidence and accuracy, over bins of rows"),
)  # fmt: skip


def scores(found: Findings) -> Markup:
    """The scores of the model and of baselines, with intervals as numbers and lines."""
    lead = "Lower is better in every column. Dots are the measured values, lines their 95 % confidence intervals."
    heads = [el("th", "Model", scope="col"), *(el("th", m.title, scope="col") for m in MEASURES)]
    ends = [el("td", f"0 to {m.write(charts.common_end(m.of(found.scores)))}") for m in MEASURES]
    title = "Scores of the model and of baselines"
    made = el("table", el("caption", f"{title}, with 95 % intervals"), el("thead", el("tr", *heads)),
              el("tbody", *(_score_row(found.scores, i) for i in range(len(found.scores)))),
              el("tfoot", el("tr", el("th", "Scale of the lines", scope="row"), *ends)), class_="scores")  # fmt: skip
    terms = [part for m in MEASURES for part in (el("dt", m.title), el("dd", m.meaning))]
    meanings = el("details", el("summary", "What these scores measure"), el("dl", *terms), class_="data")
    return section("scores", "Scores", lead, scroll(title, made), meanings)


def _score_row(models: list[ScoreIntervals], i: int) -> Markup:
    model = models[i]
    note = el("small", prose(model.note)) if model.note else None
    cells = [_score_cell(models, i, measure) for measure in MEASURES]
    return el("tr", el("th", label(model.name, 40), note, scope="row"), *cells, class_="model" if i == 0 else None)


def _score_cell(models: list[ScoreIntervals], i: int, measure: Measure) -> Markup:
    found = measure.of(models)
    own, value = found[i], measure.write(found[i].value)
    is_best = len(models) > 1 and math.isfinite(own.value) and own.value <= min(other.value for other in found)
    spread = between(own, measure.as_percent)
    title, described = f"{measure.title} of {name(models[i].name)}", f"{value}, 95 % interval {spread}."
    drawn = charts.whisker(f"score-{i}-{measure.field}", own, charts.common_end(found), title, described, is_best)
    best = el("span", "best", class_="best") if is_best else None
    return el("td", el("b", value), best, drawn, el("small", spread))


# --- Advice ---

LEVELS = {"warning": ("!", "Warning"), "note": ("i", "Note"), "good": ("✓", "Good")}


def advice(found: Findings) -> Markup:
    """A card for each piece of advice, warnings first."""
    if not found.advice:
        return section("advice", "Advice", "Nothing to report.")
    order = list(LEVELS)
    cards = [_card(a) for a in sorted(found.advice, key=lambda a: order.index(_level(a)))]
    return section("advice", "Advice", None, el("ul", *cards, class_="cards"))


def _level(advice: Advice) -> str:
    return advice.level if advice.level in LEVELS else "note"


def _card(advice: Advice) -> Markup:
    level = _level(advice)
    sign, word = LEVELS[level]
    head = el("h3", el("span", sign, class_="sign", aria_hidden="true"), word, class_="level")
    remedy = el("p", prose(advice.remedy), class_="remedy") if advice.remedy else None
    return el("li", head, el("p", prose(advice.what), class_="what"), remedy, class_=f"card {level}")


# --- Calibration ---

MAX_BARS, MAX_DIAGRAMS = 20, 100
READING = (
    "Bins hold equal numbers of rows, so there are more points where more rows are.",
    "Below the diagonal the model is overconfident, above it underconfident.",
    "With few rows, even perfect probabilities have an error above 0: compare it with the intervals.",
)


def calibration(found: Findings) -> Markup:
    """Reliability diagrams, and the calibration error of each class."""
    lead = ("When the model predicts a probability of 80 %, is it correct in 80 of 100 cases? Points on the "
            "diagonal mean yes. Vertical lines are 95 % confidence intervals.")  # fmt: skip
    top, each = found.reliability[0], found.reliability[1:]
    overall = figure(charts.reliability_diagram("reliability", top), "All classes", *_reliability_parts(top))
    return section("calibration", "Calibration", lead, pair(overall, _class_diagrams(each) if each else None),
                   _class_errors(each) if each else None)  # fmt: skip


def _reliability_parts(curve: ReliabilityCurve) -> tuple[str, Markup]:
    """The caption of a diagram and its table of numbers."""
    what = "confidence in the most probable label" if curve.name is None else "probability of this class"
    n_agree, bins = int(charts.agrees(curve).sum()), counted(len(curve.rows), "bin")
    caption = f"The {what} agrees with the data in {n_agree} of {bins}. Calibration error {number(curve.ece)}."
    rows = [
        [percent(curve.confidence[i]), percent(curve.accuracy[i]),
         between(Interval(curve.accuracy[i], curve.low[i], curve.high[i]), as_percent=True), whole(curve.rows[i])]
        for i in range(len(curve.rows))
    ]  # fmt: skip
    of = "of the most probable label" if curve.name is None else f"of {name(curve.name)}"
    return caption, table(f"Reliability {of}", ["Predicted", "Observed", "95 % interval", "Rows"], rows, 4)


def _class_diagrams(each: list[ReliabilityCurve]) -> Markup:
    """One diagram per class: all of them, or with the script the selected one."""
    worst = sorted(range(len(each)), key=lambda k: -each[k].ece)
    shown = sorted(worst[:MAX_DIAGRAMS])
    options = [(str(k), f"{name(each[k].name or '')} (error {number(each[k].ece)})") for k in shown]
    control = picker("pick-class", "Class", options, str(worst[0]), "reliability-of")
    left_out = "" if len(shown) == len(each) else f": the {len(shown)} with the largest calibration error"
    figures = [
        figure(charts.reliability_diagram(f"reliability-{k}", each[k]), f"Class {name(each[k].name or '', 30)}",
               *_reliability_parts(each[k]), data_choice=str(k)) for k in shown
    ]  # fmt: skip
    folded = el("details", el("summary", f"Diagrams by class{left_out}"), *figures, class_="each", id="reliability-of")
    return el("div", control, folded, class_="classes")


def _class_errors(each: list[ReliabilityCurve]) -> Markup:
    """The calibration error of each class as bars, the largest first."""
    order = sorted(range(len(each)), key=lambda k: -each[k].ece)
    found = [Bar(each[k].name or "", each[k].ece) for k in order[:MAX_BARS]]
    mean, write = float(np.mean([r.ece for r in each])), uniform_format([r.ece for r in each], 2)
    described = (f"From {write(found[0].value)} for {name(found[0].label)} to {write(each[order[-1]].ece)}. "
                 f"Mean over classes {write(mean)}.")  # fmt: skip
    chart = charts.bar_chart("class-errors", found, "Calibration error by class", described, write)
    worst = listed([name(bar.label, 20) for bar in found[:3]])
    caption = f"Largest for {worst}. The mean over {counted(len(each), 'class')} is {write(mean)}."
    rows: list[Row] = [[label(each[k].name or ""), Cell(write(each[k].ece), each[k].ece)] for k in order]
    data = table("Calibration error by class", ["Class", "Calibration error"], rows, 1, sortable=True)
    title = "Calibration error by class" if len(each) <= MAX_BARS else f"The {MAX_BARS} largest calibration errors"
    reading = el("aside", el("h3", "How to read this"), _list(READING), class_="reading")
    return pair(figure(chart, title, caption, data), reading)


def _list(entries: tuple[str, ...] | list[Markup | str], class_: str | None = None) -> Markup:
    return el("ul", *(el("li", entry) for entry in entries), class_=class_)


# --- Confusion matrix ---

PRINTED_CLASSES, LISTED_CONFUSIONS = 20, 10
CELL_LETTERS = 36.0  # in a row of cells; longer names of columns are vertical


def confusion(found: Findings) -> Markup:
    """The matrix with numbers where there is room for them, frequent confusions, and recall and precision by class."""
    described = _describe_confusion(found)
    if len(found.classes) <= PRINTED_CLASSES:
        drawn = el("figure", el("figcaption", el("h3", "Confusion matrix"), el("p", described)),
                   scroll("Confusion matrix", _printed_matrix(found)))  # fmt: skip
    else:
        chart = charts.confusion_chart("confusion-matrix", found.classes, found.confusion, described)
        drawn = figure(chart, "Confusion matrix", described)
    lead = "Rows of the matrix are true classes, columns predicted classes. Correct predictions are on the diagonal."
    return section("confusion", "Confusion matrix", lead, pair(drawn, _frequent_confusions(found)), _class_table(found))


def confused_pairs(counts: Indices) -> list[tuple[int, int, int]]:
    """Return true class, predicted class and number of rows of each confusion, the most frequent first."""
    off = counts * (1 - np.eye(len(counts), dtype=np.int64))
    cells = np.argwhere(off)
    order = np.argsort(-off[tuple(cells.T)], kind="stable")
    return [(int(i), int(j), int(off[i, j])) for i, j in cells[order]]


def _describe_confusion(found: Findings) -> str:
    first = [
        f"{name(found.classes[i], 20)} predicted as {name(found.classes[j], 20)} ({n})"
        for i, j, n in confused_pairs(found.confusion)[:3]
    ]
    right = f"{whole(np.trace(found.confusion))} of {whole(found.confusion.sum())} rows are correct."
    return f"{right} Most frequent errors: {listed(first)}." if first else f"{right} There are no errors."


def _printed_matrix(found: Findings) -> Markup:
    corner = el("td", el("span", "true ↓"), " ", el("span", "predicted →"))
    is_tall = max(text_width(name(c, 12)) for c in found.classes) > CELL_LETTERS / len(found.classes)
    heads = [el("th", label(c, 12), scope="col") for c in found.classes]
    body = [
        el("tr", el("th", label(found.classes[i], 16), scope="row"),
           *(_count(int(n), float(n / max(int(row.sum()), 1)), i == j) for j, n in enumerate(row)))
        for i, row in enumerate(found.confusion)
    ]  # fmt: skip
    caption = el("caption", "Confusion matrix: true class by row, predicted class by column")
    return el("table", caption, el("thead", el("tr", corner, *heads)), el("tbody", *body),
              class_="matrix tall" if is_tall else "matrix", style=f"--classes:{len(found.classes)}")  # fmt: skip


def _count(n: int, share: float, is_right: bool) -> Markup:
    """A cell, darker for a larger share of its row; errors by square roots, because they are few."""
    if not n:
        return el("td", el("span", "0", class_="unseen"))
    depth = share if is_right else share**0.5
    return el("td", whole(n), class_="hit" if is_right else "miss", style=f"--depth:{depth:.2f}")


def _frequent_confusions(found: Findings) -> Markup:
    title, made = el("h3", "Most frequent errors"), confused_pairs(found.confusion)
    if not made:
        return el("div", title, el("p", "There are none."))
    rows = [[label(found.classes[i], 24), label(found.classes[j], 24), whole(n),
             percent(n / max(int(found.counts[i]), 1))] for i, j, n in made[:LISTED_CONFUSIONS]]  # fmt: skip
    rest = sum(n for *_, n in made[LISTED_CONFUSIONS:])
    more = el("p", f"{counted(rest, 'row')} in other pairs of classes.", class_="quiet") if rest else None
    return el("div", title, table("Most frequent errors", ["True", "Predicted", "Rows", "Of the class"], rows, 2), more)


def _class_table(found: Findings) -> Markup:
    def share(part: np.int64, of: np.int64) -> Cell:
        return Cell(percent(part / of), float(part / of)) if of else Cell("–", -1.0)

    right, predicted = found.confusion.diagonal(), found.confusion.sum(0)
    rows: list[Row] = [
        [label(c, 40), Cell(whole(found.counts[k]), float(found.counts[k])),
         share(right[k], found.counts[k]), share(right[k], predicted[k])]
        for k, c in enumerate(found.classes)
    ]  # fmt: skip
    made = table("Recall and precision by class", ["Class", "Rows", "Recall", "Precision"], rows, 3, sortable=True)
    return el("details", el("summary", "Recall and precision by class"), made, class_="data")


# --- Features ---

SHOWN_FEATURES = 20
FEATURES_LEAD = (
    "The relevance of a feature is 1 / length-scale in scaled units: how fast the function of a class changes along "
    "the feature. A feature of relevance 0 has no effect; at twice the relevance, half the change has the same effect."
)


def features(found: Findings) -> Markup:
    """The mean relevance over classes as bars, and the relevance by class as a heat map."""
    if found.relevance is None or not found.relevance.values.size:
        return section("features", "Features", "The kernel of this model has no length-scales.")
    relevance, values = found.relevance, found.relevance.values
    order = np.argsort(-values.mean(0), kind="stable")
    shown = order[:SHOWN_FEATURES].tolist()
    differ = len(values) > 1 and not np.allclose(values, values[:1], rtol=1e-9)
    by_class = _relevance_by_class(relevance, shown) if differ else None
    return section("features", "Features", FEATURES_LEAD,
                   pair(_mean_relevance(relevance, shown, order.tolist(), differ), by_class))  # fmt: skip


def _mean_relevance(relevance: Relevance, shown: list[int], order: list[int], differ: bool) -> Markup:
    values, mean = relevance.values, relevance.values.mean(0)
    write = uniform_format(values[:, shown].ravel().tolist())
    ends = [(float(values[:, d].min()), float(values[:, d].max())) if differ else (None, None) for d in shown]
    bars = [Bar(relevance.features[d], float(mean[d]), *end) for d, end in zip(shown, ends, strict=True)]
    first, part = [name(bar.label, 24) for bar in bars[:3]], float(mean[shown].sum() / (mean.sum() or 1.0))
    of = f"The top {len(shown)} of {whole(len(order))} features hold {percent(part, 0)} of the total relevance. "
    of = of if len(order) > len(shown) else ""
    span = " Lines show the range over classes." if differ else ""
    described = f"{of}Most relevant: {listed([f'{n} {write(b.value)}' for n, b in zip(first, bars, strict=False)])}."
    head = charts.column_head([bar.label for bar in bars], relevance.classes) if differ else charts.HEAD
    chart = charts.bar_chart("relevance", bars, "Relevance of features", described, write, "1 / length-scale", head)
    columns = np.column_stack([mean, values.min(0), values.max(0)]).tolist()
    in_full = uniform_format(values.ravel().tolist())
    rows: list[Row] = [[label(relevance.features[d]), *(Cell(in_full(v), v) for v in columns[d])] for d in order]
    data = table("Relevance of features", ["Feature", "Mean", "Least", "Most"], rows, 3, sortable=True)
    title = "Mean over classes" if differ else "The same for all classes"
    return figure(chart, title, f"{of}Most relevant: {listed(first)}.{span}", data)


def _relevance_by_class(relevance: Relevance, shown: list[int]) -> Markup:
    names, values = [relevance.features[d] for d in shown], relevance.values[:, shown].T
    write = uniform_format(values.ravel().tolist())
    i, k = np.unravel_index(int(values.argmax()), values.shape)
    described = (f"The largest is {write(float(values[i, k]))}, for {name(names[i], 40)} and class "
                 f"{name(relevance.classes[k], 40)}; the smallest shown is {write(float(values.min()))}.")  # fmt: skip
    title = "Relevance by class"
    chart = charts.heat_map("relevance-by-class", names, relevance.classes, values, title, described, write)
    rows = [[label(n, 40), *(write(float(v)) for v in row)] for n, row in zip(names, values, strict=True)]
    data = table(title, ["Feature", *(label(c, 12) for c in relevance.classes)], rows, values.shape[1])
    return figure(chart, "By class", f"Darker cells are more relevant. {described}", data)


# --- Uncertainty ---

UNCERTAINTY_LEAD = (
    "Uncertainty has two parts. Aleatoric uncertainty is in the data: classes overlap, and more rows would not help. "
    "Epistemic uncertainty is the model's: it has seen few similar rows, and more of them would help."
)
TENTH = 10  # the index of 90 % in KEPT


def uncertainty(found: Findings) -> Markup:
    """Both kinds of uncertainty, the effect of setting uncertain rows aside, and rows to review."""
    n_right, n_wrong = int(found.is_right.sum()), int((~found.is_right).sum())
    errors = charts.errors_of_kept(found.total, found.is_right)
    key = join([el("span", "●", class_="right", aria_hidden="true"), f" correct ({whole(n_right)}), ",
                el("span", "✕", class_="wrong", aria_hidden="true"), f" wrong ({whole(n_wrong)}).",
                _drawn_of(len(found.total)), " Both axes are on a square-root scale."])  # fmt: skip
    chart = charts.uncertainty_scatter("uncertainty-kinds", found)
    scatter = figure(chart, "Two kinds of uncertainty", key, _quantiles(found))
    caption = (f"If the most uncertain tenth of the rows is set aside for a person to decide, the error of the "
               f"remaining rows changes from {percent(errors[0])} to {percent(errors[TENTH])}.")  # fmt: skip
    rows = [[percent(1 - KEPT[i], 0), percent(errors[i])] for i in range(0, len(KEPT), 5)]
    data = table("Error of the remaining rows", ["Set aside", "Error of the remaining rows"], rows, 2)
    aside = figure(charts.rejection_curve("set-aside", found), "Setting uncertain rows aside", caption, data)
    return section("uncertainty", "Uncertainty", UNCERTAINTY_LEAD, pair(scatter, aside), _rows_to_review(found))


def _drawn_of(n_rows: int) -> str:
    return f" {whole(MAX_POINTS)} of {whole(n_rows)} rows are drawn." if n_rows > MAX_POINTS else ""


def _quantiles(found: Findings) -> Markup:
    """Medians and 90th percentiles."""

    def line(title: str, which: Mask) -> list[str]:
        if not which.any():
            return [title, "0", *4 * ["–"]]
        both = [np.quantile(part[which], [0.5, 0.9]) for part in (found.aleatoric, found.epistemic)]
        return [title, whole(which.sum()), *(number(float(value)) for part in both for value in part)]

    head = ["Prediction", "Rows", "Aleatoric: median", "90th percentile", "Epistemic: median", "90th percentile"]
    rows = [line("correct", found.is_right), line("wrong", ~found.is_right)]
    return table("Uncertainty of correct and wrong rows, in nats", head, rows, 5)


def _rows_to_review(found: Findings) -> Markup:
    if not found.uncertain:
        return el("p", "No row needs a review.")
    head = ["Row", "True", "Predicted", "Why review it", "Total", "Aleatoric", "Epistemic"]
    made = table("Rows to review", head, map(_review, found.uncertain), 3, "rows", sortable=True)
    return el("div", el("h3", f"{counted(len(found.uncertain), 'row')} to review"), made, class_="wide")


def _review(row: UncertainRow) -> Row:
    is_right = bool(row.top) and row.top[0][0] == row.truth
    kind, sign, word = ("right", "✓", "correct") if is_right else ("wrong", "✕", "wrong")
    truth = join([el("span", sign, class_=kind, title=word), el("span", f"{word}: ", class_="unseen"), " ",
                  label(row.truth, 24)])  # fmt: skip
    top = [el("li", label(c, 16), " ", el("span", percent(p, 0), class_="p"), style=f"--p:{100 * p:.0f}%")
           for c, p in row.top]  # fmt: skip
    parts = [Cell(number(value), value) for value in (row.total, row.aleatoric, row.epistemic)]
    best = row.top[0][1] if row.top else 0.0
    return [Cell(whole(row.row), float(row.row)), truth, Cell(el("ul", *top, class_="top"), best), row.why, *parts]


# --- Map ---

MAX_LEGEND = 56  # classes of different marks


def data_map(found: Findings) -> Markup:
    """Rows and inducing points on the same axes, and a choice of the class to highlight."""
    if found.map is None or not len(found.map.rows):
        return section("map", "Map", "There is no two-dimensional view of these data.")
    where, classes = found.map, found.classes
    axes = listed([name(axis, 80) for axis in where.axes])
    lead = f"The rows projected to {axes}, which hold {percent(where.share, 0)} of their variance."
    if where.share < 1.0:
        lead += " Points that are close here can be far apart in other dimensions."
    options = [("", "all"), *((str(k), name(c)) for k, c in enumerate(classes))]
    control = picker("pick-mark", "Highlight class", options, "", "map-figures")
    glyphs = are_glyphs(classes)
    marks = "Each mark is the true label of a row." if glyphs else "Marks show the true class."
    caption = f"{marks} Rings mark the {counted((~where.row_is_right).sum(), 'error')}.{_drawn_of(len(where.rows))}"
    rows = figure(charts.map_of_rows("map-rows", where, classes), "Rows", caption,
                  _centers(where.rows, where.row_class, classes, "Rows"))  # fmt: skip
    inducing = _map_of_inducing(where, classes) if len(where.inducing) else None
    return section("map", "Map", lead, control, None if glyphs else _legend(classes),
                   el("div", pair(rows, inducing), id="map-figures"))  # fmt: skip


def _map_of_inducing(where: Map, classes: list[str]) -> Markup:
    caption = f"The {counted(len(where.inducing), 'inducing point')} by class. Rows are dots."
    return figure(charts.map_of_inducing("map-inducing", where, classes), "Inducing points", caption,
                  _centers(where.inducing, where.inducing_class, classes, "Points"))  # fmt: skip


def _centers(at: Array, of: Indices, classes: list[str], what: str) -> Markup:
    groups = [(label("all" if c == SHARED else classes[c], 40), at[of == c]) for c in np.unique(of).tolist()]
    rows = [[title, whole(len(own)), *map(tidy, own.mean(0).tolist())] for title, own in groups]
    return table(f"{what}: centers of the classes", ["Class", what, "Center: horizontal", "vertical"], rows, 3)


def _legend(classes: list[str]) -> Markup:
    """The marks of the classes, up to the number that differ."""
    paths = [el("path", d=shape(k, 7.0, 7.0)) for k in range(min(len(classes), MAX_LEGEND))]
    marks = [el("svg", path, viewBox="0 0 14 14", class_="swatch", aria_hidden="true") for path in paths]
    shown = [el("span", mark, " ", label(classes[k], 24), class_=class_color(k)) for k, mark in enumerate(marks)]
    more = [f"and {len(classes) - MAX_LEGEND} more, with the same marks"] if len(classes) > MAX_LEGEND else []
    return _list([*shown, *more], "legend")


# --- Training ---

LISTED_RECORDS = 30
TRAINING_LEAD = (
    "The objective estimates the log-probability of all training labels under the model. It should rise and level off; "
    "if it is still rising at the end, more epochs can help."
)


def training(found: Findings) -> Markup:
    """The objective against epochs and seconds, and the events of training."""
    curve = found.training
    known = curve.objective[np.isfinite(curve.objective)]
    if len(known) < 2:
        return section("training", "Training", "There is no training curve.", _events(curve))
    is_cut, low = charts.axis_floor(known) > known.min(), tidy(float(known.min()), 4)
    start = f" It starts at {low}, below the axis." if is_cut else ""
    caption = f"The final value is {tidy(float(known[-1]), 5)}, after {counted(curve.epoch[-1], 'epoch')}.{start}"
    some = np.unique(np.linspace(0, len(curve.epoch) - 1, min(len(curve.epoch), LISTED_RECORDS)).astype(int))
    rows = [[whole(curve.epoch[i]), number(curve.seconds[i], 2), tidy(float(curve.objective[i]), 6)] for i in some]
    data = table("Training curve", ["Epoch", "Seconds", "Objective"], rows, 3)
    by_epoch = figure(charts.training_chart("training-epochs", curve, False), "By epoch", caption, data)
    seconds, by_time = float(curve.seconds[-1]), None
    if curve.seconds.max() > 0.0:
        pace = f"{tidy(seconds)} seconds in total, {tidy(seconds / max(int(curve.epoch[-1]), 1), 2)} per epoch."
        by_time = figure(charts.training_chart("training-seconds", curve, True), "By time", pace)
    return section("training", "Training", TRAINING_LEAD, pair(by_epoch, by_time), _events(curve))


def _events(curve: TrainingCurve) -> Markup | None:
    """What happened during training; the first events have numbered flags in the charts."""
    if not curve.events:
        return None
    listed_events = [el("li", f"Epoch {whole(e.epoch)}: {e.text}") for e in curve.events[:LISTED_RECORDS]]
    rest = len(curve.events) - LISTED_RECORDS
    more = el("p", f"And {whole(rest)} more.", class_="quiet") if rest > 0 else None
    note = el("p", f"The first {MAX_FLAGS} are flagged in the charts.") if len(curve.events) > MAX_FLAGS else None
    return el("div", el("h3", "Events"), note, el("ol", *listed_events, class_="events"), more)


# --- Settings ---


def settings(found: Findings) -> Markup:
    """A table of settings and learned values."""
    if not found.about:
        return section("settings", "Settings", "No settings are known.")
    title = "Settings and learned values"
    rows = [el("tr", el("th", key, scope="row"), el("td", value)) for key, value in found.about]
    made = el("table", el("caption", title), el("colgroup", el("col"), el("col")), el("tbody", *rows), class_="about")
    return section("settings", "Settings", None, scroll(title, made))
