"""A figure of the history: step times over commits, and NLL against training time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.figures import Style, legend, log_ticks, new_figure, plain
from benchmarks.records import Record
from cavity.report.palette import ORANGE, PINK

STYLES = {
    "cavity sep": figures.STYLES["sep"]._replace(label="cavity SEP"),
    "cavity ep": figures.STYLES["ep"]._replace(label="cavity EP"),
    "cavity vi": figures.STYLES["vi"]._replace(label="cavity VI"),
    "gpytorch": Style("GPyTorch", PINK, "D", "-"),
    "gpflow": Style("GPflow", ORANGE, "v", "-"),
}
FLOOR = "lower bound: the step's products at the machine's rate"
SETTING = ("threads", "device", "C", "M", "B", "D")
CURVE = ("threads", "dtype", "M", "B")
COMMITS_NAMED = 12


def draw(records: Sequence[Record], path: Path) -> None:
    """Draw into a PNG, SVG or PDF file. Every panel shows one machine and one setting.

    Raises:
        ValueError: if there are no records to draw.
    """
    panels = [*_step_panels(records), *_quality_panels(records)]
    if not panels:
        raise ValueError("There is nothing to draw yet: run `python -m benchmarks step` or `quality` first.")
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure = new_figure(5.2 * columns + 0.6, 3.7 * rows + 0.7)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    for place, panel in enumerate(panels, start=1):
        panel(plain(figure.add_subplot(rows, columns, place)))
    legend(figure, columns=3)
    figure.savefig(path, dpi=150)


def _step_panels(records: Sequence[Record]) -> list[Callable[[Any], None]]:
    """Make a panel for each processor, with the highest precision measured there."""
    steps = [record for record in records if record["case"] == "step"]
    highest = {record["processor"]: record["dtype"] for record in sorted(steps, key=lambda r: r["dtype"])}
    groups = [[r for r in steps if (r["processor"], r["dtype"]) == group] for group in highest.items()]
    return [partial(_draw_steps, _of_one_setting(group, SETTING)) for group in groups]


def _of_one_setting(records: Sequence[Record], names: Sequence[str]) -> list[Record]:
    """Select the setting that was measured most often, and of several the latest."""

    def setting(record: Record) -> tuple[Any, ...]:
        return tuple(record.get(name) for name in names)

    runs = {(record["when"], setting(record)) for record in records}
    often = Counter(found for _, found in runs)
    chosen = max(runs, key=lambda run: (often[run[1]], run[0]))[1]
    return [record for record in records if setting(record) == chosen]


def _draw_steps(records: Sequence[Record], axes: Any) -> None:
    commits = list(dict.fromkeys(str(r["commit"]) for r in sorted(records, key=lambda r: r["when"])))
    for what in _in_order(records):
        own = [record for record in records if record["what"] == what]
        least = _least_by_commit(own, "least_ms")
        _line(axes, what, [commits.index(commit) for commit in least], list(least.values()))
    floor = _least_by_commit(records, "floor_ms")
    axes.plot([commits.index(c) for c in floor], list(floor.values()), color="0.45", linestyle="--", marker="_",
              label=FLOOR)  # fmt: skip
    named = range(len(commits) - 1, -1, -(len(commits) // COMMITS_NAMED + 1))  # the last one always
    axes.set_xticks(named, [commits[i] for i in named], rotation=40, ha="right", family="monospace")
    axes.set_xlim(-0.5, len(commits) - 0.5)
    axes.set_ylim(bottom=0.0)
    axes.set(xlabel="commit", ylabel="least time of a step / ms")
    axes.set_title("one step, {dtype}, C={C} M={M} B={B} D={D}\n{processor}, threads: {threads}".format(**records[-1]),
                   fontsize="medium", loc="left")  # fmt: skip


def _least_by_commit(records: Sequence[Record], name: str) -> dict[str, float]:
    """Return the least value for each commit, in order of time."""
    least: dict[str, float] = {}
    for record in sorted(records, key=lambda r: r["when"]):
        commit = str(record["commit"])
        least[commit] = min(record[name], least.get(commit, record[name]))
    return least


def _quality_panels(records: Sequence[Record]) -> list[Callable[[Any], None]]:
    """Make a panel for each data set and processor, with the latest run of every competitor."""
    points = [record for record in records if record["case"] == "quality"]
    where = dict.fromkeys((record["processor"], record["data"]) for record in points)
    groups = [[r for r in points if (r["processor"], r["data"]) == place] for place in where]
    return [partial(_draw_quality, _latest_runs(_of_one_setting(group, CURVE))) for group in groups]


def _latest_runs(records: Sequence[Record]) -> list[Record]:
    latest = {record["what"]: record["when"] for record in sorted(records, key=lambda r: r["when"])}
    return [record for record in records if record["when"] == latest[record["what"]]]


def _draw_quality(records: Sequence[Record], axes: Any) -> None:
    for what in _in_order(records):
        curve = sorted((r["seconds"], r["nll"]) for r in records if r["what"] == what)
        _line(axes, what, [seconds for seconds, _ in curve], [nll for _, nll in curve])
    axes.set(xscale="log", yscale="log", xlabel="seconds of training", ylabel="NLL of the test rows / nats")
    for axis in (axes.xaxis, axes.yaxis):
        log_ticks(axis, (1.0, 1.5, 2.0, 3.0, 5.0, 8.0))
    axes.set_title("{data}, {rows} rows, {dtype}, M={M} B={B}\n{processor}, threads: {threads}, commit {commit}".format(
                   **records[-1]), fontsize="medium", loc="left")  # fmt: skip


def _in_order(records: Sequence[Record]) -> list[str]:
    """Return the competitors, those with a style first."""
    found = dict.fromkeys(record["what"] for record in records)
    return [what for what in STYLES if what in found] + [what for what in found if what not in STYLES]


def _line(axes: Any, what: str, x: Sequence[float], y: Sequence[float]) -> None:
    style = STYLES.get(what, Style(what, "black", "x", "-"))
    axes.plot(x, y, color=style.color, marker=style.marker, markersize=5, linewidth=1.6, label=style.label)
