"""The sections of the page: each function returns the lead of a section (or None), then charts and tables."""

from __future__ import annotations

import math

import numpy as np

from cavity.metrics import Array, Indices, Interval, ReliabilityCurve
from cavity.report import charts
from cavity.report.charts import KEPT, MANY_CLASSES, MAX_FLAGS, MAX_POINTS, SHARED, Bar
from cavity.report.columns import value_text
from cavity.report.findings import (
    ColumnSummary,
    Drift,
    Findings,
    NovelRows,
    Relevance,
    StrangeRow,
    TrainingCurve,
    UncertainRow,
)
from cavity.report.html import Cell, Markup, Row, el, figure, join, label, pair, picker, prose, scroll, table
from cavity.report.svg import are_glyphs, class_color, shape
from cavity.report.text import between, counted, listed, name, number, percent, text_width, tidy, uniform_format, whole

Parts = tuple[str | None, ...]

# Field, title, whether it is written in percent, meaning.
MEASURES = (
    ("error", "Error", True, "share of rows whose most probable label is wrong"),
    ("nll", "NLL", False, "negative log-likelihood of the true label, in nats. It scores all of the "
     "probabilities; a single observed label of probability 0 makes it infinite"),
    ("brier", "Brier score", False, "squared distance between the probabilities and the one-hot label, 0 to 2"),
    ("ece", "Calibration error", False, "mean distance between confidence and accuracy, over bins of rows. Chance "
     "alone makes it larger than 0; the interval is one of the error without chance"),
)  # fmt: skip


def scores(found: Findings) -> Parts:
    """The scores of the model and of baselines, with intervals as numbers and lines."""
    lead = "Lower is better in every column. Dots are the measured values, lines their 95 % confidence intervals."
    if found.no_verdict:
        lead += f" These scores are better than on new rows, because {found.no_verdict}."
    notes = [el("small", prose(model.note)) if model.note else None for model in found.scores]
    rows = [[el("th", label(m.name, 40), note, scope="row")] for m, note in zip(found.scores, notes, strict=True)]
    heads, ends, terms = ["Model"], [el("th", "Scale of the lines", scope="row")], []
    for field, title, as_percent, meaning in MEASURES:
        intervals = [getattr(model, field) for model in found.scores]
        end, least = charts.common_end(intervals), min(interval.value for interval in intervals)
        for i, own in enumerate(intervals):
            is_best = not found.no_verdict and len(rows) > 1 and math.isfinite(own.value) and own.value <= least
            value, spread = percent(own.value) if as_percent else number(own.value), between(own, as_percent)
            named, told = f"{title} of {name(found.scores[i].name)}", f"{value}, 95 % interval {spread}."
            drawn = charts.whisker(f"score-{i}-{field}", own, end, named, told, is_best)
            best = el("span", "best", class_="best") if is_best else None
            rows[i].append(el("td", el("b", value), best, drawn, el("small", spread)))
        heads.append(title)
        ends.append(el("td", f"0 to {percent(end) if as_percent else number(end)}"))
        terms += [el("dt", title), el("dd", meaning)]
    title = "Scores of the model and of baselines"
    made = el("table", el("caption", f"{title}, with 95 % intervals"),
              el("thead", el("tr", *(el("th", head, scope="col") for head in heads))),
              el("tbody", *(el("tr", *cells, class_=None if i else "model") for i, cells in enumerate(rows))),
              el("tfoot", el("tr", *ends)), class_="scores")  # fmt: skip
    meanings = el("details", el("summary", "What these scores measure"), el("dl", *terms), class_="data")
    return lead, scroll(title, made), meanings


LEVELS = {"warning": ("!", "Warning"), "note": ("i", "Note"), "good": ("✓", "Good")}


def advice(found: Findings) -> Parts:
    """A card for each piece of advice, warnings first."""
    if not found.advice:
        return ("Nothing to report.",)
    cards = []
    for level, (sign, word) in LEVELS.items():
        for own, what, remedy in found.advice:
            if (own if own in LEVELS else "note") == level:
                head = el("h3", el("span", sign, class_="sign", aria_hidden="true"), word, class_="level")
                todo = el("p", prose(remedy), class_="remedy") if remedy else None
                cards.append(el("li", head, el("p", prose(what), class_="what"), todo, class_=f"card {level}"))
    return None, el("ul", *cards, class_="cards")


MAX_BARS, MAX_DIAGRAMS = 20, 100
READING = (
    "Bins hold equal numbers of rows, so there are more points where more rows are.",
    "Below the diagonal the model is overconfident, above it underconfident.",
    "With few rows, even perfect probabilities have an error above 0. Its interval takes this into account.",
)


def calibration(found: Findings) -> Parts:
    """Reliability diagrams, and the calibration error of each class."""
    lead = ("When the model predicts a probability of 80 %, is it correct in 80 of 100 cases? Points on the "
            "diagonal mean yes. Vertical lines are 95 % confidence intervals.")  # fmt: skip
    spread = f" (95 % interval {between(found.calibration.ece)})"
    overall, each = _reliability("reliability", found.reliability[0], "All classes", spread), found.reliability[1:]
    if not each:
        return lead, pair(overall)
    order, names = sorted(range(len(each)), key=lambda k: -each[k].ece), [curve.name or "" for curve in each]
    shown = sorted(order[:MAX_DIAGRAMS])
    options = [(str(k), f"{name(names[k])} (error {number(each[k].ece)})") for k in shown]
    control = picker("pick-class", "Class", options, str(order[0]), "reliability-of")
    left_out = "" if len(shown) == len(each) else f": the {len(shown)} with the largest calibration error"
    folded = el("details", el("summary", f"Diagrams by class{left_out}"),
                *(_reliability(f"reliability-{k}", each[k], f"Class {name(names[k], 30)}", data_choice=str(k))
                  for k in shown), class_="each", id="reliability-of")  # fmt: skip
    bars = [Bar(names[k], each[k].ece) for k in order[:MAX_BARS]]
    mean, write = float(np.mean([r.ece for r in each])), uniform_format([r.ece for r in each], 2)
    ends = f"From {write(bars[0].value)} for {name(bars[0].label)} to {write(each[order[-1]].ece)}."
    title = "Calibration error by class"
    chart = charts.bar_chart("class-errors", bars, title, f"{ends} Mean over classes {write(mean)}.", write)
    worst = listed([name(bar.label, 20) for bar in bars[:3]])
    caption = f"Largest for {worst}. The mean over {counted(len(each), 'class')} is {write(mean)}."
    rows: list[Row] = [[label(names[k]), Cell(write(each[k].ece), each[k].ece)] for k in order]
    data = table(title, ["Class", "Calibration error"], rows, 1, sortable=True)
    head = title if len(each) <= MAX_BARS else f"The {MAX_BARS} largest calibration errors"
    reading = el("aside", el("h3", "How to read this"), el("ul", *(el("li", r) for r in READING)), class_="reading")
    return (lead, pair(overall, el("div", control, folded, class_="classes")),
            pair(figure(chart, head, caption, data), reading))  # fmt: skip


def _reliability(key: str, curve: ReliabilityCurve, title: str, spread: str = "", **attributes: str) -> Markup:
    what = "confidence in the most probable label" if curve.name is None else "probability of this class"
    n_agree, bins = int(charts.agrees(curve).sum()), counted(len(curve.rows), "bin")
    caption = f"The {what} agrees with the data in {n_agree} of {bins}. Calibration error {number(curve.ece)}{spread}."
    rows = [
        [percent(p), percent(share), between(Interval(share, low, high), as_percent=True), whole(n)]
        for p, share, low, high, n in zip(*curve[1:6], strict=True)
    ]
    of = "of the most probable label" if curve.name is None else f"of {name(curve.name)}"
    data = table(f"Reliability {of}", ["Predicted", "Observed", "95 % interval", "Rows"], rows, 4)
    return figure(charts.reliability_diagram(key, curve), title, caption, data, **attributes)


SETS_LEAD = (
    "A prediction set lists the labels that cannot be ruled out. Sets of coverage 90 % should hold the true label of "
    "at least 90 % of the rows; the most probable label is always in the set."
)
NO_SETS = (
    "This model has kept no rows that it did not learn from, so it has no prediction sets. Fit with calibrate=True, or "
    "call conformalize(X, y)."
)
DRAWN_COVERAGE, MOST_SIZES = 0.9, 10


def prediction_sets(found: Findings) -> Parts:
    """How often sets of several coverages have the true label, and how large they are."""
    if not found.sets:
        return (NO_SETS,)
    rows: list[Row] = []
    for one in found.sets:
        mean = (one.sizes * np.arange(len(one.sizes))).sum() / one.sizes.sum()
        spread = between(one.covered, as_percent=True)
        rows.append([percent(one.coverage, 0), f"{percent(one.covered.value)} ({spread})", f"{mean:.2f}"])
    title = "Coverage and mean size of prediction sets"
    summary = table(title, ["Asked for", "Covered, 95 % interval", "Mean size"], rows, 3)
    one = next(part for part in found.sets if part.coverage == DRAWN_COVERAGE)
    sizes = one.sizes[1 : MOST_SIZES + 1].copy()
    sizes[-1] += one.sizes[MOST_SIZES + 1 :].sum()
    names = [counted(k + 1, "label") for k in range(len(sizes))]
    names[-1] += " or more" if len(one.sizes) > MOST_SIZES + 1 else ""
    bars = [Bar(title, float(n / one.sizes.sum())) for title, n in zip(names, sizes, strict=True)]
    title = f"Sizes of sets of coverage {percent(DRAWN_COVERAGE, 0)}"
    least = np.argsort(np.where(np.isnan(one.by_class), np.inf, one.by_class), kind="stable")[:3]
    worst = listed([f"{name(found.classes[k], 20)} ({percent(one.by_class[k])})" for k in least])
    caption = f"{percent(bars[0].value)} of the rows have a single label. The least covered classes: {worst}."
    by_class: list[Row] = [
        [label(found.classes[k]), Cell("–", -1.0) if np.isnan(share) else Cell(percent(share), float(share))]
        for k, share in enumerate(one.by_class)
    ]
    data = table(
        f"Coverage by class, {percent(DRAWN_COVERAGE, 0)} asked for", ["Class", "Covered"], by_class, 1, sortable=True
    )
    chart = charts.bar_chart("set-sizes", bars, title, caption, percent)
    return SETS_LEAD, pair(figure(chart, title, caption, data), el("div", el("h3", "Coverage"), summary))


PRINTED_CLASSES, LISTED_CONFUSIONS = 20, 10
CELL_LETTERS = 36.0  # in a row of cells; longer names of columns are vertical


def confusion(found: Findings) -> Parts:
    """The matrix with numbers where there is room for them, frequent confusions, and recall and precision by class."""
    lead = "Rows of the matrix are true classes, columns predicted classes. Correct predictions are on the diagonal."
    classes, pairs = found.classes, confused_pairs(found.confusion)
    first = [f"{name(classes[i], 20)} predicted as {name(classes[j], 20)} ({n})" for i, j, n in pairs[:3]]
    errors = f"Most frequent errors: {listed(first)}." if first else "There are no errors."
    described = f"{whole(np.trace(found.confusion))} of {whole(found.confusion.sum())} rows are correct. {errors}"
    if len(classes) <= PRINTED_CLASSES:
        matrix = scroll("Confusion matrix", _printed_matrix(found))
    else:
        matrix = charts.confusion_chart("confusion-matrix", classes, found.confusion, described)
    rows = [[label(classes[i], 24), label(classes[j], 24), whole(n), percent(n / max(int(found.counts[i]), 1))]
            for i, j, n in pairs[:LISTED_CONFUSIONS]]  # fmt: skip
    rest = sum(n for *_, n in pairs[LISTED_CONFUSIONS:])
    most = table("Most frequent errors", ["True", "Predicted", "Rows", "Of the class"], rows, 2)
    more = el("p", f"{counted(rest, 'row')} in other pairs of classes.", class_="quiet") if rest else None
    frequent = el("div", el("h3", "Most frequent errors"), most if pairs else el("p", "There are none."), more)

    def share(part: np.int64, of: np.int64) -> Cell:
        return Cell(percent(part / of), float(part / of)) if of else Cell("–", -1.0)

    counts = zip(classes, found.counts, found.confusion.diagonal(), found.confusion.sum(0), strict=True)
    by_class: list[Row] = [[label(c, 40), Cell(whole(n), float(n)), share(right, n), share(right, predicted)]
                           for c, n, right, predicted in counts]  # fmt: skip
    title = "Recall and precision by class"
    made = table(title, ["Class", "Rows", "Recall", "Precision"], by_class, 3, sortable=True)
    return (lead, pair(figure(matrix, "Confusion matrix", described), frequent),
            el("details", el("summary", title), made, class_="data"))  # fmt: skip


def confused_pairs(counts: Indices) -> list[tuple[int, int, int]]:
    """Return true class, predicted class and number of rows of each confusion, the most frequent first."""
    off = counts * (1 - np.eye(len(counts), dtype=np.int64))
    cells = np.argwhere(off)
    order = np.argsort(-off[tuple(cells.T)], kind="stable")
    return [(int(i), int(j), int(off[i, j])) for i, j in cells[order]]


def _printed_matrix(found: Findings) -> Markup:
    """Cells have a stronger color for a larger share of their row; errors by square roots, because they are few."""
    corner = el("td", el("span", "true ↓"), " ", el("span", "predicted →"))
    is_tall = max(text_width(name(c, 12)) for c in found.classes) > CELL_LETTERS / len(found.classes)
    heads, body = [el("th", label(c, 12), scope="col") for c in found.classes], []
    for i, row in enumerate(found.confusion):
        cells = [el("th", label(found.classes[i], 16), scope="row")]
        for j, n in enumerate(row.tolist()):
            depth = (n / max(int(row.sum()), 1)) ** (1.0 if i == j else 0.5)
            seen = el("td", whole(n), class_="hit" if i == j else "miss", style=f"--depth:{depth:.2f}")
            cells.append(seen if n else el("td", el("span", "0", class_="unseen")))
        body.append(el("tr", *cells))
    caption = el("caption", "Confusion matrix: true class by row, predicted class by column")
    return el("table", caption, el("thead", el("tr", corner, *heads)), el("tbody", *body),
              class_="matrix tall" if is_tall else "matrix", style=f"--classes:{len(found.classes)}")  # fmt: skip


SHOWN_FEATURES = 20
FEATURES_LEAD = (
    "The relevance of a feature is 1 / length-scale in scaled units: how fast the function of a class changes along "
    "the feature. A feature of relevance 0 has no effect; at twice the relevance, half the change has the same effect."
)
OF_TABLES = (
    " The levels of a category share one length-scale. A column with several, such as a date with its cycles or a "
    "number with gaps, counts with all of them: the root of the sum of the squared relevances."
)


def features(found: Findings) -> Parts:
    """The mean relevance over classes as bars, the relevance by class as a heat map, and how columns were read."""
    lead, *parts = _relevance(found)
    return (f"{lead}{OF_TABLES if parts else ''}", *parts, _columns(found.columns)) if found.columns else (lead, *parts)


def _relevance(found: Findings) -> Parts:
    if found.relevance is None or not found.relevance.values.size:
        return ("The kernel of this model has no length-scales.",)
    names, classes, values = found.relevance
    mean, low, high = values.mean(0), values.min(0), values.max(0)
    order = np.argsort(-mean, kind="stable").tolist()
    shown, differ = order[:SHOWN_FEATURES], len(values) > 1 and not np.allclose(values, values[:1], rtol=1e-9)
    write, in_full = (uniform_format(part.ravel().tolist()) for part in (values[:, shown], values))
    bars = [Bar(names[d], float(mean[d]), *((float(low[d]), float(high[d])) if differ else ())) for d in shown]
    held = percent(float(mean[shown].sum() / (mean.sum() or 1.0)), 0)
    of = f"The top {len(shown)} of {whole(len(order))} features hold {held} of the total relevance. "
    of = f"{of if len(order) > len(shown) else ''}Most relevant:"
    described = f"{of} {listed([f'{name(bar.label, 24)} {write(bar.value)}' for bar in bars[:3]])}."
    head = charts.column_head([bar.label for bar in bars], classes) if differ else charts.HEAD
    title = "Relevance of features"
    chart = charts.bar_chart("relevance", bars, title, described, write, "1 / length-scale", head)
    columns = np.column_stack([mean, low, high]).tolist()
    rows: list[Row] = [[label(names[d]), *(Cell(in_full(v), v) for v in columns[d])] for d in order]
    data = table(title, ["Feature", "Mean", "Least", "Most"], rows, 3, sortable=True)
    caption = f"{of} {listed([name(bar.label, 24) for bar in bars[:3]])}."
    if not differ:
        return FEATURES_LEAD, pair(figure(chart, "The same for all classes", caption, data))
    means = figure(chart, "Mean over classes", f"{caption} Lines show the range over classes.", data)
    return FEATURES_LEAD, pair(means, _relevance_by_class(found.relevance, shown))


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
    return figure(chart, "By class", f"The stronger the blue, the more relevant. {described}", data)


OPEN_COLUMNS = 30  # a longer table is folded


def _columns(columns: list[ColumnSummary]) -> Markup:
    """How each column was read."""

    def share(part: float | None) -> Cell:
        return Cell("–", -1.0) if part is None else Cell(percent(part) if part else "0", part)

    rows: list[Row] = []
    for column in columns:
        rare = f", {column.n_rare:,} rare levels share one" if column.n_rare else ""
        new = listed([f"{name(level, 20)} ({n:,})" for level, n in column.unseen], 3) or "–"
        rows.append([label(column.name, 40), column.reading, f"{column.features}{rare}" or "none", new,
                     share(column.gaps), share(column.gaps_here)])  # fmt: skip
    head = [
        "Column",
        "Read as",
        "Features of the model",
        "Levels not in training (rows)",
        "Gaps in training",
        "Gaps here",
    ]
    title = "How columns were read"
    made = table(title, head, rows, 2, "columns", sortable=True)
    if len(columns) > OPEN_COLUMNS:
        return el("details", el("summary", f"{title} ({len(columns):,})"), made, class_="data")
    return el("div", el("h3", title), made, class_="wide")


UNCERTAINTY_LEAD = (
    "Uncertainty has two parts. Aleatoric uncertainty is in the data: classes overlap, and more rows would not help. "
    "Epistemic uncertainty is the model's: it has seen few similar rows, and more of them would help."
)
SPEAKS = (
    "“For” lists the columns that speak most for the predicted label, and for the next one. A number says how far the "
    "value of the column moves the difference of the two latent functions towards the label, compared with other "
    "values of the column, while all other columns stay as they are."
)
TENTH = 10  # the index of 90 % in KEPT


def uncertainty(found: Findings) -> Parts:
    """Both kinds of uncertainty, the effect of setting uncertain rows aside, and rows to review."""
    key, quantiles = [], []
    for sign, kind, word, which in (
        ("●", "right", "correct", found.is_right),
        ("✕", "wrong", "wrong", ~found.is_right),
    ):
        key += [el("span", sign, class_=kind, aria_hidden="true"), f" {word} ({whole(which.sum())})"]
        parts = [np.quantile(part[which], [0.5, 0.9]) for part in (found.aleatoric, found.epistemic) if which.any()]
        numbers = [number(float(value)) for part in parts for value in part] or 4 * ["–"]
        quantiles.append([word, whole(which.sum()), *numbers])
    caption = join(
        [*key[:2], ", ", *key[2:], f".{_drawn_of(found, len(found.total))} Both axes are on a square-root scale."]
    )
    head = ["Prediction", "Rows", "Aleatoric: median", "90th percentile", "Epistemic: median", "90th percentile"]
    data = table("Uncertainty of correct and wrong rows, in nats", head, quantiles, 5)
    scatter = figure(charts.uncertainty_scatter("uncertainty-kinds", found), "Two kinds of uncertainty", caption, data)
    errors = charts.errors_of_kept(found.total, found.is_right)
    effect = (f"If the most uncertain tenth of the rows is set aside for a person to decide, the error of the "
              f"remaining rows changes from {percent(errors[0])} to {percent(errors[TENTH])}.")  # fmt: skip
    rows = [[percent(1 - KEPT[i], 0), percent(errors[i])] for i in range(0, len(KEPT), 5)]
    data = table("Error of the remaining rows", ["Set aside", "Error of the remaining rows"], rows, 2)
    aside = figure(charts.rejection_curve("set-aside", found), "Setting uncertain rows aside", effect, data)
    review = el("p", "No row needs a review.")
    if found.uncertain:
        head = ["Row", "True", "Predicted", "Why review it", "Total", "Aleatoric", "Epistemic"]
        made = table("Rows to review", head, map(_review, found.uncertain), 3, "rows", sortable=True)
        said = el("p", SPEAKS, class_="lead") if any(row.speaks for row in found.uncertain) else None
        review = el("div", el("h3", f"{counted(len(found.uncertain), 'row')} to review"), said, made, class_="wide")
    return UNCERTAINTY_LEAD, pair(scatter, aside), review


def _drawn_of(found: Findings, n_known: int) -> str:
    """Say how many rows of the report are drawn, if not all: those in the findings, or as many as a chart has."""
    drawn = min(n_known, MAX_POINTS)
    sample = f" They count a random sample of {whole(n_known)} rows." if n_known < found.n_rows else ""
    return f"{sample} {whole(drawn)} of {whole(found.n_rows)} rows are drawn." if drawn < found.n_rows else ""


def _review(row: UncertainRow) -> Row:
    is_right = bool(row.top) and row.top[0][0] == row.truth
    kind, sign, word = ("right", "✓", "correct") if is_right else ("wrong", "✕", "wrong")
    truth = join([el("span", sign, class_=kind, title=word), el("span", f"{word}: ", class_="unseen"), " ",
                  label(row.truth, 24)])  # fmt: skip
    top = [el("li", label(c, 16), " ", el("span", percent(p, 0), class_="p"), style=f"--p:{100 * p:.0f}%")
           for c, p in row.top]  # fmt: skip
    parts = [Cell(number(value), value) for value in (row.total, row.aleatoric, row.epistemic)]
    best = row.top[0][1] if row.top else 0.0
    values = [el("li", label(column, 24), " ", el("b", label(value, 40))) for column, value in row.values
              if column not in {spoken for spoken, *_ in row.speaks}]  # fmt: skip
    sides = [[one for one in row.speaks if sign * one[2] > 0.0] for sign in (1.0, -1.0)]
    write = uniform_format([abs(by) for *_, by in row.speaks], 2)
    spoken = [el("ul", el("li", "for ", label(of, 24), ":"),
                 *(el("li", label(column, 24), " ", el("b", label(value, 40)), f" +{write(abs(by))}")
                   for column, value, by in side), class_="values")
              for (of, _), side in zip(row.top, sides, strict=False) if side]  # fmt: skip
    why = join([row.why, *spoken, el("ul", *values, class_="values") if values else None])
    return [Cell(whole(row.row), float(row.row)), truth, Cell(el("ul", *top, class_="top"), best), why, *parts]


NOVELTY_LEAD = (
    "The novelty of a row is the share of rows like the training rows that look as strange or stranger. Rows like "
    "these have every novelty equally often, so the bars are of one height; rows unlike them are near 0."
)


def novelty(found: NovelRows | None) -> Parts:
    """How often each novelty occurs, and the strangest rows with what is unusual about them."""
    if found is None:
        return ("This model does not know how strange rows look: it has seen no rows that it has not learned from.",)
    low, high = (percent(end) for end in found.expected)
    share = f"{percent(found.share.value)} of the rows are novel (95 % interval {between(found.share, True)})"
    verdict = (f"{share}: their novelty is at most {percent(found.level, 0)}. Of rows like the training rows, {low} to "
               f"{high} would be.")  # fmt: skip
    width = 1.0 / len(found.histogram)
    rows = [[f"{percent(i * width, 0)} to {percent((i + 1) * width, 0)}", whole(n)]
            for i, n in enumerate(found.histogram)]  # fmt: skip
    data = table("Rows by novelty", ["Novelty", "Rows"], rows, 1)
    chart = charts.novelty_histogram("novelty-rows", found, verdict)
    test = "less than 0.001" if found.p_value < 0.001 else number(found.p_value)
    stranger = el("aside", el("h3", "How to read this"), el("ul", *(el("li", text) for text in (
        f"{counted(found.n_rows, 'row')} are compared with {counted(found.n_known, 'training row')}, as strange as "
        "these look to a model that has not learned from them.",
        "Rows can be strange in three ways: far from the training rows, in a place where the model cannot tell classes "
        "apart for lack of rows, or with levels or gaps that training did not have.",
        f"If all rows were like the training rows, a test would call them as strange as this with probability {test}.",
    ))), class_="reading")  # fmt: skip
    strange = el("p", "No row is novel.")
    if found.strangest:
        head = ["Row", "What is unusual, with the share of training rows as unusual", "Novelty"]
        made = table("The strangest rows", head, map(_strange, found.strangest), 1, "rows", sortable=True)
        strange = el("div", el("h3", "The strangest rows"), made, class_="wide")
    return NOVELTY_LEAD, pair(figure(chart, "Rows by novelty", verdict, data), stranger), strange


def _strange(row: StrangeRow) -> Row:
    cells = [el("li", label(column, 24), " ", el("b", label(value, 40)), f" ({percent(share)})")
             for column, value, share in row.cells]  # fmt: skip
    why = el("ul", *cells, class_="values") if cells else "the combination of its values"
    return [label(row.row, 24), why, Cell(number(row.novelty), row.novelty)]


SHOWN_COLUMNS = 20


def moved_columns(found: Drift) -> Parts:
    """How far the distribution of each column has moved."""
    lead = (
        "The distance is the largest difference between the distribution functions of numbers, or half of the summed "
        "differences between the shares of levels: 0 for equal distributions, 1 for distributions without overlap. "
        "Columns without a p-value below 5 % may differ by chance; the p-value accounts for the number of columns."
    )
    if not found.columns:
        return ("There are no columns to compare.",)
    moved, write = found.moved, uniform_format([column.distance for column in found.columns])
    bars = [Bar(column.name, column.distance) for column in found.columns[:SHOWN_COLUMNS]]
    names = listed([name(column.name, 24) for column in moved])
    of = f"{len(moved)} of {counted(len(found.columns), 'column')} have moved by more than chance"
    caption = f"{of}: {names}." if moved else f"{of}."
    chart = charts.bar_chart("moved-columns", bars, "Distance of each column", caption, write, "distance")

    def p_text(p: float) -> str:
        return "< 0.001" if p < 0.001 else number(p)

    rows: list[Row] = [
        [label(c.name, 40), el("b", "yes") if c in moved else "no", c.what, Cell(percent(c.gaps), c.gaps),
         Cell(percent(c.gaps_here), c.gaps_here), Cell(write(c.distance), c.distance),
         Cell(p_text(c.p_value), c.p_value)]
        for c in found.columns
    ]  # fmt: skip
    head = ["Column", "Moved", "Training → here", "Gaps in training", "Gaps here", "Distance", "p"]
    made = el(
        "div", el("h3", "All columns"), table("All columns", head, rows, 4, "columns", sortable=True), class_="wide"
    )
    shown = "Columns" if len(bars) == len(found.columns) else f"The {len(bars)} columns that moved most"
    return lead, pair(figure(chart, shown, caption)), made


def labels(found: Drift) -> Parts:
    """Scores and calibration on the rows with labels, beside the scores saved with the model."""
    unknown = None
    if found.unknown_labels:
        named = listed([f"{name(text, 24)} ({n:,})" for text, n in found.unknown_labels])
        unknown = el("p", f"Labels that the model does not know: {named}. Their rows are not scored.")
    if found.scores is None or found.reliability is None:
        return "There are no labels that the model knows, so its predictions cannot be scored.", unknown
    rows = []
    for field, title, as_percent, _ in MEASURES:
        own, before = getattr(found.scores, field), found.before.get(field)
        value, spread = percent(own.value) if as_percent else number(own.value), between(own, as_percent)
        known = "–" if before is None else percent(before) if as_percent else number(before)
        rows.append([title, known, value, spread])
    made = table("Scores", ["Score", "Saved with the model", "Here", "95 % interval"], rows, 3)
    lead = f"{counted(found.n_labeled, 'row')} have labels. Lower scores are better."
    diagram = _reliability("reliability", found.reliability, "Calibration")
    return lead, pair(diagram, el("div", el("h3", "Scores"), made, unknown))


STACKED = 0.5  # share of rows at places of their own, below which the caption says so


def data_map(found: Findings) -> Parts:
    """Rows and inducing points on the same axes, and a choice of the class to highlight."""
    if found.map is None or not len(found.map.rows):
        return ("There is no two-dimensional view of these data.",)
    where, classes, glyphs = found.map, found.classes, are_glyphs(found.classes)
    axes = listed([name(axis, 80) for axis in where.axes])
    lead = f"The rows projected to {axes}, which hold {percent(where.share, 0)} of their variance."
    if where.share < 1.0:
        lead += " Points that are close here can be far apart in other dimensions."
    options = [("", "all"), *((str(k), name(c)) for k, c in enumerate(classes))]
    control = picker("pick-mark", "Highlight class", options, "", "map-figures")
    is_many = len(classes) >= MANY_CLASSES
    marks = "Each mark is the true label of a row." if glyphs else "Marks show the true class."
    if is_many:
        marks = (
            "Each dot is a row. Names mark the centers of the true classes, where there is room. Highlight a class to "
            "see its rows."
        )
    n_drawn, n_wrong = (
        min(len(where.rows), MAX_POINTS),
        (~where.row_is_right[charts.choose_points(where.row_is_right)]).sum(),
    )
    drawn = "" if n_drawn == found.n_rows else f" {whole(n_drawn)} of {whole(found.n_rows)} rows are drawn."
    is_stacked = len(np.unique(where.rows, axis=0)) < STACKED * len(where.rows)
    stacked = " Rows of equal values lie on top of each other." if is_stacked else ""
    caption = f"{marks} Rings mark {'the' if not drawn else 'their'} {counted(n_wrong, 'error')}.{drawn}{stacked}"
    rows = figure(charts.map_of_rows("map-rows", where, classes), "Rows", caption,
                  _centers(where.rows, where.row_class, classes, "Rows"))  # fmt: skip
    inducing = legend = None
    if len(where.inducing):
        n_shown, of = len(where.inducing[charts.drawn_inducing(where)]), counted(where.n_inducing, "inducing point")
        some = f"The {of}" if n_shown == where.n_inducing else f"{whole(n_shown)} of the {of}, evenly chosen,"
        caption = f"{some} by class. {'Small gray dots are rows' if is_many else 'Rows are dots'}."
        inducing = figure(charts.map_of_inducing("map-inducing", where, classes), "Inducing points", caption,
                          _centers(where.inducing, where.inducing_class, classes, "Points"))  # fmt: skip
    if not glyphs and not is_many:  # the marks of the classes, up to the number that differ
        paths = [el("path", d=shape(k, 7.0, 7.0)) for k in range(len(classes))]
        swatches = [el("svg", path, viewBox="0 0 14 14", class_="swatch", aria_hidden="true") for path in paths]
        shown = [el("span", mark, " ", label(classes[k], 24), class_=class_color(k)) for k, mark in enumerate(swatches)]
        legend = el("ul", *(el("li", entry) for entry in shown), class_="legend")
    return lead, control, legend, el("div", pair(rows, inducing), id="map-figures"), _inducing(found)


def _centers(at: Array, of: Indices, classes: list[str], what: str) -> Markup:
    groups = [(label("all" if c == SHARED else classes[c], 40), at[of == c]) for c in np.unique(of).tolist()]
    rows = [[title, whole(len(own)), *map(tidy, own.mean(0).tolist())] for title, own in groups]
    return table(f"{what}: centers of the classes", ["Class", what, "Center: horizontal", "vertical"], rows, 3)


LISTED_POINTS, LISTED_COLUMNS = 20, 6


def _inducing(found: Findings) -> Markup | None:
    """Some inducing points in the units of X, by their most relevant columns."""
    where = found.map
    if where is None or where.points is None or not where.points.size:
        return None
    order = np.arange(len(where.columns))
    if found.relevance is not None:
        order = np.argsort(-found.relevance.values.mean(0), kind="stable")
    shown, some = order[:LISTED_COLUMNS].tolist(), np.linspace(0, len(where.points) - 1, LISTED_POINTS).round()
    rows = [[label("all" if (c := int(where.inducing_class[i])) == SHARED else found.classes[c], 40),
             *(value_text(where.points[i, j]) for j in shown)] for i in np.unique(some).astype(int)]  # fmt: skip
    title = "Inducing points in the units of the data"
    made = table(title, ["Class", *(label(where.columns[j], 16) for j in shown)], rows, len(shown))
    return el("details", el("summary", title), made, class_="data")


LISTED_RECORDS = 30
TRAINING_LEAD = (
    "The objective estimates the log-probability of all training labels under the model. It should rise and level off; "
    "if it is still rising at the end, more epochs can help."
)


def training(found: Findings) -> Parts:
    """The objective against epochs and seconds, and the events of training."""
    curve = found.training
    known = curve.objective[np.isfinite(curve.objective)]
    if len(known) < 2:
        return "There is no training curve.", _events(curve)
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
    return TRAINING_LEAD, pair(by_epoch, by_time), _events(curve)


def _events(curve: TrainingCurve) -> Markup | None:
    """What happened during training; the first events have numbered flags in the charts."""
    if not curve.events:
        return None
    listed_events = [el("li", f"Epoch {whole(e.epoch)}: {e.text}") for e in curve.events[:LISTED_RECORDS]]
    rest = len(curve.events) - LISTED_RECORDS
    more = el("p", f"And {whole(rest)} more.", class_="quiet") if rest > 0 else None
    note = el("p", f"The first {MAX_FLAGS} are flagged in the charts.") if len(curve.events) > MAX_FLAGS else None
    return el("div", el("h3", "Events"), note, el("ol", *listed_events, class_="events"), more)


def settings(found: Findings) -> Parts:
    """A table of settings and learned values."""
    if not found.about:
        return ("No settings are known.",)
    title = "Settings and learned values"
    rows = [el("tr", el("th", key, scope="row"), el("td", value)) for key, value in found.about]
    made = el("table", el("caption", title), el("colgroup", el("col"), el("col")), el("tbody", *rows), class_="about")
    return None, scroll(title, made)
