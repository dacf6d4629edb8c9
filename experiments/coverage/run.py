"""How often the report's 95 % intervals hold the truth, in simulated reports whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

from benchmarks.figures import new_figure, plain
from benchmarks.records import Record
from cavity.metrics import calibration_bins, reliability_curve, score_intervals
from cavity.plot.style import nth_style
from experiments.common import grouped, markdown
from experiments.experiment import Config, Job, Summary, Verdict

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

INTERVALS = {
    "error": "error",
    "nll": "NLL",
    "brier": "Brier score",
    "ece": "calibration error",
    "bins": "accuracy of a bin",
}
SPREAD = {"typical": 2.0, "confident": 8.0}  # standard deviation of the latent values
LEAST_PROBABLE = 1e-4  # probability shared by all classes
POPULATION = 200_000  # rows that stand for all rows
MAX_SIZE, HALVINGS = 40.0, 50  # of the search for a miscalibration of a given size
MIDDLE = (0.4, 0.5, 0.6)  # quantiles of the confidence


class World(NamedTuple):
    """A model, the way in which it is miscalibrated, and its true scores."""

    job: Job
    size: float  # of the miscalibration
    middle: Array  # quantiles of the confidence
    truth: dict[str, float]

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Indices, Array, Array]:
        """Draw labels, predicted probabilities and the true probabilities that the most probable label is right."""
        p = _predict(self.job, rng, n)
        accuracy = _accuracy(self.job["kind"], p.max(1), self.size, self.middle)
        true = _true_probabilities(p, accuracy)
        y = (true.cumsum(1) < rng.uniform(size=(n, 1)) * true.sum(1, keepdims=True)).sum(1)
        return np.minimum(y, p.shape[1] - 1), p, accuracy


def jobs(config: Config) -> list[Job]:
    """List the cells."""
    names, cells = ("model", "classes", "kind"), config["cells"]
    return [
        {**{name: cell[name] for name in names}, "error": error, "rows": n, "reports": config["reports"], "seed": 0}
        for cell in cells
        for error in cell["errors"]
        for n in config["rows"]
    ]


def cost(job: Job) -> float:
    """Estimate the cost: a fixed part for each report, and a part that grows with its rows."""
    return float(job["reports"]) * (20.0 + 0.001 * job["rows"] * job["classes"])


def run(job: Job) -> Record:
    """Simulate reports. Count how often the truth is below and above each interval."""
    world, rng = make_world(job), np.random.default_rng([job["seed"], job["rows"]])
    below, above, width = (dict.fromkeys(INTERVALS, 0.0) for _ in range(3))
    for _ in range(job["reports"]):
        y, p, accuracy = world.draw(rng, job["rows"])
        found, curve = score_intervals("", y, np.log(p)), reliability_curve(None, p.max(1), p.argmax(1) == y)
        for name, true in world.truth.items():
            interval = getattr(found, name)
            below[name] += true < interval.low
            above[name] += true > interval.high
            width[name] += interval.high - interval.low
        of_bins = np.array([accuracy[rows].mean() for rows in calibration_bins(p.max(1), len(curve.rows))])
        below["bins"] += float((of_bins < curve.low).mean())
        above["bins"] += float((of_bins > curve.high).mean())
        width["bins"] += float((curve.high - curve.low).mean())
    n = job["reports"]
    return {
        f"{what}_{name}": round(count[name] / n, 6)
        for what, count in (("below", below), ("above", above), ("width", width))
        for name in INTERVALS
    } | {f"true_{name}": round(value, 6) for name, value in world.truth.items()}


def make_world(job: Job) -> World:
    """Find the size of the miscalibration, by bisection, and the true scores."""
    p = _predict(job, np.random.default_rng(job["seed"]), POPULATION)
    c, low, high = p.max(1), 0.0, MAX_SIZE if job["error"] else 0.0
    middle = np.quantile(c, MIDDLE)
    for _ in range(HALVINGS if job["error"] else 0):
        size = (low + high) / 2
        is_less = np.abs(c - _accuracy(job["kind"], c, size, middle)).mean() < job["error"]
        low, high = (size, high) if is_less else (low, size)
    accuracy = _accuracy(job["kind"], c, low, middle)
    true = _true_probabilities(p, accuracy)
    truth = {
        "error": 1 - accuracy.mean(),
        "nll": -(true * np.log(p)).sum(1).mean(),
        "brier": (1 + (p**2).sum(1) - 2 * (true * p).sum(1)).mean(),
        "ece": np.abs(c - accuracy).mean(),
    }
    return World(job, low, middle, {name: float(value) for name, value in truth.items()})


def _predict(job: Job, rng: np.random.Generator, n: int) -> Array:
    C = job["classes"]
    p = softmax(SPREAD[job["model"]] * rng.standard_normal((n, C)), axis=1)
    return np.asarray((1 - LEAST_PROBABLE) * p + LEAST_PROBABLE / C)


def _accuracy(kind: str, confidence: Array, size: float, middle: Array) -> Array:
    """Return the true probability that the most probable label is right."""
    if kind in ("overconfident", "underconfident"):
        power = 1 / (1 + size) if kind == "overconfident" else 1 + size
        return np.asarray(expit(power * logit(confidence)))
    gap = np.sign(confidence - middle[1])  # mixed: too high where it is high, too low where it is low
    if kind == "local":  # too high for a fifth of the rows, right for the others
        gap = (confidence > middle[0]) & (confidence < middle[2])
    return np.clip(confidence - size * gap, 0.0, 1.0)


def _true_probabilities(p: Array, accuracy: Array) -> Array:
    """Give the most probable label its accuracy, and share the rest among the others as predicted."""
    true = p * ((1 - accuracy) / (1 - p.max(1)))[:, None]
    true[np.arange(len(p)), p.argmax(1)] = accuracy
    return np.asarray(true)


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Show the coverage of every interval in every cell, and judge whether all are within the limits."""
    rows, records = (
        [],
        sorted(records, key=lambda r: [r[name] for name in ("kind", "model", "classes", "error", "rows")]),
    )
    for r in records:
        model = f"{r['model']}, {r['kind']}" if r["error"] else f"{r['model']}, calibrated"
        shown = [f"{_coverage(r, name):.1%}" for name in INTERVALS]
        rows.append([model, str(r["classes"]), f"{r['error']:g}", f"{r['rows']:,}", *shown, f"{r['width_ece']:.3f}"])
    header = [
        "model",
        "classes",
        "true calibration error",
        "rows",
        *INTERVALS.values(),
        "width of the calibration error",
    ]
    text = f"Coverage of the 95 % intervals in {config['reports']:,} simulated reports a cell."
    return Summary(
        f"{text}\n\n{markdown(header, rows)}", _verdicts(records, config), {"coverage": _draw(records, config)}
    )


def _coverage(record: Record, name: str) -> float:
    return float(1 - record[f"below_{name}"] - record[f"above_{name}"])


def _verdicts(records: list[Record], config: Config) -> list[Verdict]:
    """Judge both limits of every interval."""
    verdicts = []
    for name, words in INTERVALS.items():
        found = np.array([_coverage(r, name) for r in records])
        told = f"{found.min():.1%} to {found.max():.1%}, {found.mean():.1%} on average"
        for limit, holds in ((f"at least {config['least']:.0%}", found >= config["least"]),
                             (f"at most {config['most']:.0%}", found <= config["most"])):  # fmt: skip
            claim = f"the interval of the {words} covers in {limit} of the reports"
            verdicts.append(
                Verdict(claim, bool(holds.all()), f"{holds.sum()} of {len(found)} cells; {told}", is_ours=True)
            )
    return verdicts


def _draw(records: list[Record], config: Config) -> Any:
    """Draw a panel for each interval: coverage against rows, a line for each cell."""
    figure = new_figure(2.6 * len(INTERVALS), 3.0)
    panels = figure.subplots(1, len(INTERVALS), sharey=True)
    for axes, (name, words) in zip(panels, INTERVALS.items(), strict=True):
        plain(axes, grid="y")
        axes.axhspan(config["least"], config["most"], color="0.92", linewidth=0)
        for (model, _), own in grouped(records, "model", "kind").items():
            style = nth_style(list(SPREAD).index(model))
            for cell in grouped(own, "classes", "error").values():
                cell = sorted(cell, key=lambda r: r["rows"])
                axes.plot([r["rows"] for r in cell], [_coverage(r, name) for r in cell], color=style.color,
                          linewidth=1.0, marker=style.marker, markersize=3.0, alpha=0.7, label=model)  # fmt: skip
        axes.set(title=words, xlabel="rows", xscale="log", ylim=(0.85, 1.005))
    panels[0].set_ylabel("coverage")
    handles, labels = panels[0].get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=2, frameon=False)
    return figure
