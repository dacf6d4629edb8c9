"""Pixels in mini-batches: MNIST by our defaults on a CPU and on a GPU, and with one choice changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.figures import new_figure, plain
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.report.palette import BLUE
from experiments.common import markdown, scored_fit
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.mnist.run import TEST, VALIDATION, digits

DEFAULT, CPU = "default", "CPU"


class Fit(NamedTuple):
    """What is fitted: where, which rows are scored, the share of random labels, the name of the settings."""

    device: str
    rows: str
    noise: float
    name: str


def jobs(config: Config) -> list[Job]:
    """List a fit for each table of the settings and each kind of rows to score; a device of None is a CPU."""
    return [
        {"name": fit["name"], "rows": rows, "noise": fit.get("noise", 0.0), "settings": fit.get("settings", {}),
         "device": fit.get("device"), "data_set": config["data_set"], "seed": config["seed"]}
        for fit in config["fits"]
        for rows in fit.get("rows", [VALIDATION])
    ]  # fmt: skip


def cost(job: Job) -> float:
    """Estimate the cost: all fits take minutes."""
    return 100.0


def run(job: Job) -> Record:
    """Fit, and score the other rows, whose labels have the same noise."""
    X, y, X_test, y_test = digits(job["data_set"], job["rows"])
    rng = np.random.default_rng(job["seed"])
    y, y_test = (np.where(rng.uniform(size=len(z)) < job["noise"], rng.choice(y, len(z)), z) for z in (y, y_test))
    model = GPClassifier(random_state=job["seed"], device=job["device"] or "cpu", **job["settings"])
    return scored_fit(model, (X, y, X_test, y_test)) | {"method": model.method_}


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Show the scores; compare the default with the other choices on the same rows and device."""
    every = [Fit(job["device"] or CPU, job["rows"], job["noise"], job["name"]) for job in jobs(config)]
    found = {Fit(r.get("device") or CPU, r["rows"], r["noise"], r["name"]): r for r in records}
    known = [fit for fit in every if fit in found]
    rows = [
        [fit.name, fit.device, fit.rows, f"{fit.noise:.0%}", found[fit]["method"], *_figures(found[fit])]
        for fit in known
    ]
    head = ["fit", "device", "rows", "random labels", "method", "error", "NLL", "seconds"]
    text = [f"{len(known)} of {len(every)} fits.", markdown(head, rows)]
    verdicts = []
    for device, goal in config["goals"].items():
        if (test := found.get(Fit(device, TEST, 0.0, goal["fit"]))) is not None:
            of = "our defaults" if goal["fit"] == DEFAULT else f"the fit “{goal['fit']}”"
            claim = f"{device}: the test NLL of {of} is at most {goal['nll']:g} within {goal['seconds']} s"
            holds = test["nll"] <= goal["nll"] and test["seconds"] <= goal["seconds"]
            verdicts.append(Verdict(claim, holds, f"{test['nll']:.4f}, {test['seconds']:.0f} s", is_ours=True))
    for device, noise in dict.fromkeys((fit.device, fit.noise) for fit in known if fit.rows == VALIDATION):
        losses = _losses(known, found, device, noise)
        if len(losses) > 1 and DEFAULT in losses:
            rival = min((name for name in losses if name != DEFAULT), key=lambda name: losses[name])
            claim = f"{device}, {noise:.0%} random labels: no other choice has a lower NLL on held-out rows"
            evidence = f"{losses[DEFAULT]:.4f}; {rival} {losses[rival]:.4f}"
            verdicts.append(Verdict(claim, losses[DEFAULT] <= losses[rival], evidence, is_ours=True))
    clear = _losses(known, found, CPU, 0.0)
    return Summary("\n\n".join(text), verdicts, {"pixels": _draw(clear)} if clear else {})


def _losses(known: list[Fit], found: dict[Fit, Record], device: str, noise: float) -> dict[str, float]:
    """Return the NLL of held-out rows for each choice."""
    fits = [fit for fit in known if (fit.device, fit.rows, fit.noise) == (device, VALIDATION, noise)]
    return {fit.name: found[fit]["nll"] for fit in fits}


def _draw(losses: dict[str, float]) -> Any:
    """Draw the NLL of held-out rows for each choice."""
    figure = new_figure(6.0, 0.35 * max(len(losses), 3) + 0.9)
    axes = plain(figure.subplots(), "x")
    colors = ["black" if name == DEFAULT else BLUE for name in losses]
    axes.hlines(range(len(losses)), 0.0, list(losses.values()), colors=colors, linewidth=1.0)
    axes.scatter(list(losses.values()), range(len(losses)), color=colors, s=24, zorder=2)
    axes.set_yticks(range(len(losses)), list(losses))
    axes.set_ylim(len(losses) - 0.5, -0.5)
    axes.set_xlim(0.0, 1.1 * max(losses.values()))
    axes.set_xlabel("NLL of held-out images")
    return figure


def _figures(record: Record) -> list[str]:
    return [f"{100 * record['error']:.2f} %", f"{record['nll']:.4f}", f"{record['seconds']:.0f}"]
