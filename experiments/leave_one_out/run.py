"""The leave-one-out log density as the objective of SEP's hyper-parameters, alone and mixed with log Z."""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.figures import STYLES, legend, new_figure, plain
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.inference import METHODS
from cavity.metrics import scores
from experiments.common import DIGITS, Mean, grouped, markdown, mean_of, percent_of_log, scored_fit
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.leave_one_out.objective import PredictiveSEP
from experiments.medium.run import rows_of

LOG_Z = "log Z"
PLAIN, CALIBRATED = "nll_uncalibrated", "nll"
SCORES = {PLAIN: "without calibration", CALIBRATED: "with calibration"}
SIZES = {"larger": "more than 2,000 rows, in mini-batches", "small": "at most 1,000 rows, all at once"}
SECONDS = {"larger": 3.0, "small": 1.0}

Cells = dict[tuple[str, int, str], Record]  # by table, split and objective


def jobs(config: Config) -> list[Job]:
    """List a fit for each table, split and objective."""
    return [
        {"size": size, "table": table, "split": k, "objective": name, "changes": changes, "seed": k,
         "rows": [config["train_rows"][size], config["test_rows"]], "settings": config["settings"][size]}
        for size, tables in config["tables"].items()
        for table in tables
        for k in config["splits"][size]
        for name, changes in _objectives(config, size).items()
    ]  # fmt: skip


def _objectives(config: Config, size: str) -> dict[str, Any]:
    """Return the objectives that tables of this size are fitted with."""
    return {name: changes for name, changes in config["objectives"].items() if name not in config["without"][size]}


def cost(job: Job) -> float:
    """Estimate the cost relative to that of a small table."""
    return SECONDS[job["size"]]


def run(job: Job) -> Record:
    """Make one calibrated fit and score it twice: with its calibration and without."""
    rows, changes = rows_of(job["table"], job["split"], *job["rows"]), job["changes"]
    model = GPClassifier(random_state=job["seed"], device="cpu", **job["settings"])
    with patch.dict(METHODS, {"sep": partial(PredictiveSEP, **changes)} if changes else {}):
        found = scored_fit(model, rows)
    uncalibrated = copy(model)
    uncalibrated.posterior_ = replace(model.posterior_, sharpness=1.0)
    without = scores(rows[3], uncalibrated.predict_log_proba(rows[2]), model.classes_)
    return found | {PLAIN: round(without.nll, DIGITS), "sharpness": round(model.sharpness_, DIGITS)}


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare the objectives with log Z on the tables that have all of their fits, larger and small ones apart."""
    text, verdicts, ratios = [], [], {}
    for size, tables in config["tables"].items():
        names = list(_objectives(config, size))
        of_size = grouped((r for r in records if r["size"] == size), "table", "split", "objective")
        cells = {(str(key[0]), int(key[1]), str(key[2])): group[0] for key, group in of_size.items()}
        wanted = [(table, k) for table in tables for k in config["splits"][size]]
        done = [at for at in wanted if all((*at, name) in cells for name in names)]
        text += [f"### Tables of {SIZES[size]}", f"{len(done)} of {len(wanted)} tables have all of their fits."]
        if not done:
            continue
        ratios[size] = {(name, score): _ratio(cells, done, name, score) for name in names for score in SCORES}
        text += [_comparison(cells, done, names, ratios[size]), "NLL with calibration.", _each(cells, done, names)]
        others = [name for name in names if name != LOG_Z]
        best = min(others, key=lambda name: ratios[size][name, CALIBRATED].mean)
        claim = f"no other objective is better than log Z by more than {config['margin']:.0%} on {size} tables"
        claim += f" (preliminary: {len(done)} of {len(wanted)})" if len(done) < len(wanted) else ""
        found = ratios[size][best, CALIBRATED]
        evidence = f"{best}: {percent_of_log(found)}"
        verdicts.append(Verdict(claim, found.mean > -config["margin"], evidence, is_ours=True))
    return Summary("\n\n".join(text), verdicts, {"leave-one-out": _draw(ratios, config)} if ratios else {})


def _ratio(cells: Cells, done: list[tuple[str, int]], name: str, score: str) -> Mean:
    """Return the log of the ratio of NLL to that of log Z, and its standard error over tables."""
    return mean_of(math.log(cells[*at, name][score] / cells[*at, LOG_Z][score]) for at in done)


def _comparison(cells: Cells, done: list[tuple[str, int]], names: list[str], ratio: dict[tuple[str, str], Mean]) -> str:
    def of(name: str, field: str) -> Iterable[float]:
        return (cells[*at, name][field] for at in done)

    rows = [
        [
            name,
            *("" if name == LOG_Z else percent_of_log(ratio[name, score]) for score in SCORES),
            f"{mean_of(abs(math.log(x)) for x in of(name, 'sharpness')).mean:.2f}",
            f"{sum(of(name, 'cpu_seconds')):.0f}",
        ]
        for name in names
    ]
    head = [f"NLL {what}, against log Z" for what in SCORES.values()]
    return markdown(["objective", *head, "mean of abs(log sharpness)", "processor seconds"], rows)


def _each(cells: Cells, done: list[tuple[str, int]], names: list[str]) -> str:
    rows = [
        [table if not k else f"{table}, split {k}", *(f"{cells[table, k, name][CALIBRATED]:.4f}" for name in names)]
        for table, k in done
    ]
    return markdown(["table", *names], rows)


def _draw(ratios: dict[str, dict[tuple[str, str], Mean]], config: Config) -> Any:
    """Draw the NLL of each objective relative to log Z, a panel for each size, with bars of one standard error."""
    others = [name for name in config["objectives"] if name != LOG_Z]
    figure = new_figure(3.2 + 2.6 * len(ratios), 0.4 * max(len(others), 3) + 1.3)
    panels = figure.subplots(1, len(ratios), sharey=True, squeeze=False)[0]
    for axes, (size, of_size) in zip(panels, ratios.items(), strict=True):
        plain(axes, "x").axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
        for (score, what), style, face, shift in zip(
            SCORES.items(), (STYLES["ep"], STYLES["sep"]), ("white", None), (-0.12, 0.12), strict=True
        ):
            places = [i for i, name in enumerate(others) if (name, score) in of_size]
            found = [of_size[others[i], score] for i in places]
            heights = np.array(places) + shift
            low, middle, high = (100.0 * np.expm1([r.mean + k * r.se for r in found]) for k in (-1.0, 0.0, 1.0))
            axes.hlines(heights, low, high, color=style.color, linewidth=1.0)
            axes.plot(middle, heights, color=style.color, marker=style.marker, markerfacecolor=face, markersize=5,
                      linestyle="none", label=what)  # fmt: skip
        axes.set_yticks(range(len(others)), others)
        axes.set_ylim(len(others) - 0.5, -0.5)
        axes.set_xlabel("change of the NLL in percent; left is better")
        axes.set_title(f"{size} tables", fontsize="medium", loc="left")
    legend(figure)
    return figure
