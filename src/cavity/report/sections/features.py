"""Which features matter, by the length-scales of the classes' functions."""

from __future__ import annotations

import numpy as np

from cavity.report.charts.bars import HEAD, Bar, bars
from cavity.report.charts.heat import head_room, heat
from cavity.report.findings import Findings, Relevance
from cavity.report.html import Markup
from cavity.report.numerals import alike, listed, name, percent, whole
from cavity.report.sections.parts import Cell, Row, figure, label, pair, section, table

SHOWN = 20
LEAD = (
    "Relevance is one over the length-scale in scaled units: how fast a class's function changes along a feature. "
    "At 0 the feature plays no part; twice as large means that half the change in the feature has the same effect."
)


def features(found: Findings) -> Markup:
    """Bars of the mean over classes, and shades by class."""
    if found.relevance is None or not found.relevance.values.size:
        return section("features", "Features", "This model's kernel has no length-scale of its own for each feature.")
    relevance = found.relevance
    order = np.argsort(-relevance.values.mean(0), kind="stable")
    shown = order[:SHOWN].tolist()
    by_class = _by_class(relevance, shown) if _differ(relevance) else None
    return section("features", "Features", LEAD, pair(_means(relevance, shown, order.tolist()), by_class))


def _differ(relevance: Relevance) -> bool:
    """Whether classes have length-scales of their own."""
    values = relevance.values
    return len(values) > 1 and not np.allclose(values, values[:1], rtol=1e-9)


def _means(relevance: Relevance, shown: list[int], order: list[int]) -> Markup:
    mean, spread, write = (
        relevance.values.mean(0),
        _differ(relevance),
        alike(relevance.values[:, shown].ravel().tolist()),
    )
    found = [_bar(relevance, d, spread) for d in shown]
    first, part = [name(bar.label, 24) for bar in found[:3]], float(mean[shown].sum() / (mean.sum() or 1.0))
    of = f"The first {len(shown)} of {whole(len(order))} features hold {percent(part, 0)} of all relevance. "
    of = of if len(order) > len(shown) else ""
    span = " Lines run from the class that depends on it least to the one that does most." if spread else ""
    head = head_room([bar.label for bar in found], relevance.classes) if spread else HEAD
    seen = f"{listed([f'{n} {write(b.value)}' for n, b in zip(first, found, strict=False)])}. {of}"
    chart = bars("relevance", found, "Relevance of features", seen, write, "1 / length-scale", head)
    title = "Mean over classes" if spread else "The same for all classes"
    return figure(chart, title, f"{of}First {listed(first)}.{span}", _all(relevance, order))


def _bar(relevance: Relevance, d: int, spread: bool) -> Bar:
    own = relevance.values[:, d]
    ends = (float(own.min()), float(own.max())) if spread else (None, None)
    return Bar(relevance.features[d], float(own.mean()), *ends)


def _all(relevance: Relevance, order: list[int]) -> Markup:
    """Every feature in numbers."""
    values, write = relevance.values, alike(relevance.values.ravel().tolist())
    parts = np.column_stack([values.mean(0), values.min(0), values.max(0)]).tolist()
    rows: list[Row] = [[label(relevance.features[d]), *(Cell(write(v), v) for v in parts[d])] for d in order]
    return table("Relevance of features", ["Feature", "Mean", "Least", "Most"], rows, 3, sortable=True)


def _by_class(relevance: Relevance, shown: list[int]) -> Markup:
    names, values = [relevance.features[d] for d in shown], relevance.values[:, shown].T
    write = alike(values.ravel().tolist())
    i, k = np.unravel_index(int(values.argmax()), values.shape)
    seen = (f"The largest is {write(float(values[i, k]))}, of {name(names[i], 40)} for class "
            f"{name(relevance.classes[k], 40)}; the least shown is {write(float(values.min()))}.")  # fmt: skip
    chart = heat("relevance-by-class", names, relevance.classes, values, "Relevance by class", seen, write)
    rows = [[label(n, 40), *(write(float(v)) for v in row)] for n, row in zip(names, values, strict=True)]
    data = table("Relevance by class", ["Feature", *(label(c, 12) for c in relevance.classes)], rows, values.shape[1])
    return figure(chart, "By class", f"The darker, the more relevant. {seen}", data)
