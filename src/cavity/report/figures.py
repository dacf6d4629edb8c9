"""One plain style for every figure: it reads in black and white and for the color-blind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Style(NamedTuple):
    """How a method is drawn: a color that stays apart for most kinds of color blindness (Okabe and Ito), and a marker
    and a line for the rest."""

    label: str
    color: str
    marker: str
    line: Any


STYLES = {
    "sep": Style("SEP", "#0072B2", "o", "-"),
    "ep": Style("EP", "#D55E00", "s", (0, (6, 1.5))),
    "vi": Style("VI", "#009E73", "^", (0, (3, 1.5))),
    "gfitc": Style("GFITC", "#CC79A7", "D", (0, (1, 1.2))),
    "cavity": Style("cavity", "#000000", "*", "-"),
    "cavity-sep": Style("cavity, SEP", "#E69F00", "P", (0, (6, 1.5))),
    "linear": Style("logistic regression", "#E69F00", "v", (0, (6, 1.5, 1, 1.5))),
}


def new_figure(width: float, height: float) -> Any:
    """A figure of matplotlib, which is an extra; sizes in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs matplotlib: pip install 'cavity[report]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any, grid: str = "y") -> Any:
    """Axes with nothing on them that is not needed."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="0.92")
    axes.set_axisbelow(True)
    return axes


def log_ticks(axis: Any, steps: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Numbers as people write them along a logarithmic axis, at these steps of every decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def line(axes: Any, method: str, x: Any, y: Any, **more: Any) -> Any:
    """A curve in the method's style, markers where there is room."""
    style = STYLES[method]
    settings = {"color": style.color, "marker": style.marker, "linestyle": style.line, "label": style.label}
    return axes.plot(
        x, y, **(settings | {"markersize": 4.5, "linewidth": 1.5, "markevery": max(1, len(x) // 12)} | more)
    )


def legend(figure: Any, columns: int = 6) -> None:
    """One legend above all panels."""
    lines = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    named = {label: line for label, line in lines.items() if not label.startswith("_")}
    figure.legend(
        named.values(), named.keys(), loc="outside upper center", ncols=min(len(named), columns), frameon=False
    )


def save(figure: Any, path: Path) -> None:
    """As PNG and SVG, the same bytes for the same figure."""
    import matplotlib as mpl

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "cavity", "svg.fonttype": "none"}):
        figure.savefig(path.with_suffix(".png"), dpi=150, metadata={"Software": None})
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
