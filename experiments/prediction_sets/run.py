"""Prediction sets: their coverage, of all rows and of parts of them, and their size, beside two rivals."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import legend, new_figure, plain
from benchmarks.records import Record
from cavity import GPClassifier
from cavity.datasets import load
from cavity.fitting.conformal import CONDITIONS, HeldOutScores
from cavity.report.palette import ORANGE, VERMILION
from experiments.common import Split, grouped, markdown, mean_of
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.tables.run import CATBOOST, NAMES, OURS, SMALLEST, _model, table_split

Array = NDArray[np.float64]

PAPER = ("vehicle", "vowel", "glass", "satellite", "svmguide2")
MAX_SECONDS = 120.0  # of a fit of CatBoost: more than it needs
MOST_ERRORS = 1.5  # standard errors between the coverage and what was asked for
MOST_OFF = 0.03  # of the coverage of a class
FEW = 20  # rows with sets of a size, below which their coverage says little
STYLES = {OURS: ("*", "black"), CATBOOST: ("o", VERMILION), "logreg": ("v", ORANGE)}
DIGITS = 5


def jobs(config: Config) -> list[Job]:
    """List a fit for each set of rows, split and model."""
    names = ("train_rows", "test_rows", "folds", "coverages", "least_of_class", "directions", "least_of_slab")
    return [
        {"set": name, "split": k, "model": model, "seed": 0, **{n: config[n] for n in names}}
        for name, k, model in product(config["sets"], range(config["splits"]), config["models"])
    ]


def cost(job: Job) -> float:
    """Estimate the cost: the rivals are fitted several times."""
    return {OURS: 4.0, CATBOOST: 8.0}.get(job["model"], 1.0)


def run(job: Job) -> Record:
    """Fit the training rows of a split, and count how often sets have the label of the test rows."""
    X, y, X_test, y_test = rows = _split(job)
    classes, codes = np.unique(y, return_inverse=True)
    model, prepare = _model(job | {"max_seconds": MAX_SECONDS}, X)
    model.fit(prepare(X), y)
    log_p = _log_p(model, prepare(X_test))
    held_out = model._held_out if job["model"] == OURS else _cross_validated(job, X, y, codes)
    places = np.searchsorted(classes, y_test)
    found: Record = {"error": round(float((log_p.argmax(1) != places).mean()), DIGITS), "rows": len(places)}
    slabs = _slabs(_features(rows), job)
    is_large = np.bincount(codes)[places] >= job["least_of_class"]
    for coverage, condition in product(job["coverages"], CONDITIONS):
        name = f"{coverage}, {condition}"
        exact = held_out.rule(coverage, len(classes), condition, allow_empty=True).sets(log_p)
        sets = held_out.rule(coverage, len(classes), condition).sets(log_p)
        is_in, size = sets[np.arange(len(places)), places], sets.sum(1)
        of_size = [is_in[size == n].mean() for n in np.unique(size) if (size == n).sum() >= FEW]
        by_class = {int(k): float(is_in[places == k].mean()) for k in np.unique(places[is_large])}
        found |= {
            f"coverage, {name}": round(float(is_in.mean()), DIGITS),
            f"exact, {name}": round(float(exact[np.arange(len(places)), places].mean()), DIGITS),
            f"size, {name}": round(float(size.mean()), DIGITS),
            f"by size, {name}": round(float(min(of_size, default=is_in.mean())), DIGITS),
            f"slab, {name}": round(_worst_slab(is_in, slabs), DIGITS),
            f"classes, {name}": {str(classes[k]): round(value, DIGITS) for k, value in by_class.items()},
        }
    return found


def _split(job: Job) -> Split:
    """Return training and test rows as frames; the paper's sets are split as the tables are."""
    if job["set"] not in PAPER:
        return table_split(job["set"], 100 + job["split"], job["train_rows"], job["test_rows"])  # others chose defaults
    import pandas as pd
    from sklearn.model_selection import train_test_split

    data = load(job["set"])
    n = len(data.y)
    k = min(job["train_rows"], round(2 * n / 3))
    sizes = {"train_size": k, "test_size": min(job["test_rows"], n - k)}
    train, test = train_test_split(np.arange(n), **sizes, stratify=data.y, random_state=100 + job["split"])
    frame, y = pd.DataFrame(data.X).rename(columns=str), np.asarray(data.y).astype(str)
    return frame.iloc[train], y[train], frame.iloc[test], y[test]


def _log_p(model: Any, X: Any) -> Array:
    if isinstance(model, GPClassifier):
        return model.predict_log_proba(X)
    return np.asarray(np.log(np.clip(model.predict_proba(X), SMALLEST, 1.0)))


def _cross_validated(job: Job, X: Any, y: NDArray[Any], codes: NDArray[np.int64]) -> HeldOutScores:
    """Score the labels of all training rows by fits to the other folds."""
    from sklearn.model_selection import StratifiedKFold

    counts = np.bincount(codes)
    log_p = np.full((len(y), len(counts)), np.log(SMALLEST))
    folds = StratifiedKFold(min(job["folds"], max(2, int(counts.min()))), shuffle=True, random_state=job["seed"])
    for learn, hold in folds.split(X, y):
        model, prepare = _model(job | {"max_seconds": MAX_SECONDS}, X.iloc[learn])
        model.fit(prepare(X.iloc[learn]), y[learn])
        seen = np.unique(codes[learn])
        log_p[np.ix_(hold, seen)] = _log_p(model, prepare(X.iloc[hold]))
    return HeldOutScores.of_labels(log_p, codes, np.ones(len(y)))


def _features(rows: Split) -> Array:
    """Return standardized numbers and indicators of levels of the test rows: the same for all models."""
    import pandas as pd

    frame = pd.get_dummies(rows[2], dummy_na=True, dtype=float)
    X = frame.fillna(frame.median()).to_numpy(float)
    X = X[:, X.std(0) > 0]
    return np.asarray((X - X.mean(0)) / X.std(0))


def _slabs(X: Array, job: Job) -> tuple[NDArray[np.int64], int]:
    """Return the order of the rows along random directions, and how many rows a slab has at least."""
    rng = np.random.default_rng(job["split"])
    directions = rng.standard_normal((X.shape[1], job["directions"]))
    return np.argsort(X @ directions, axis=0, kind="stable").T, max(1, int(job["least_of_slab"] * len(X) / 2))


def _worst_slab(is_in: NDArray[np.bool_], slabs: tuple[NDArray[np.int64], int]) -> float:
    """Return the coverage in the worst slab: found on every other row, measured on the rest.

    A slab is the rows between two values along a direction (Cauchois, Gupta and Duchi, 2021). The worst of at least n
    rows has less than 2n: otherwise one of its halves is as bad.
    """
    order, least = slabs
    half = np.arange(order.shape[1]) % 2 == 0  # rows are in random order
    worst, measured = np.inf, 1.0
    for places in order:
        of_search = half[places]
        search = np.flatnonzero(of_search)  # places along the direction
        total = np.concatenate([[0.0], np.cumsum(is_in[places[search]])])
        for length in range(least, min(2 * least, len(search) + 1)):
            mean = (total[length:] - total[:-length]) / length
            i = int(mean.argmin())
            if mean[i] < worst:
                inside = slice(search[i], search[i + length - 1] + 1)
                rest = places[inside][~of_search[inside]]
                worst, measured = float(mean[i]), float(is_in[rest].mean()) if len(rest) else measured
    return measured


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare coverages with what was asked for, and the models with each other."""
    groups = grouped(records, "set", "model")
    done = [
        name
        for name in config["sets"]
        if all(len(groups.get((name, model), [])) == config["splits"] for model in config["models"])
    ]
    text = [f"{len(done)} of {len(config['sets'])} sets have all of their fits."]
    if not done:
        return Summary(text[0], [], {})
    ours = [r for r in records if r["model"] == OURS and r["set"] in done]
    text += ["### Coverage of our sets", _coverage_table(ours, done, config)]
    verdicts = [_marginal_verdict(ours, done, config), _class_verdict(ours, done, config)]
    text += ["### Beside the rivals", _rival_table(groups, done, config)]
    verdicts += [_rival_verdict(groups, done, config, rival) for rival in config["models"] if rival != OURS]
    return Summary("\n\n".join(text), verdicts, {"prediction-sets": _draw(groups, done, config)})


def _coverage_table(ours: list[Record], done: list[str], config: Config) -> str:
    rows = []
    for name in done:
        own = [r for r in ours if r["set"] == name]
        cells = [str(mean_of(r[f"exact, {c}, None"] for r in own)) for c in config["coverages"]]
        rows.append([name, f"{np.mean([r['error'] for r in own]):.3f}", *cells])
    header = ["set", "error", *(f"{100 * c:g} %" for c in config["coverages"])]
    about = (
        "Share of the test rows whose label is in the set, if sets may be empty: means over splits, standard errors."
    )
    return about + "\n\n" + markdown(header, rows)


def _marginal_verdict(ours: list[Record], done: list[str], config: Config) -> Verdict:
    """Judge the mean over all sets and splits at each level; its standard error is that of the sets' means."""
    evidence, holds = [], True
    for c in config["coverages"]:
        found = mean_of(np.mean([r[f"exact, {c}, None"] for r in ours if r["set"] == name]) for name in done)
        holds = holds and bool(abs(found.mean - c) <= MOST_ERRORS * found.se)
        evidence.append(f"{100 * c:g} %: {100 * found.mean:.2f} ± {100 * found.se:.2f} %")
    claim = f"the mean coverage is within {MOST_ERRORS} standard errors of what was asked for, sets may be empty"
    return Verdict(claim, holds, "; ".join(evidence), is_ours=True)


def _class_verdict(ours: list[Record], done: list[str], config: Config) -> Verdict:
    off, total, worst = 0, 0, 0.0
    for name, c in product(done, config["coverages"]):
        own = [r[f"classes, {c}, class"] for r in ours if r["set"] == name]
        for k in own[0]:
            short = c - float(np.mean([r[k] for r in own if k in r]))
            total, off, worst = total + 1, off + (short > MOST_OFF), max(worst, short)
    least = config["least_of_class"]
    claim = (f'with conditional="class", classes of {least} training rows or more are covered at most '
             f"{100 * MOST_OFF:g} points less than asked for")  # fmt: skip
    evidence = f"{total - off} of {total} classes and levels; the worst is {100 * worst:.1f} points below"
    return Verdict(claim, off == 0, evidence, is_ours=True)


MEASURES = {"size": "mean size", "slab": "coverage in the worst slab", "by size": "least coverage by size of the set"}


def _rival_means(
    groups: dict[tuple[Any, ...], list[Record]],
    done: list[str],
    model: str,
    measure: str,
    coverage: float,
    condition: Any,
) -> float:
    return float(np.mean([r[f"{measure}, {coverage}, {condition}"] for name in done for r in groups[name, model]]))


def _rival_table(groups: dict[tuple[Any, ...], list[Record]], done: list[str], config: Config) -> str:
    rows = []
    for c, condition, model in product(config["coverages"], (None, "confidence"), config["models"]):
        kinds = ("coverage", *MEASURES)
        cells = [f"{_rival_means(groups, done, model, m, c, condition):.3f}" for m in kinds]
        rows.append([f"{100 * c:g} %", str(condition), NAMES[model], *cells])
    header = ["asked for", "conditional", "model", "coverage", *MEASURES.values()]
    return "Means over all sets and splits; no set is empty.\n\n" + markdown(header, rows)


def _rival_verdict(groups: dict[tuple[Any, ...], list[Record]], done: list[str], config: Config, rival: str) -> Verdict:
    is_better, evidence = True, []
    for c in config["coverages"]:
        found = {m: [_rival_means(groups, done, model, m, c, None) for model in (OURS, rival)] for m in MEASURES}
        is_better &= found["size"][0] <= found["size"][1]
        is_better &= all(found[m][0] >= found[m][1] for m in ("slab", "by size"))
        shown = ", ".join(f"{MEASURES[m]} {a:.3f} and {b:.3f}" for m, (a, b) in found.items())
        evidence.append(f"{100 * c:g} %: {shown}")
    claim = f"our sets are no larger than those of {NAMES[rival]}, and cover the worst slab and the worst size better"
    return Verdict(claim, is_better, "; ".join(evidence), is_ours=True)


def _draw(groups: dict[tuple[Any, ...], list[Record]], done: list[str], config: Config) -> Any:
    """Draw mean size and coverage in the worst slab for each set of rows, at the middle level."""
    level = sorted(config["coverages"])[len(config["coverages"]) // 2]
    figure = new_figure(7.0, 0.32 * max(len(done), 4) + 1.4)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, measure in ((left, "size"), (right, "slab")):
        plain(axes)
        for model, (marker, color) in STYLES.items():
            if (done[0], model) not in groups:
                continue
            x = [_rival_means(groups, [name], model, measure, level, None) for name in done]
            axes.plot(x, range(len(done)), linestyle="none", marker=marker, color=color, label=NAMES[model])
        axes.set_xlabel(f"{MEASURES[measure]} at {100 * level:g} %")
    right.axvline(level, color="0.6", linewidth=0.8, zorder=0, label="_level")
    left.set_yticks(range(len(done)), done)
    left.set_ylim(len(done) - 0.5, -0.5)
    legend(figure, 3)
    return figure
