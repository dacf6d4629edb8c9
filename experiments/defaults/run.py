"""Candidates for the default settings, compared by the NLL of rows held out of the training rows of splits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import STYLES, legend, new_figure, plain
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.datasets import make_waveform
from cavity.fitting.encoding import fit_scaler
from cavity.fitting.settings import PRIORS, START
from cavity.kernels import RBF, Kernel, Matern52
from cavity.metrics import scores
from cavity.training.initial import median_distance
from experiments.common import DIGITS, Mean, Split, grouped, markdown, mean_of, scored_fit, split
from experiments.experiment import Config, Job, Summary, Verdict

WAVEFORM = "waveform"
DRAWN, DRAWN_TO_LEARN = 2300, 300
SHARE_TO_LEARN = 0.85
KERNELS = {"rbf": RBF, "matern52": Matern52}
# Seconds of an EP fit with its calibration, and how the methods compare.
SECONDS = {"glass": 2.0, "new_thyroid": 1.0, "svmguide2": 2.5, "vehicle": 8.0, "vowel": 5.0, WAVEFORM: 1.5,
           "wine": 1.0, "satellite": 30.0}  # fmt: skip
EFFORT = {"ep": 1.0, "sep": 0.5, "gfitc": 2.0, "vi": 4.0}

CHOICE = "choice"
PLAIN, CALIBRATED = "nll", "nll_calibrated"
TEXT = (
    "Means over folds; cells that lack folds are left out. Then the geometric mean over sets, and how far it is from "
    "the choice's on the same folds, ± a standard error."
)
WIDTH = 32  # of a name in the figure, in letters
MARKS = {PLAIN: (STYLES["ep"], "not calibrated", "white"), CALIBRATED: (STYLES["sep"], "calibrated", None)}

Cells = dict[tuple[str, str], list[Record]]


def jobs(config: Config) -> list[Job]:
    """List a fit for every candidate, set and fold. A job holds the current defaults, on which candidates build."""
    fixed = {name: config[name] for name in ("inducing", "calibrate", "splits")}
    fixed["defaults"] = as_json({"priors": PRIORS, "start": START._asdict()})
    return [
        {"candidate": candidate["name"], "data_set": data_set, "fold": i, "seed": i,
         "settings": _settings(candidate), **fixed}
        for candidate in config["candidates"]
        for data_set in config["sets"]
        for i in range(folds_of(config, data_set))
    ]  # fmt: skip


def cost(job: Job) -> float:
    """Estimate the seconds on one core."""
    return SECONDS.get(job["data_set"], 1.0) * EFFORT[job["settings"]["method"]]


def run(job: Job) -> Record:
    """Make one calibrated fit and score it twice: without its calibration and with it."""
    rows = fold(job["data_set"], job["fold"], job["splits"])
    model = classifier(job, rows[0])
    found = scored_fit(model, rows)
    uncalibrated = copy(model)
    uncalibrated.posterior_ = replace(model.posterior_, sharpness=1.0)
    plain = scores(rows[3], uncalibrated.predict_log_proba(rows[2]), model.classes_)._asdict()
    calibrated = {f"{name}_calibrated": found[name] for name in plain}
    rounded = {name: round(value, DIGITS) for name, value in plain.items()}
    return found | rounded | calibrated | {"sharpness": round(model.sharpness_, DIGITS)}


def fold(data_set: str, number: int, splits: str) -> Split:
    """Return training and validation rows: the training rows of a split, or new draws of waveform."""
    if data_set == WAVEFORM:
        X, y = make_waveform(DRAWN, random_state=100 + number)
        learn, hold = np.split(np.arange(DRAWN), [DRAWN_TO_LEARN])
    else:
        X, y, _, _ = split(data_set, number, splits)
        learn, hold = parts(len(X), number)
    return X[learn], y[learn], X[hold], y[hold]


def parts(n_rows: int, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Divide the training rows of a split at random into training and validation rows of a fold."""
    order = np.random.default_rng(1000 + number).permutation(n_rows)
    learn, hold = np.split(order, [int(SHARE_TO_LEARN * n_rows)])
    return learn, hold


def classifier(job: Job, X: NDArray[Any]) -> GPClassifier:
    """Return a classifier with the candidate's settings for these rows, and the defaults for the rest."""
    settings = dict(job["settings"])
    if settings.pop("search", False):
        return GPClassifier(random_state=job["seed"], device="cpu")
    if "priors" in settings:
        settings["priors"] = priors(settings["priors"])
    start, name = settings.pop("start", None), settings.pop("kernel", "rbf")
    if start is not None or name != "rbf":
        settings["kernel"] = _kernel(name, start, settings.get("scaling", "standard"), X, job["seed"])
    fixed = {"n_inducing": job["inducing"], "calibrate": job["calibrate"], "random_state": job["seed"]}
    return GPClassifier(**fixed, **settings, device="cpu")


def priors(named: Any) -> dict[str, Any] | None:
    """Convert priors from TOML to what `GPClassifier` takes: "none", or standard deviations by parameter."""
    if named == "none":
        return None
    found = {"variance": (None, 2.0), "noise": (None, 2.0)} | named
    if "lengthscale" in named:
        found["lengthscale"] = (None, *(math.inf if sd is None else sd for sd in named["lengthscale"]))
    return found


def as_json(value: Any) -> Any:
    """Convert a value to one that a JSON file returns unchanged: sorted names, and None for infinity."""
    if isinstance(value, dict):
        return {name: as_json(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [as_json(entry) for entry in value]
    return None if value == math.inf else value


def _settings(candidate: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in candidate.items() if name not in ("name", "what")}
    return dict(as_json({"method": "ep"} | given))


def _kernel(name: str, start: float | None, scaling: str | None, X: NDArray[Any], seed: int) -> Kernel:
    """Return a kernel with the default variance. `start` is in median distances; None for the default."""
    if start is None:
        return KERNELS[name](variance=START.variance)
    scaled = fit_scaler(scaling, X, np.ones(len(X))).transform(X)
    return KERNELS[name](start * median_distance(scaled, np.random.default_rng(seed)), START.variance)


def folds_of(config: Config, data_set: str) -> int:
    """Return how many folds a set has. Large sets have fewer."""
    return int(config.get("folds_of", {}).get(data_set, config["folds"]))


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare every candidate on every set, and the choice with and without calibration."""
    cells = complete(records, config)
    parts = [
        TEXT,
        "### NLL of the validation rows, with calibration",
        _table(cells, config, CALIBRATED),
        "### The same fits without it",
        _table(cells, config, PLAIN),
        "### Sharpness",
        _table(cells, config, "sharpness", compare=False),
        "### The choice without and with calibration: expected calibration error, error",
        _choice_table(cells, config),
    ]
    done = [c for c in config["candidates"] if all((c["name"], data_set) in cells for data_set in config["sets"])]
    if CHOICE not in [c["name"] for c in done]:
        return Summary("\n\n".join(parts), [], {})
    return Summary("\n\n".join(parts), _verdicts(cells, config, done), {"defaults": _draw(cells, config, done)})


def complete(records: list[Record], config: Config) -> Cells:
    """Group the records by candidate and set, in order of folds; leave out groups that lack a fold."""
    groups = grouped(sorted(records, key=lambda r: r["fold"]), "candidate", "data_set")
    return {(c, d): group for (c, d), group in groups.items() if len(group) == folds_of(config, d)}


def log_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Mean:
    """Return the log of the ratio of two means over the same folds, with its error to first order."""
    a, b = np.array(ours), np.array(theirs)
    return Mean(math.log(a.mean() / b.mean()), mean_of(a / a.mean() - b / b.mean()).se)


def compared(cells: Cells, sets: Sequence[str], ours: tuple[str, str], theirs: tuple[str, str]) -> Mean:
    """Return the log of the ratio of two geometric means over sets. Each side is a candidate and a score."""
    pairs = [[[r[score] for r in cells[name, d]] for name, score in (ours, theirs)] for d in sets]
    found = [log_ratio(*pair) for pair in pairs]
    return Mean(float(np.mean([r.mean for r in found])), math.hypot(*(r.se for r in found)) / len(found))


def geometric_mean(cells: Cells, sets: Sequence[str], name: str, score: str) -> float:
    """Return the geometric mean over sets of the means over folds."""
    return math.exp(float(np.mean([math.log(_mean(cells[name, d], score)) for d in sets])))


def _mean(records: list[Record], score: str) -> float:
    return mean_of(r[score] for r in records).mean


def _percent(ratio: Mean) -> str:
    return f"{100 * math.expm1(ratio.mean):+.1f} ± {100 * math.exp(ratio.mean) * ratio.se:.1f} %"


def _table(cells: Cells, config: Config, score: str, compare: bool = True) -> str:
    sets, rows = config["sets"], []
    for candidate in config["candidates"]:
        name = candidate["name"]
        found = [cells.get((name, d)) for d in sets]
        row = [candidate["what"], *(f"{_mean(cell, score):.3f}" if cell else "" for cell in found)]
        row.append(f"{geometric_mean(cells, sets, name, score):.4f}" if all(found) else "")
        if compare:
            both = all(found) and all((CHOICE, d) in cells for d in sets) and name != CHOICE
            row.append(_percent(compared(cells, sets, (name, score), (CHOICE, score))) if both else "")
        rows.append(row)
    return markdown(["candidate", *sets, "geometric mean", *(["against the choice"] if compare else [])], rows)


def _choice_table(cells: Cells, config: Config) -> str:
    names = ("ece", "ece_calibrated", "error", "error_calibrated")
    rows = [
        [d, *(f"{_mean(cells[CHOICE, d], name):.3f}" for name in names)] for d in config["sets"] if (CHOICE, d) in cells
    ]
    return markdown(["set", "ECE", "with calibration", "error", "with calibration"], rows)


def _verdicts(cells: Cells, config: Config, done: list[dict[str, Any]]) -> list[Verdict]:
    sets = config["sets"]
    rivals = {c["name"]: c["what"] for c in done if c.get("kernel", "rbf") == "rbf" and not c.get("search", False)}
    level = {name: geometric_mean(cells, sets, name, CALIBRATED) for name in rivals}
    best = min(level, key=lambda name: level[name])
    before, after = geometric_mean(cells, sets, CHOICE, PLAIN), level[CHOICE]
    gain = compared(cells, sets, (CHOICE, CALIBRATED), (CHOICE, PLAIN))
    lower = sum(_mean(cells[CHOICE, d], CALIBRATED) < _mean(cells[CHOICE, d], PLAIN) for d in sets)
    return [
        Verdict(
            f"the choice, calibrated, is within {config['close']:.0%} of the lowest geometric mean of the candidates "
            "with an RBF kernel",
            after <= (1.0 + config["close"]) * level[best],
            f"{after:.4f}; the lowest of {len(level)} is {level[best]:.4f}, {rivals[best]}",
            is_ours=True,
        ),
        Verdict(
            "calibration lowers the geometric mean of the choice",
            gain.mean < 0.0,
            f"from {before:.4f} to {after:.4f}, {_percent(gain)}; lower on {lower} of {len(sets)} sets",
            is_ours=True,
        ),
    ]


def _draw(cells: Cells, config: Config, done: list[dict[str, Any]]) -> Any:
    """Draw the candidates relative to the calibrated choice, and the effect of calibration on every set."""
    sets, base = config["sets"], (CHOICE, CALIBRATED)
    figure = new_figure(9.2, 0.34 * max(len(done), len(sets)) + 1.3)
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1.0])
    for score, shift in ((PLAIN, -0.14), (CALIBRATED, 0.14)):
        _draw_ratios(left, [compared(cells, sets, (c["name"], score), base) for c in done], score, shift)
    _draw_ratios(right, [compared(cells, [d], base, (CHOICE, PLAIN)) for d in sets], CALIBRATED, 0.0)
    _finish(
        left, [fill(c["what"], WIDTH) for c in done], "Candidates, all sets", "NLL against the calibrated choice / %"
    )
    _finish(right, sets, "Calibration of the choice", "change of NLL / %")
    legend(figure)
    return figure


def _draw_ratios(axes: Any, ratios: list[Mean], score: str, shift: float) -> None:
    """Draw ratios in percent, with bars of two standard errors."""
    style, label, inside = MARKS[score]
    places = np.arange(len(ratios)) + shift
    low, middle, high = (100.0 * np.expm1([r.mean + k * r.se for r in ratios]) for k in (-2.0, 0.0, 2.0))
    axes.hlines(places, low, high, color=style.color, linewidth=1.0)
    axes.plot(middle, places, color=style.color, marker=style.marker, markerfacecolor=inside, markersize=5,
              linestyle="none", label=label)  # fmt: skip


def _finish(axes: Any, names: Sequence[str], title: str, label: str) -> None:
    plain(axes, "x").axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(label)
    axes.set_title(title, fontsize="medium", loc="left")
