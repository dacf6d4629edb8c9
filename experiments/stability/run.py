"""How much the NLL depends on which rows a model has learned from: random subsets of the same table."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import legend, new_figure, plain
from benchmarks.records import Record
from cavity.report.palette import ORANGE
from experiments.common import Split, grouped, markdown
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.tables.run import NAMES, OURS, score_fit, table_split


def jobs(config: Config) -> list[Job]:
    """List a fit for each table, subset and model."""
    sizes = {name: config[name] for name in ("train_rows", "test_rows", "share")}
    return [
        {"table": table, "subset": i, "model": model, "seed": 0, **sizes}
        for table, i, model in product(config["tables"], range(config["subsets"]), config["models"])
    ]


def cost(job: Job) -> float:
    """Estimate the cost: our fits take seconds."""
    return 10.0 if job["model"] == OURS else 1.0


def run(job: Job) -> Record:
    """Fit a subset of the training rows, and score the test rows."""
    return score_fit(job, _subset(job))


def _subset(job: Job) -> Split:
    from sklearn.model_selection import train_test_split

    X, y, X_test, y_test = table_split(job["table"], 0, job["train_rows"], job["test_rows"])
    kept, _ = train_test_split(np.arange(len(y)), train_size=job["share"], stratify=y, random_state=job["subset"])
    return X.iloc[kept], y[kept], X_test, y_test


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare the spread of the NLL over subsets, relative to its mean."""
    groups = grouped(records, "table", "model")
    done = [
        table
        for table in config["tables"]
        if all(len(groups.get((table, model), [])) == config["subsets"] for model in config["models"])
    ]
    text = [f"{len(done)} of {len(config['tables'])} tables have all of their fits."]
    if not done:
        return Summary(text[0], [], {})
    values = {key: np.array([r["nll"] for r in group]) for key, group in groups.items()}
    spread = {key: float(v.std(ddof=1) / v.mean()) for key, v in values.items()}
    rows = [
        [table, *(f"{values[table, m].mean():.4f} ± {100 * spread[table, m]:.1f} %" for m in config["models"])]
        for table in done
    ]
    text.append("Mean NLL over the subsets, and standard deviation relative to the mean.")
    text.append(markdown(["table", *(NAMES[model] for model in config["models"])], rows))
    others = [model for model in config["models"] if model != OURS]
    steady = [table for table in done if all(spread[table, OURS] <= spread[table, model] for model in others)]
    claim = "the NLL of random subsets spreads no more than that of logistic regression, relative to its mean"
    verdict = Verdict(claim, len(steady) == len(done), f"on {len(steady)} of {len(done)} tables", is_ours=True)
    return Summary("\n\n".join(text), [verdict], {"stability": _draw(done, values, config["models"])})


def _draw(tables: list[str], values: dict[tuple[Any, ...], NDArray[np.float64]], models: list[str]) -> Any:
    """Draw the NLL of every subset relative to the mean of its model."""
    figure = new_figure(6.0, 0.4 * max(len(tables), 4) + 1.0)
    axes = plain(figure.subplots(), "x")
    axes.axvline(1.0, color="0.6", linewidth=0.8, zorder=0)
    for k, (model, style) in enumerate(zip(models, (("*", "black"), ("v", ORANGE)), strict=True)):
        for i, table in enumerate(tables):
            x = values[table, model] / values[table, model].mean()
            axes.plot(x, np.full(len(x), i + 0.25 * (k - 0.5)), linestyle="none", marker=style[0], color=style[1],
                      markersize=5.0, label=NAMES[model] if i == 0 else "_more")  # fmt: skip
    axes.set_yticks(range(len(tables)), tables)
    axes.set_ylim(len(tables) - 0.5, -0.5)
    axes.set_xlabel("NLL of a subset relative to the mean of its model")
    legend(figure, 2)
    return figure
