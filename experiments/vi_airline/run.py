"""What VI maximizes, and what its predictions achieve, during training: the last figure of the supplement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.figures import STYLES, new_figure
from benchmarks.records import Record
from experiments import curves
from experiments.airline.flights import expected_log_lik, flights, natural_vi, paper_model, shared_entries
from experiments.common import markdown
from experiments.experiment import Config, Job, Summary, Verdict

PAPER, NATURAL = "paper", "natural"
TITLES = {PAPER: "VI as in the paper", NATURAL: "VI by natural gradients"}
PREDICTIVE, BOUND = "mean log E[p(y | f)] / nats", "mean E[log p(y | f)] / nats"


def jobs(config: Config) -> list[Job]:
    """List one fit for each optimizer."""
    return [{"fit": fit, "seconds": config["seconds"], **shared_entries(config)} for fit in config["fits"]]


def cost(job: Job) -> float:
    """Estimate the seconds of a fit, reading and scoring included."""
    return curves.fit_cost(job["seconds"])


def run(job: Job) -> Record:
    """Fit VI. The curve has E[log p] besides NLL and error."""
    rows = flights(job)
    curves.warm_up("vi", job["device"])
    model = natural_vi(job) if job["fit"] == NATURAL else paper_model("vi", job)
    return curves.tracked_fit(model, rows, curves.look_times(job["seconds"], job["looks"]), expected_log_lik)


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare both quantities for each fit."""
    found = {record["fit"]: curves.curve_of(record) for record in records}
    fits = {fit: found[fit] for fit in config["fits"] if fit in found}
    return Summary(_table(fits), _verdicts(fits, config["fall"]), {"vi-airline": _draw(fits)})


def _table(fits: dict[str, curves.Curve]) -> str:
    rows = []
    for fit, curve in fits.items():
        best, highest, last = curves.lowest_nll(curve), max(curve, key=lambda point: point.expected), curve[-1]
        rows.append([TITLES[fit], "log E[p]", curves.timed(-best.nll, best), curves.timed(-last.nll, last)])
        rows.append(
            [TITLES[fit], "E[log p]", curves.timed(highest.expected, highest), curves.timed(last.expected, last)]
        )
    return markdown(["fit", "mean over the test rows", "best", "at the end"], rows)


def _verdicts(fits: dict[str, curves.Curve], fall: float) -> list[Verdict]:
    verdicts = []
    if PAPER in fits:
        verdicts += _paper_verdicts(fits[PAPER], fall)
    if {PAPER, NATURAL} <= set(fits):
        verdicts.append(_optimizer_verdict(fits[PAPER][-1], fits[NATURAL][-1]))
    return verdicts


def _paper_verdicts(curve: curves.Curve, fall: float) -> list[Verdict]:
    """Check whether log E[p] falls after its best value while E[log p] rises."""
    best, last = curves.lowest_nll(curve), curve[-1]
    return [
        Verdict(f"log E[p] of the paper's VI falls by {fall:g} or more from its best to the end",
                last.nll - best.nll >= fall, f"{curves.timed(-best.nll, best)}, {curves.timed(-last.nll, last)}"),
        Verdict("its E[log p] rises meanwhile", last.expected > best.expected,
                f"{curves.timed(best.expected, best)}, {curves.timed(last.expected, last)}"),
    ]  # fmt: skip


def _optimizer_verdict(paper: curves.Point, natural: curves.Point) -> Verdict:
    """Check whether a better optimizer of E[log p] makes log E[p] worse."""
    holds = natural.expected > paper.expected and natural.nll > paper.nll
    evidence = (
        f"E[log p] {natural.expected:.4f} against {paper.expected:.4f}, log E[p] {-natural.nll:.4f} against "
        f"{-paper.nll:.4f}"
    )
    return Verdict(
        "natural gradients end with a higher E[log p] and a lower log E[p] than the paper's VI",
        holds,
        evidence,
        is_ours=True,
    )


def _draw(fits: dict[str, curves.Curve]) -> Any:
    figure = new_figure(4.6 * len(fits) + 0.4, 5.2)
    grid = figure.subplots(2, len(fits), squeeze=False, sharex="col")
    for (above, below), (fit, curve) in zip(grid.T, fits.items(), strict=True):
        above.set_title(TITLES[fit], fontsize="medium", loc="left")
        below.set_xlabel("training time / s")
        _draw_curve(above, curve, [-point.nll for point in curve], "o", "-")
        _draw_curve(below, curve, [point.expected for point in curve], "s", (0, (6, 1.5)))
    for axes, label in zip(grid[:, 0], (PREDICTIVE, BOUND), strict=True):
        axes.set_ylabel(label)
    return figure


def _draw_curve(axes: Any, curve: curves.Curve, values: list[float], marker: str, style: Any) -> None:
    curves.time_axis(axes)
    seconds = [point.seconds for point in curve]
    axes.plot(seconds, values, color=STYLES["vi"].color, marker=marker, linestyle=style, markersize=4.5)
