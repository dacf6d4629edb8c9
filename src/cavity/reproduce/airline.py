"""Two million flights, mini-batches, and a linear model to beat: the lower half of the paper's Figure 5."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity.bench.figures import STYLES, legend, line
from cavity.records import Record
from cavity.report import scores
from cavity.reproduce import large
from cavity.reproduce.common import DIGITS, Rows, markdown
from cavity.reproduce.experiment import Config, Job, Shown, Verdict
from cavity.reproduce.flights import expected_log_lik, flights, our_model, paper_model, shared_entries

PAPER = ("sep", "ep", "vi")
LINEAR, OURS = "linear", "cavity"
LINEAR_STEPS = 1000
ROOM = 0.05  # above and below the curves


def jobs(config: Config) -> list[Job]:
    """One fit for each method."""
    return [{"method": m, "seconds": config["seconds"], **shared_entries(config)} for m in config["methods"]]


def cost(job: Job) -> float:
    """Seconds, reading and scoring included."""
    return large.fit_cost(0.0 if job["method"] == LINEAR else job["seconds"])


def run(job: Job) -> Record:
    """A fit by the clock; of VI the curve has E[log p] as well, of the linear model there is no curve."""
    method, rows = job["method"], flights(job)
    if method == LINEAR:
        return _linear(rows)
    large.warm_up("sep" if method == OURS else method, job["device"])
    model = our_model(job) if method == OURS else paper_model(method, job)
    return large.watched_fit(model, rows, job["looks"], job["seconds"], expected_log_lik if method == "vi" else None)


def _linear(rows: Rows) -> Record:
    X, y, X_test, y_test = rows
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=LINEAR_STEPS))
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    found = scores(y_test, model.predict_log_proba(X_test), model.classes_)
    return {"nll": round(found.nll, DIGITS), "error": round(found.error, DIGITS), "train_seconds": round(seconds, 3)}


def show(records: list[Record], config: Config, folder: Path) -> Shown:
    """Curves against the linear model."""
    found = {record["method"]: record for record in records}
    return Shown(_table(config, found), _verdicts(config, found), {"airline": _draw(config, found)})


def _table(config: Config, found: dict[str, Record]) -> str:
    header = ["method", "training / s", "error", "NLL", "least NLL of its looks", "below the linear model after"]
    return markdown(header, [_row(m, found[m], found.get(LINEAR)) for m in config["methods"] if m in found])


def _row(method: str, record: Record, linear: Record | None) -> list[str]:
    row = [STYLES[method].label, f"{record['train_seconds']:.1f}", f"{record['error']:.4f}", f"{record['nll']:.4f}"]
    if method == LINEAR:
        return [*row, "", ""]
    least = large.best(large.curve_of(record))
    passes = large.as_seconds(_passes(record, linear)) if linear else ""
    return [*row, large.at(least.nll, least), passes]


def _passes(record: Record, linear: Record) -> float | None:
    """When both error and NLL were first at or below those of the linear model."""
    return large.seconds_to(large.curve_of(record), linear["nll"], linear["error"])


def _verdicts(config: Config, found: dict[str, Record]) -> list[Verdict]:
    if not {*PAPER, LINEAR} <= set(found):
        return []
    when = {method: _passes(found[method], found[LINEAR]) for method in PAPER}
    times = ", ".join(f"{STYLES[m].label} {large.as_seconds(when[m])}" for m in PAPER)
    limit = config["pass_seconds"]
    is_quick = all((when[m] or math.inf) <= limit for m in ("sep", "ep"))
    is_first = all(large.is_earlier(when[m], when["vi"]) for m in ("sep", "ep"))
    return [
        Verdict(f"SEP and EP are below logistic regression in error and NLL within {limit:g} s", is_quick, times),
        Verdict("SEP and EP are there before VI", is_first, times),
        _alike(found, config["same_error"]),
        _turn(large.curve_of(found["vi"]), config["rise"]),
    ]


def _alike(found: dict[str, Record], spread: float) -> Verdict:
    errors = {method: found[method]["error"] for method in PAPER}
    is_alike = max(errors.values()) - min(errors.values()) <= spread
    figures = ", ".join(f"{STYLES[method].label} {error:.4f}" for method, error in errors.items())
    return Verdict(f"the errors of SEP, EP and VI end within {spread:g} of each other", is_alike, figures)


def _turn(curve: large.Curve, rise: float) -> Verdict:
    least, last = large.best(curve), curve[-1]
    figures = f"{large.at(least.nll, least)}, {large.at(last.nll, last)}"
    return Verdict(f"VI's NLL turns and rises by {rise:g} or more", last.nll - least.nll >= rise, figures)


def _draw(config: Config, found: dict[str, Record]) -> Any:
    figure, all_axes = large.panels(["error of the test rows", "NLL of the test rows / nats"])
    curves = {m: large.curve_of(found[m]) for m in config["methods"] if m in found and m != LINEAR}
    for axes, score in zip(all_axes, ("error", "nll"), strict=True):
        values = {method: [getattr(point, score) for point in curve] for method, curve in curves.items()}
        for method, curve in curves.items():
            line(axes, method, [point.seconds for point in curve], values[method])
        if LINEAR in found:
            _draw_linear(axes, found[LINEAR], score)
        _set_limits(axes, [record[score] for record in found.values()], values)
    legend(figure)
    return figure


def _draw_linear(axes: Any, record: Record, score: str) -> None:
    """A level, marked where its training ended."""
    style, seconds = STYLES[LINEAR], record["train_seconds"]
    axes.axhline(record[score], color=style.color, linestyle=style.line, linewidth=1.2, zorder=1)
    label = f"{style.label} ({large.as_seconds(seconds)})"
    axes.plot([seconds], [record[score]], color=style.color, marker=style.marker, linestyle=style.line, label=label)


def _set_limits(axes: Any, ends: list[float], curves: dict[str, list[float]]) -> None:
    """All of the paper's methods, and where the others end: their first steps may be far off."""
    shown = ends + [value for method in PAPER for value in curves.get(method, [])]
    low, high = min(shown + [min(curve) for curve in curves.values()]), max(shown)
    room = ROOM * (high - low)
    axes.set_ylim(low - room, high + room)
