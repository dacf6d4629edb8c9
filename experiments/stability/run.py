"""How much the NLL depends on which rows a model has learned from: random subsets of the same table."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import legend, new_figure, plain
from benchmarks.records import Record
from cavity import GPClassifier
from cavity.fitting.search import NOISE
from cavity.metrics import scores
from cavity.report.palette import BLUE, ORANGE, VERMILION
from experiments.common import DIGITS, Split, grouped, markdown
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.search.run import fit_changed
from experiments.tables.run import CATBOOST, NAMES, OURS, score_fit, table_split

STEADY, FIXED = "logreg", "fixed"
MAX_SECONDS = 120.0  # of a fit of CatBoost: more than it needs
STYLES = {OURS: ("*", "black"), FIXED: ("*", BLUE), STEADY: ("v", ORANGE), CATBOOST: ("o", VERMILION)}


def jobs(config: Config) -> list[Job]:
    """List a fit for each table, subset and model; changed versions of our defaults are models too."""
    sizes = {name: config[name] for name in ("train_rows", "test_rows", "share")}
    changes = config["changed"]
    return [
        {"table": table, "subset": i, "model": model, "seed": 0, "changes": changes.get(model), **sizes}
        for table, i, model in product(config["tables"], range(config["subsets"]), [*config["models"], *changes])
    ]


def cost(job: Job) -> float:
    """Estimate the cost: our fits take seconds, and many more where all rows are inducing points of plain EP."""
    return {STEADY: 1.0, FIXED: 40.0}.get(job["model"], 10.0)


def run(job: Job) -> Record:
    """Fit a subset of the training rows, and score the test rows."""
    rows = _subset(job)
    if job["changes"] is not None:
        return fit_changed(job["changes"], job["seed"], rows)
    if job["model"] == FIXED:
        return _fit_fixed(job, rows)
    return score_fit(job | {"max_seconds": MAX_SECONDS}, rows)


def _subset(job: Job) -> Split:
    from sklearn.model_selection import train_test_split

    X, y, X_test, y_test = table_split(job["table"], 0, job["train_rows"], job["test_rows"])
    kept, _ = train_test_split(np.arange(len(y)), train_size=job["share"], stratify=y, random_state=job["subset"])
    return X.iloc[kept], y[kept], X_test, y_test


def _fit_fixed(job: Job, rows: Split) -> Record:
    """Infer from the subset only; encoding, kernel and sharpness are those of all training rows."""
    found = _on_all_rows(job["table"], job["train_rows"], job["test_rows"], job["seed"])
    prior, (X, y, X_test, y_test) = found.posterior_.prior, rows
    kernel = prior.kernel.fitted(prior.params)
    model = GPClassifier(
        "ep",
        kernel=kernel,
        noise=NOISE,
        n_inducing=1.0,
        learn_kernel=False,
        learn_inducing=False,
        scaling=None,
        calibrate=False,
        random_state=job["seed"],
        device="cpu",
    )
    model.fit(_features(found, X), y)
    model.posterior_ = replace(model.posterior_, sharpness=found.sharpness_)
    scored = scores(y_test, model.predict_log_proba(_features(found, X_test)), model.classes_)
    return {name: round(value, DIGITS) for name, value in scored._asdict().items()}


@cache
def _on_all_rows(table: str, train_rows: int, test_rows: int, seed: int) -> GPClassifier:
    X, y, _, _ = table_split(table, 0, train_rows, test_rows)
    return GPClassifier(random_state=seed, device="cpu").fit(X, y)


def _features(model: GPClassifier, X: Any) -> NDArray[np.float64]:
    """Return the features that a fitted classifier sees."""
    return model._encoding.transform(X.to_numpy(float) if model._schema is None else model._schema.read(X, "X"))


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare the spread of the NLL over subsets, relative to its mean."""
    groups, models = grouped(records, "table", "model"), [*config["models"], *config["changed"]]
    done = [
        table
        for table in config["tables"]
        if all(len(groups.get((table, model), [])) == config["subsets"] for model in models)
    ]
    text = [f"{len(done)} of {len(config['tables'])} tables have all of their fits."]
    if not done:
        return Summary(text[0], [], {})
    values = {key: np.array([r["nll"] for r in group]) for key, group in groups.items()}
    spread = {key: float(v.std(ddof=1) / v.mean()) for key, v in values.items()}
    rows = [
        [table, *(f"{values[table, m].mean():.4f} ± {100 * spread[table, m]:.1f} %" for m in models)] for table in done
    ]
    text.append("Mean NLL over the subsets, and standard deviation relative to the mean.")
    text.append(markdown(["table", *(_name(model) for model in models)], rows))
    verdicts = []
    claim = "the NLL of random subsets spreads no more than that of {}, relative to its mean"
    for rival in (model for model in (STEADY, CATBOOST) if model in models):
        steady = [table for table in done if spread[table, OURS] <= spread[table, rival]]
        evidence = f"on {len(steady)} of {len(done)} tables"
        verdicts.append(Verdict(claim.format(NAMES[rival]), len(steady) == len(done), evidence, is_ours=True))
    drawn = [model for model in STYLES if model in models]
    return Summary("\n\n".join(text), verdicts, {"stability": _draw(done, values, drawn)})


def _name(model: str) -> str:
    return {FIXED: "cavity, kernel of all rows"}.get(model) or NAMES.get(model, f"cavity, {model}")


def _draw(tables: list[str], values: dict[tuple[Any, ...], NDArray[np.float64]], models: list[str]) -> Any:
    """Draw the NLL of every subset relative to the mean of its model."""
    figure = new_figure(6.0, 0.6 * max(len(tables), 4) + 1.2)
    axes = plain(figure.subplots(), "x")
    axes.axvline(1.0, color="0.6", linewidth=0.8, zorder=0)
    for k, model in enumerate(models):
        marker, color = STYLES[model]
        for i, table in enumerate(tables):
            x = values[table, model] / values[table, model].mean()
            height = i + 0.2 * (k - 0.5 * (len(models) - 1))
            axes.plot(x, np.full(len(x), height), linestyle="none", marker=marker, color=color,
                      markersize=5.0, label=_name(model) if i == 0 else "_more")  # fmt: skip
    axes.set_yticks(range(len(tables)), tables)
    axes.set_ylim(len(tables) - 0.5, -0.5)
    axes.set_xlabel("NLL of a subset relative to the mean of its model")
    legend(figure, 2)
    return figure
