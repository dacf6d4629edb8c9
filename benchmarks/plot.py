"""Figures of the history: speed relative to GPyTorch over commits, step times, and NLL against training time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.figures import Style, legend, log_ticks, new_figure, plain
from benchmarks.history import latest_runs, relative_speed, subject
from benchmarks.problems import Size
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
SETTING = ("threads", "device", *Size._fields)
CURVE = ("threads", "dtype", "M", "B")
COMMITS_NAMED = 12
STEP, PREDICTIONS = "speed of a SEP step, GPyTorch = 1", "rows/s of predictions, GPyTorch = 1"
FIT = "seconds of a fit of Vehicle"
SIZE = Size()._asdict()  # of the steps over commits
HEADROOM = 1.35  # of an axis, for the legend


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
    _along_commits(axes, commits)
    axes.set(ylabel="least time of a step / ms")
    axes.set_title("one step, {dtype}, C={C} M={M} B={B} D={D}\n{processor}, threads: {threads}".format(**records[-1]),
                   fontsize="medium", loc="left")  # fmt: skip


def _along_commits(axes: Any, commits: Sequence[str]) -> None:
    named = range(len(commits) - 1, -1, -(len(commits) // COMMITS_NAMED + 1))  # the last one always
    axes.set_xticks(named, [commits[i] for i in named], rotation=40, ha="right", family="monospace")
    axes.set_xlim(-0.5, len(commits) - 0.5)
    axes.set_ylim(bottom=0.0)
    axes.set(xlabel="commit")


def draw_trends(records: Sequence[Record], path: Path) -> bool:
    """Draw each metric over commits, in order of time, on the machine that was measured most often.

    Returns whether there was anything to draw.
    """
    found = [(record, *trend) for record in records if (trend := _trend(record, records)) is not None]
    if not found:
        return False
    place = Counter((r["processor"], r["threads"]) for r, *_ in found).most_common(1)[0][0]
    found = sorted((one for one in found if (one[0]["processor"], one[0]["threads"]) == place),
                   key=lambda one: one[0]["when"])  # fmt: skip
    metrics = [metric for metric in (STEP, PREDICTIONS, FIT) if any(of == metric for _, of, *_ in found)]
    figure = new_figure(4.2 * len(metrics) + 0.2, 4.0)
    figure.suptitle("{}, threads: {}".format(*place), x=0.01, ha="left", fontsize="medium")
    others = figures.STYLES.values()
    for number, metric in enumerate(metrics, start=1):
        own = [(record, name, value) for record, of, name, value in found if of == metric]
        axes = plain(figure.add_subplot(1, len(metrics), number))
        commits = list(dict.fromkeys(str(record["commit"]) for record, *_ in own))
        for name, style in zip(dict.fromkeys(name for _, name, _ in own), others, strict=False):
            style = figures.STYLES.get(name, style)
            line = {str(record["commit"]): value for record, of, value in own if of == name}  # the last run of each
            axes.plot([commits.index(commit) for commit in line], list(line.values()), color=style.color,
                      marker=style.marker, markersize=5, linewidth=1.6, label=name)  # fmt: skip
        axes.set_title(metric, fontsize="medium", loc="left")
        _along_commits(axes, commits)
        axes.set_ylim(top=HEADROOM * max(value for *_, value in own))
        axes.legend(frameon=False, loc="upper left", ncols=2, fontsize="small")
    figure.savefig(path, dpi=150)
    return True


def _trend(record: Record, records: Sequence[Record]) -> tuple[str, str, float] | None:
    """Return the metric to which a record belongs, the name of its line, and its value."""
    speed = relative_speed(record, records)
    match record:
        case {"case": "step", "what": "cavity sep"} if speed and all(record[n] == x for n, x in SIZE.items()):
            return STEP, record["dtype"], speed
        case {"case": "predict", "what": "cavity"} if speed:
            return PREDICTIONS, subject(record), speed
        case {"case": "fit", "data": "vehicle"}:
            return FIT, record["what"], record["seconds"]
    return None


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
    return [partial(_draw_quality, latest_runs(_of_one_setting(group, CURVE))) for group in groups]


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
