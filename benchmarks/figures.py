"""Figures of experiments and benchmarks: one style per method, on top of `cavity.plot.style`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cavity.plot.style import Style, plain
from cavity.report.palette import BLUE, GREEN, ORANGE, PINK, VERMILION

__all__ = ["STYLES", "Style", "legend", "line", "log_ticks", "new_figure", "plain", "save"]

STYLES = {
    "sep": Style("SEP", BLUE, "o", "-"),
    "ep": Style("EP", VERMILION, "s", (0, (6, 1.5))),
    "vi": Style("VI", GREEN, "^", (0, (3, 1.5))),
    "gfitc": Style("GFITC", PINK, "D", (0, (1, 1.2))),
    "cavity": Style("cavity", "#000000", "*", "-"),
    "cavity-sep": Style("cavity, SEP", ORANGE, "P", (0, (6, 1.5))),
    "linear": Style("logistic regression", ORANGE, "v", (0, (6, 1.5, 1, 1.5))),
}


def new_figure(width: float, height: float) -> Any:
    """Make a figure that pyplot does not know of; sizes in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'cavity[report]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def log_ticks(axis: Any, steps: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Write plain numbers along a logarithmic axis, at these steps of every decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def line(axes: Any, method: str, x: Any, y: Any, **more: Any) -> Any:
    """Draw a curve in the style of a method, with at most about twelve markers."""
    style = STYLES[method]
    settings = {"color": style.color, "marker": style.marker, "linestyle": style.line, "label": style.label,
                "markersize": 4.5, "linewidth": 1.5, "markevery": max(1, len(x) // 12)}  # fmt: skip
    return axes.plot(x, y, **(settings | more))


def legend(figure: Any, columns: int = 6) -> None:
    """Draw one legend above all panels."""
    lines = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    named = {label: line for label, line in lines.items() if not label.startswith("_")}
    figure.legend(
        named.values(), named.keys(), loc="outside upper center", ncols=min(len(named), columns), frameon=False
    )


def save(figure: Any, path: Path) -> None:
    """Save as PNG and SVG, with the same bytes for the same figure."""
    import matplotlib as mpl

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "cavity", "svg.fonttype": "none"}):
        figure.savefig(path.with_suffix(".png"), dpi=150, metadata={"Software": None})
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
