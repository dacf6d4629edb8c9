"""The choices of the search for small tables, one at a time: kernel, inputs, objective, priors, rows, precision."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.figures import new_figure, plain
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.fitting import search
from cavity.report.palette import BLUE
from experiments.common import DIGITS, Mean, Split, grouped, markdown, mean_of, percent_of_log, scored_fit
from experiments.defaults.run import fold
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.search.longer import longer
from experiments.search.warps import inputs
from experiments.tables.run import table_split

DEFAULT = "default"
FOLD = "fold of "  # precedes the names of the paper's sets: no test row of theirs is used
ARGUMENTS = ("kernel", "n_inducing", "scaling")  # of the classifier
CONSTANTS = (
    "EVIDENCE_ROWS",
    "MOST_EVIDENCE",
    "LEARN_ROWS",
    "START_ROWS",
    "STEPS",
    "FINAL_STEPS",
    "ROUGHNESS",
)  # of cavity.fitting.search
SECONDS = {
    "fold of vowel": 3.0, "fold of vehicle": 3.0,
    "soybean": 5.0, "page_blocks": 4.0, "car": 3.0, "splice": 3.0,
}  # relative to the others  # fmt: skip


def jobs(config: Config) -> list[Job]:
    """List a fit for each candidate and each split of a table, and for each map of columns of numbers."""
    rows = [config["train_rows"], config["test_rows"]]
    cells = [*product(config["tables"], config["splits"], config["candidates"].items())]
    maps = [(DEFAULT, {}), *config["inputs"].items()]
    cells += [cell for cell in product(config["input_tables"], config["input_splits"], maps) if cell not in cells]
    return [
        {"table": table, "split": i, "candidate": name, "changes": changes, "seed": i, "rows": rows}
        for table, i, (name, changes) in cells
    ]


def cost(job: Job) -> float:
    """Estimate the cost relative to a usual fit."""
    return SECONDS.get(job["table"], 1.0)


def run(job: Job) -> Record:
    """Fit the table, or the training rows of a fold of one of the paper's sets, with one choice changed."""
    table, number = job["table"], job["split"]
    if table.startswith(FOLD):
        rows = fold(table.removeprefix(FOLD), number, "authors")
    else:
        rows = table_split(table, number, *job["rows"])
    return fit_changed(job["changes"], job["seed"], rows)


def fit_changed(changes: dict[str, Any], seed: int, rows: Split) -> Record:
    """Fit and score our defaults with these changes of arguments and constants."""
    arguments = {name: value for name, value in changes.items() if name in ARGUMENTS}
    kernels = [name or None for name in changes.get("kernels", [])] or [arguments.pop("kernel", None)]
    maps, more = (changes.get(f"{which}_inputs", []) for which in ("more", "fewer")), changes.get("more_steps", [0, 0])
    with _changed(changes), inputs(*maps), longer(*more):
        fits = [GPClassifier(kernel=k, random_state=seed, device="cpu", **arguments) for k in kernels]
        model: Any = fits[0] if len(fits) == 1 else _Mean(fits)
        found = scored_fit(model, rows)
    return found | {"sharpness": round(model.sharpness_, DIGITS)}


class _Mean:
    """The mean of the probabilities of several classifiers; everything else is that of the first."""

    def __init__(self, fits: Sequence[GPClassifier]) -> None:
        self._fits = fits

    def fit(self, X: Any, y: Any) -> None:
        for one in self._fits:
            one.fit(X, y)

    def predict_log_proba(self, X: Any) -> Any:
        return np.log(np.mean([one.predict_proba(X) for one in self._fits], axis=0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fits[0], name)


@contextmanager
def _changed(changes: dict[str, Any]) -> Iterator[None]:
    """Change the constants of the search for a while."""
    values = {name: value for name, value in changes.items() if name in CONSTANTS}
    values |= {"DTYPE": getattr(torch, changes["DTYPE"])} if "DTYPE" in changes else {}
    values |= {"PRIORS": {**search.PRIORS, "relevance": changes["relevance"]}} if "relevance" in changes else {}
    if not values:
        yield
        return
    with patch.multiple(search, **values):
        yield


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare the candidates with the default on the tables that have all of their fits."""
    by = {key: group[0] for key, group in grouped(records, "table", "split", "candidate").items()}
    names = list(config["candidates"])
    done = [
        (table, i)
        for table in config["tables"]
        for i in config["splits"]
        if all((table, i, name) in by for name in names)
    ]
    text = [f"{len(by)} of {len(jobs(config))} fits; {len(done)} tables have all of theirs."]
    if not done:
        return Summary("\n\n".join(text), [], {})
    ratios = {name: mean_of(math.log(by[*at, name]["nll"] / by[*at, DEFAULT]["nll"]) for at in done) for name in names}
    rows = [
        [
            name,
            "" if name == DEFAULT else percent_of_log(ratios[name]),
            str(sum(by[*at, name]["nll"] < by[*at, DEFAULT]["nll"] for at in done)) if name != DEFAULT else "",
            f"{mean_of(abs(math.log(by[*at, name]['sharpness'])) for at in done).mean:.2f}",
            f"{sum(by[*at, name]['cpu_seconds'] for at in done):.0f}",
        ]
        for name in names
    ]
    head = [
        "candidate",
        "NLL, geometric mean",
        "tables that are better",
        "mean of abs(log sharpness)",
        "processor seconds of all fits",
    ]
    text.append(markdown(head, rows))
    text.append("NLL of each candidate on each table.")
    text.append(
        markdown(["table", *names], [[at[0], *(f"{by[*at, name]['nll']:.4f}" for name in names)] for at in done])
    )
    best = min((name for name in names if name != DEFAULT), key=lambda name: ratios[name].mean)
    claim = (
        f"no other choice is better than the default by more than {config['margin']:.0%} (geometric mean of the NLL)"
    )
    n_all = len(config["tables"]) * len(config["splits"])
    claim += f" (preliminary: {len(done)} of {n_all} tables)" if len(done) < n_all else ""
    holds = ratios[best].mean > -config["margin"]
    verdict = Verdict(claim, holds, f"{best}: {percent_of_log(ratios[best])}", is_ours=True)
    about_inputs, of_inputs = _compare_inputs(by, config)
    return Summary("\n\n".join([*text, *about_inputs]), [verdict, *of_inputs], {"search": _draw(ratios)})


def _compare_inputs(by: dict[tuple[Any, ...], Record], config: Config) -> tuple[list[str], list[Verdict]]:
    """Compare maps of the columns of numbers with those of the default, on all splits of each table."""
    names, splits = list(config["inputs"]), config["input_splits"]
    done = [
        table
        for table in config["input_tables"]
        if all((table, i, name) in by for i in splits for name in (DEFAULT, *names))
    ]
    of = f"{len(done)} of {len(config['input_tables'])} tables with columns of numbers"
    text = ["### Maps of columns of numbers", f"{of} have all of their fits, on {len(splits)} splits each."]
    if not done:
        return text, []

    def change(table: str, name: str) -> float:
        return mean_of(math.log(by[table, i, name]["nll"] / by[table, i, DEFAULT]["nll"]) for i in splits).mean

    def seconds(name: str) -> float:
        return float(sum(by[*at, name]["cpu_seconds"] for at in fits))

    ratios = {name: mean_of(change(table, name) for table in done) for name in names}
    fits = [(table, i) for table in done for i in splits]
    rows = [
        [
            name,
            percent_of_log(ratios[name]),
            str(sum(change(table, name) < 0.0 for table in done)),
            str(sum(by[*at, name]["nll"] < by[*at, DEFAULT]["nll"] for at in fits)),
            str(sum(by[*at, name]["nll"] > by[*at, DEFAULT]["nll"] for at in fits)),
            f"{seconds(name) / seconds(DEFAULT):.2f}",
        ]
        for name in names
    ]
    head = ["maps", "NLL, geometric mean", "tables that are better", "fits that are better", "that are worse", "time"]
    n_others = len(set(config["tables"]) - set(config["input_tables"]))
    over_all = {name: mean_of([*(change(table, name) for table in done), *[0.0] * n_others]) for name in names}
    shown = ", ".join(f"{name} {percent_of_log(ratio)}" for name, ratio in over_all.items())
    text += [
        markdown(head, rows),
        f"With the {n_others} tables without such columns, where nothing changes: {shown}.",
        "NLL of each, mean over the splits.",
    ]
    means = {
        (table, name): mean_of(by[table, i, name]["nll"] for i in splits).mean
        for table in done
        for name in (DEFAULT, *names)
    }
    each = [[table, *(f"{means[table, name]:.4f}" for name in (DEFAULT, *names))] for table in done]
    text.append(markdown(["table", DEFAULT, *names], each))
    best = min(names, key=lambda name: ratios[name].mean)
    claim = f"no learned map of columns lowers the NLL by more than {config['margin']:.0%} (geometric mean)"
    claim += f" (preliminary: {of})" if len(done) < len(config["input_tables"]) else ""
    holds = ratios[best].mean > -config["margin"]
    return text, [Verdict(claim, holds, f"{best}: {percent_of_log(ratios[best])}", is_ours=True)]


def _draw(ratios: dict[str, Mean]) -> Any:
    """Draw the geometric mean of the NLL of each candidate relative to the default, with its standard error."""
    names = [name for name in ratios if name != DEFAULT]
    figure = new_figure(6.0, 0.26 * max(len(names), 4) + 0.9)
    axes = plain(figure.subplots(), "x")
    axes.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    x, error = ([100.0 * getattr(ratios[name], part) for name in names] for part in ("mean", "se"))
    axes.errorbar(x, range(len(names)), xerr=error, fmt="o", color=BLUE, markersize=4.0, elinewidth=1.0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("change of the NLL in percent; left is better")
    return figure
