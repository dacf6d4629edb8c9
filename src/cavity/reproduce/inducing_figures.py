"""The figures of `inducing`: maps of where the points are, and what they cost, against their number."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from cavity.bench import figures
from cavity.bench.figures import Style, legend, new_figure, plain
from cavity.records import Record
from cavity.reproduce import plane
from cavity.reproduce.experiment import Config

STYLES = figures.STYLES | {
    "vi-natural": Style("VI, natural gradients", "#E69F00", "v", (0, (6, 1.5, 1, 1.5))),
    "start": Style("at the start", "0.55", "", (0, (1, 1))),
}
# Shades that differ in black and white, light for rows and strong for inducing points, and a marker for each class.
LIGHT, STRONG, MARKERS = ("#f3dd94", "#a9cfe8", "#b98aa6"), ("#f5c400", "#2a87c8", "#7d1f5c"), ("o", "s", "^")
CURVES = {
    "error": "error on fresh rows",
    "distinct": "distinct share of the inducing points",
    "distance": "median distance to a boundary",
}
OUTSIDE = 0.2  # shown around the square, where inducing points may go


def draw_maps(records: list[Record], problem: plane.Problem, config: Config) -> Any:
    """A row for each method, a column for each M, as in the paper."""
    of = {(r["method"], r["inducing"]): r for r in records}
    methods, sizes = config["methods"], config["inducing"]
    figure = new_figure(1.35 * len(sizes) + 0.3, 1.35 * len(methods) + 0.3)
    panels = figure.subplots(len(methods), len(sizes), sharex=True, sharey=True, squeeze=False)
    for axes, (method, M) in zip(panels.flat, product(methods, sizes), strict=True):
        _draw_rows(axes, problem)
        if (method, M) in of:
            _draw_fit(axes, of[method, M])
    for axes, M in zip(panels[0], sizes, strict=True):
        axes.set_title(f"M = {M}", fontsize="medium")
    for axes, method in zip(panels[:, 0], methods, strict=True):
        axes.set_ylabel(STYLES[method].label.replace(", ", ",\n"))
    return figure


def _draw_rows(axes: Any, problem: plane.Problem) -> None:
    for k, color in enumerate(LIGHT):
        axes.scatter(*problem.X[problem.y == k].T, s=3.0, color=color, linewidths=0, rasterized=True)
    reach = plane.SIDE / 2 + OUTSIDE
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[], aspect="equal")


def _draw_fit(axes: Any, record: Record) -> None:
    n, labels = record["grid"], np.array(list(record["labels"]), dtype=np.int64)
    x = plane.grid(n)[:n, 0]
    for k in range(plane.CLASSES):
        inside = (labels == k).reshape(n, n).astype(np.float64)
        if 0.0 < inside.mean() < 1.0:
            axes.contour(x, x, inside, levels=[0.5], colors="black", linewidths=0.7)
    size = 14.0 - np.log2(record["inducing"])
    for points, color, marker in zip(np.array(record["points"]), STRONG, MARKERS, strict=True):
        axes.scatter(*points.T, s=size, color=color, marker=marker, edgecolors="black", linewidths=0.5, zorder=3)


def draw_curves(found: dict[str, dict[tuple[str, int], float]], config: Config) -> Any:
    """Error, distinct share and distance to the boundary against M."""
    figure = new_figure(10.0, 3.4)
    for place, (name, label) in enumerate(CURVES.items(), start=1):
        axes = plain(figure.add_subplot(1, len(CURVES), place))
        for method in (*config["methods"], "start"):
            sizes = [M for M in config["inducing"] if (method, M) in found[name]]
            if sizes:
                _draw_curve(axes, method, sizes, [found[name][method, M] for M in sizes])
        axes.set_xscale("log", base=2)
        axes.set_xticks(config["inducing"], [str(M) for M in config["inducing"]], fontsize="small")
        axes.set(xlabel="inducing points of a class, M", ylabel=label)
        if name == "error":
            axes.set_yscale("log")
            figures.log_ticks(axes.yaxis)
        else:
            axes.set_ylim(bottom=0.0)
    legend(figure)
    return figure


def _draw_curve(axes: Any, method: str, sizes: list[int], values: list[float]) -> None:
    style = STYLES[method]
    axes.plot(sizes, values, color=style.color, marker=style.marker, linestyle=style.line, label=style.label,
              markersize=4.5, linewidth=1.5)  # fmt: skip
