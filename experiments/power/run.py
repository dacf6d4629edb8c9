"""Power EP: does a power below 1 predict better, without and with calibration?"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import STYLES, legend, new_figure, plain
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.metrics import scores
from experiments.common import DIGITS, Mean, grouped, markdown, mean_of, percent_of_log, scored_fit
from experiments.defaults.run import fold
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.tables.run import table_split

PLAIN, CALIBRATED = "nll", "nll_calibrated"
SCORES = {PLAIN: "without calibration", CALIBRATED: "with calibration"}
POWER_COST = 3.0  # of a fit by quadrature, relative to one by EP
SECONDS = {"satellite": 10.0, "soybean": 5.0, "vehicle": 2.0, "vowel": 2.0}  # relative to the others

Means = dict[tuple[str, float], dict[str, float]]  # of a data set with an alpha: its scores


def jobs(config: Config) -> list[Job]:
    """List a fit for each alpha and each fold of a UCI set or split of a table."""
    folds = [(name, i) for name in config["sets"] for i in range(config["folds_of"].get(name, config["folds"]))]
    rows = [
        *({"data_set": name, "fold": i, "splits": config["splits"], "rows": None} for name, i in folds),
        *(
            {"data_set": name, "fold": i, "splits": "table", "rows": [config["train_rows"], config["test_rows"]]}
            for name in config["tables"]
            for i in config["table_splits"]
        ),
    ]
    return [
        {**row, "alpha": a, "seed": row["fold"], "settings": config["settings"]}
        for row in rows
        for a in config["alphas"]
    ]


def cost(job: Job) -> float:
    """Estimate the cost relative to a usual fit of EP."""
    return SECONDS.get(job["data_set"], 1.0) * (1.0 if job["alpha"] == 1.0 else POWER_COST)


def run(job: Job) -> Record:
    """Make one calibrated fit and score it twice: without its calibration and with it."""
    name, number = job["data_set"], job["fold"]
    rows = table_split(name, number, *job["rows"]) if job["rows"] else fold(name, number, job["splits"])
    model = GPClassifier(alpha=job["alpha"], random_state=job["seed"], device="cpu", **job["settings"])
    found = scored_fit(model, rows)
    uncalibrated = copy(model)
    uncalibrated.posterior_ = replace(model.posterior_, sharpness=1.0)
    without = scores(rows[3], uncalibrated.predict_log_proba(rows[2]), model.classes_)._asdict()
    calibrated = {f"{score}_calibrated": found[score] for score in without}
    rounded = {score: round(value, DIGITS) for score, value in without.items()}
    return found | rounded | calibrated | {"sharpness": round(model.sharpness_, DIGITS)}


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare the alphas on every data set that has all of its fits."""
    wanted, names = jobs(config), [*config["sets"], *config["tables"]]
    means: Means = {}
    for (name, alpha), group in grouped(records, "data_set", "alpha").items():
        if len(group) == sum((job["data_set"], job["alpha"]) == (name, alpha) for job in wanted):
            fields = (*SCORES, "sharpness", "cpu_seconds")
            means[name, alpha] = {field: mean_of(r[field] for r in group).mean for field in fields}
    done = [name for name in names if all((name, alpha) in means for alpha in config["alphas"])]
    text = [f"{len(records)} of {len(wanted)} fits; {len(done)} of {len(names)} data sets have all of theirs."]
    verdicts = []
    below = [alpha for alpha in config["alphas"] if alpha < 1.0]
    for score, what in SCORES.items():
        text += [f"### NLL {what}", _table(means, done, config["alphas"], score, "{:.4f}")]
        if not done:
            continue
        ratios = {alpha: _ratio(means, done, alpha, score) for alpha in below}
        shown = ", ".join(f"α = {alpha:g}: {percent_of_log(ratio)}" for alpha, ratio in ratios.items())
        text.append(f"Geometric mean over data sets, against that of α = 1: {shown}.")
        best = min(ratios.values(), key=lambda ratio: ratio.mean)
        claim = f"a power below 1 lowers the geometric mean of the NLL by more than two standard errors, {what}"
        claim += f" (preliminary: {len(done)} of {len(names)} data sets)" if len(done) < len(names) else ""
        holds = len(done) > 1 and best.mean < -2.0 * best.se
        verdicts.append(Verdict(claim, holds, shown, is_ours=True))
    text += ["### Sharpness", _table(means, done, config["alphas"], "sharpness", "{:.2f}")]
    text += ["### Processor seconds", _table(means, done, config["alphas"], "cpu_seconds", "{:.1f}")]
    return Summary("\n\n".join(text), verdicts, {"power": _draw(means, done, below)} if done else {})


def _table(means: Means, names: list[str], alphas: list[float], score: str, form: str) -> str:
    rows = [[name, *(form.format(means[name, alpha][score]) for alpha in alphas)] for name in names]
    return markdown(["data set", *(f"α = {alpha:g}" for alpha in alphas)], rows)


def _ratio(means: Means, names: list[str], alpha: float, score: str) -> Mean:
    """Return the log of the ratio of geometric means to that of α = 1, and its standard error over data sets."""
    return mean_of(math.log(means[name, alpha][score] / means[name, 1.0][score]) for name in names)


def _draw(means: Means, names: list[str], alphas: list[float]) -> Any:
    """Draw the NLL of each data set relative to α = 1, one panel for each power."""
    figure = new_figure(3.2 + 2.6 * len(alphas), 0.24 * max(len(names), 4) + 1.3)
    for axes, alpha in zip(figure.subplots(1, len(alphas), sharey=True, squeeze=False)[0], alphas, strict=True):
        plain(axes, "x").axvline(1.0, color="0.6", linewidth=0.8, zorder=0)
        for score, style, face in ((PLAIN, STYLES["ep"], "white"), (CALIBRATED, STYLES["sep"], None)):
            ratios = [means[name, alpha][score] / means[name, 1.0][score] for name in names]
            axes.plot(ratios, np.arange(len(names)), color=style.color, marker=style.marker, markerfacecolor=face,
                      markersize=5, linestyle="none", label=SCORES[score])  # fmt: skip
        axes.set_xlabel("NLL relative to α = 1")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_title(f"α = {alpha:g}", fontsize="medium", loc="left")
    legend(figure)
    return figure
