"""What VI maximizes and what it is judged by, along training on the flights: the last figure of the supplement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cavity.bench.figures import STYLES, log_ticks, new_figure, plain
from cavity.records import Record
from cavity.reproduce import large
from cavity.reproduce.common import markdown
from cavity.reproduce.experiment import Config, Job, Shown, Verdict
from cavity.reproduce.flights import expected_log_lik, flights, natural_vi, paper_model, shared_entries

PAPER, NATURAL = "paper", "natural"
TITLES = {PAPER: "VI as in the paper", NATURAL: "VI by natural gradients"}
PREDICTIVE, BOUND = "mean log E[p(y | f)] / nats", "mean E[log p(y | f)] / nats"


def jobs(config: Config) -> list[Job]:
    """One fit for each way to train."""
    return [{"fit": fit, "seconds": config["seconds"], **shared_entries(config)} for fit in config["fits"]]


def cost(job: Job) -> float:
    """Seconds, reading and scoring included."""
    return large.fit_cost(job["seconds"])


def run(job: Job) -> Record:
    """A fit of VI whose curve has E[log p] besides NLL and error."""
    rows = flights(job)
    large.warm_up("vi", job["device"])
    model = natural_vi(job) if job["fit"] == NATURAL else paper_model("vi", job)
    return large.watched_fit(model, rows, job["looks"], job["seconds"], expected_log_lik)


def show(records: list[Record], config: Config, folder: Path) -> Shown:
    """Both quantities, one above the other, for each fit."""
    found = {record["fit"]: large.curve_of(record) for record in records}
    curves = {fit: found[fit] for fit in config["fits"] if fit in found}
    return Shown(_table(curves), _verdicts(curves, config["fall"]), {"vi-airline": _draw(curves)})


def _table(curves: dict[str, large.Curve]) -> str:
    rows = []
    for fit, curve in curves.items():
        best, highest, last = large.best(curve), max(curve, key=lambda point: point.expected), curve[-1]
        rows.append([TITLES[fit], "log E[p]", large.at(-best.nll, best), large.at(-last.nll, last)])
        rows.append([TITLES[fit], "E[log p]", large.at(highest.expected, highest), large.at(last.expected, last)])
    return markdown(["fit", "mean over the test rows", "best of its looks", "at the end"], rows)


def _verdicts(curves: dict[str, large.Curve], fall: float) -> list[Verdict]:
    verdicts = []
    if PAPER in curves:
        verdicts += _paper_verdicts(curves[PAPER], fall)
    if {PAPER, NATURAL} <= set(curves):
        verdicts.append(_optimizer_verdict(curves[PAPER][-1], curves[NATURAL][-1]))
    return verdicts


def _paper_verdicts(curve: large.Curve, fall: float) -> list[Verdict]:
    """From the best log E[p] on, does it fall while E[log p] rises?"""
    best, last = large.best(curve), curve[-1]
    return [
        Verdict(f"log E[p] of the paper's VI falls by {fall:g} or more from its best to the end",
                last.nll - best.nll >= fall, f"{large.at(-best.nll, best)}, {large.at(-last.nll, last)}"),
        Verdict("its E[log p] rises meanwhile", last.expected > best.expected,
                f"{large.at(best.expected, best)}, {large.at(last.expected, last)}"),
    ]  # fmt: skip


def _optimizer_verdict(paper: large.Point, natural: large.Point) -> Verdict:
    """Is the optimizer to blame? Then one that gets further with E[log p] would mend log E[p]."""
    holds = natural.expected > paper.expected and natural.nll > paper.nll
    figures = (
        f"E[log p] {natural.expected:.4f} against {paper.expected:.4f}, log E[p] {-natural.nll:.4f} against "
        f"{-paper.nll:.4f}"
    )
    return Verdict(
        "natural gradients end with a higher E[log p] and a lower log E[p] than the paper's VI", holds, figures
    )


def _draw(curves: dict[str, large.Curve]) -> Any:
    figure = new_figure(4.6 * len(curves) + 0.4, 5.2)
    grid = figure.subplots(2, len(curves), squeeze=False, sharex="col")
    for (above, below), (fit, curve) in zip(grid.T, curves.items(), strict=True):
        above.set_title(TITLES[fit], fontsize="medium", loc="left")
        below.set_xlabel("training time / s")
        _draw_curve(above, curve, [-point.nll for point in curve], "o", "-")
        _draw_curve(below, curve, [point.expected for point in curve], "s", (0, (6, 1.5)))
    for axes, label in zip(grid[:, 0], (PREDICTIVE, BOUND), strict=True):
        axes.set_ylabel(label)
    return figure


def _draw_curve(axes: Any, curve: large.Curve, values: list[float], marker: str, style: Any) -> None:
    plain(axes).set_xscale("log")
    log_ticks(axes.xaxis)
    seconds = [point.seconds for point in curve]
    axes.plot(seconds, values, color=STYLES["vi"].color, marker=marker, linestyle=style, markersize=4.5)
