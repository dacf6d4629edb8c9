"""Active learning: how many labels reach the NLL of a fit on most of the pool, by strategy and model."""

from __future__ import annotations

import math
import os
import time
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from benchmarks.figures import legend, log_ticks, new_figure, plain
from benchmarks.records import Record
from cavity import GPClassifier, active
from cavity.metrics import scores
from cavity.report.palette import BLUE, ORANGE, PINK, VERMILION
from experiments.common import DIGITS, grouped, markdown
from experiments.experiment import Config, Job, Summary, Verdict

TARGET, MADE_UP = "target", "made up"
BALD, EPIG, RANDOM, ALONE, SINGLE, FOREST = "bald", "epig", "random", "alone", "single", "forest "
NAMES = {BALD: "BALD", EPIG: "EPIG", RANDOM: "random", ALONE: "best 20 by themselves",
         FOREST + "margin": "forest, margin", FOREST + "entropy": "forest, entropy",
         FOREST + "committee": "forest, committee"}  # fmt: skip
SHORT = (ALONE, SINGLE)
STYLES = {BALD: ("black", "-"), EPIG: (BLUE, "-"), RANDOM: ("0.55", (0, (4, 1.5))),
          FOREST + "margin": (VERMILION, "-"), FOREST + "entropy": (ORANGE, "-"),
          FOREST + "committee": (PINK, "-")}  # fmt: skip
LEAST_ROWS = 10  # of a class; smaller ones are left out


def jobs(config: Config) -> list[Job]:
    """List a curve for each set, seed and strategy; random's goes to the share of the pool that sets the target."""
    end, most, short = round(config["share"] * config["pool_rows"]), config["most_labels"], config["most_short"]
    parts = [
        (config["models"], config["sets"], config["seeds"]),
        ([ALONE], config["sets"], config["alone"]),
        ([SINGLE], config["sets"], config["single"]),
        (config["more_models"], config["more_sets"], config["more_seeds"]),
    ]
    ends = {ALONE: short, SINGLE: short, BALD: most, EPIG: most}
    sizes = {name: config[name] for name in ("pool_rows", "test_rows", "start", "batch", "trees")}
    return [
        {"set": name, "seed": seed, "model": model, "end": ends.get(model, end), **sizes}
        for models, sets, seeds in parts
        for model, name, seed in product(models, sets, range(seeds))
    ]


def cost(job: Job) -> float:
    """Estimate the cost: the number of fits."""
    fits = (job["end"] - job["start"]) / (1 if job["model"] == SINGLE else job["batch"])
    return 0.2 * fits if job["model"].startswith(FOREST) else fits


def run(job: Job) -> Record:
    """Label rows of the pool step by step; return the scores on the test rows after each batch."""
    X, y, X_test, y_test = _rows(job)
    is_forest = job["model"].startswith(FOREST)
    if is_forest:
        X, X_test = _indicators(X, X_test)
    known, order = _first_rows(y, job)
    found: Record = {"labels": [], "nll": [], "error": []}
    query_seconds, began = 0.0, time.process_time()
    while True:
        model = _Forest(job, X, y, known) if is_forest else _Process(job, X, y, known)
        if (len(known) - job["start"]) % job["batch"] == 0 or len(known) == job["end"]:
            scored = scores(y_test, model.log_proba(X_test), model.classes)
            found["labels"].append(len(known))
            found["nll"].append(round(scored.nll, DIGITS))
            found["error"].append(round(scored.error, DIGITS))
        left = job["end"] - len(known)
        if left == 0:
            break
        asked = time.process_time()
        if job["model"] == RANDOM:  # two batches at a time: its curve is smooth
            new = order[len(known) - job["start"] :][: min(2 * job["batch"], left)]
        else:
            new = model.query(np.setdiff1d(order, known), min(1 if job["model"] == SINGLE else job["batch"], left))
        query_seconds += time.process_time() - asked
        known = np.concatenate([known, new])
    cpu_seconds = time.process_time() - began
    return found | {"query_seconds": round(query_seconds, 3), "cpu_seconds": round(cpu_seconds, 3)}


class _Process:
    """Our defaults, fitted to the rows that have labels."""

    def __init__(self, job: Job, X: Any, y: NDArray[Any], known: NDArray[np.int64]) -> None:
        self._job, self._X = job, X
        self._clf = GPClassifier(random_state=job["seed"], device="cpu").fit(_take(X, known), y[known])
        self.classes = self._clf.classes_
        self.log_proba = self._clf.predict_log_proba

    def query(self, left: NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """Return n of the rows that are left."""
        pool = _take(self._X, left)
        if self._job["model"] == ALONE:
            return left[np.argsort(-self._clf.uncertainty(pool).epistemic, kind="stable")[:n]]
        return left[active.query(self._clf, pool, n, EPIG if self._job["model"] == EPIG else BALD)]


class _Forest:
    """A random forest of scikit-learn, with a query strategy of scikit-activeml."""

    def __init__(self, job: Job, X: NDArray[np.float64], y: NDArray[Any], known: NDArray[np.int64]) -> None:
        self._job, self._X = job, X
        self.classes, codes = np.unique(y, return_inverse=True)
        self._y = np.full(len(y), np.nan)
        self._y[known] = codes[known]
        self._clf = self._fitted(job["trees"], job["seed"])

    def _fitted(self, trees: int, seed: int) -> Any:
        from skactiveml.classifier import SklearnClassifier
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(trees, random_state=seed, n_jobs=1)
        return SklearnClassifier(forest, classes=range(len(self.classes)), random_state=seed).fit(self._X, self._y)

    def query(self, left: NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """Return n of the rows that are left."""
        from skactiveml.pool import QueryByCommittee, UncertaintySampling

        seed, name = self._job["seed"], self._job["model"].removeprefix(FOREST)
        how = {"fit_clf": False, "batch_size": n}
        if name == "committee":
            members = [self._fitted(self._job["trees"] // 10, seed + k) for k in range(10)]
            how = {"fit_ensemble": False, "batch_size": n}
            return np.asarray(QueryByCommittee(random_state=seed).query(self._X, self._y, members, **how))
        method = {"margin": "margin_sampling"}.get(name, name)
        return np.asarray(UncertaintySampling(method, random_state=seed).query(self._X, self._y, self._clf, **how))

    def log_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logarithms of the shares of votes, with one more vote for each class: none is 0."""
        votes = self._job["trees"] * self._clf.predict_proba(X) + 1.0
        return np.asarray(np.log(votes / votes.sum(1, keepdims=True)))


def _first_rows(y: NDArray[Any], job: Job) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the rows that have labels from the start, one of each class at least, and an order of the others."""
    order = np.random.default_rng(job["seed"]).permutation(len(y))
    first = np.unique(y[order], return_index=True)[1]
    order = np.concatenate([order[first], np.delete(order, first)])
    return order[: job["start"]], order[job["start"] :]


def _rows(job: Job) -> tuple[Any, NDArray[Any], Any, NDArray[Any]]:
    """Return the pool and the test rows of a seed, stratified."""
    from sklearn.model_selection import train_test_split

    X, y = _load(job["set"])
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(counts[codes] >= LEAST_ROWS)
    X, y = _take(X, kept), y[kept]
    sizes = {"train_size": job["pool_rows"], "test_size": min(job["test_rows"], len(y) - job["pool_rows"])}
    pool, test = train_test_split(np.arange(len(y)), **sizes, stratify=y, random_state=job["seed"])
    return _take(X, pool), y[pool], _take(X, test), y[test]


def _load(name: str) -> tuple[Any, NDArray[Any]]:
    if name == MADE_UP:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 2))
        return X, np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    if name in ("digits", "breast_cancer"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return X, y
    import pandas as pd

    path = Path(os.environ.get("CAVITY_DATA", ".")) / "tables" / f"{name}.parquet"
    frame = pd.read_parquet(path)
    y = frame.pop(TARGET).astype(str).to_numpy()
    return frame, y


def _take(X: Any, rows: NDArray[np.int64]) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _indicators(X: Any, X_test: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return numbers and indicators of categories, gaps as -1, for the forest."""
    if not hasattr(X, "iloc"):
        return X, X_test
    import pandas as pd

    both = pd.get_dummies(pd.concat([X, X_test]), dummy_na=True).astype(float).fillna(-1.0).to_numpy()
    return both[: len(X)], both[len(X) :]


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare how many labels the mean curves need to reach the mean NLL of a fit on most of the pool."""
    curves = {key: _Curve(fits) for key, fits in grouped(records, "set", "model").items()}
    sets = [s for s in config["sets"] if (s, BALD) in curves and (s, RANDOM) in curves]
    more = [s for s in config["more_sets"] if (s, BALD) in curves and (s, RANDOM) in curves]
    if not sets:
        return Summary("No set has its curves yet.", [], {})
    shown = [model for model in NAMES if any((s, model) in curves for s in (*sets, *more)) and model not in SHORT]
    target = {s: curves[s, RANDOM].nll[-1] for s in (*sets, *more)}
    needed = {(s, m): curves[s, m].labels_to(target[s]) for s in target for m in shown if (s, m) in curves}
    rows = [[s, f"{target[s]:.4f}", *(_labels(needed.get((s, m)), curves.get((s, m))) for m in shown)] for s in target]
    share = f"{100 * config['share']:.0f} %"
    text = [
        f"Labels that reach the NLL of a fit on {share} of the pool, on the mean curve of the seeds. Where it is not "
        "reached, the last number of labels and the NLL there.",
        markdown(["set", "NLL", *(NAMES[m] for m in shown)], rows),
    ]
    verdicts = []
    for model in (BALD, EPIG):
        if all((s, model) in needed for s in sets):
            ratios = {s: needed[s, model] / needed[s, RANDOM] for s in sets}
            claim = (
                f"{NAMES[model]} needs at most {100 * config['most_ratio']:.0f} % of random's labels for the NLL of "
            )
            evidence = ", ".join(f"{s} {ratio:.2f}" for s, ratio in ratios.items())
            holds = max(ratios.values()) <= config["most_ratio"]
            verdicts.append(
                Verdict(
                    f"{claim}a fit on {share} of the pool, on each of the chosen sets", holds, evidence, is_ours=True
                )
            )
    forests = [m for m in shown if m.startswith(FOREST) and all((s, m) in curves for s in sets)]
    if forests:
        best = {s: min(needed[s, m] for m in forests) for s in sets}
        verdicts.append(
            Verdict(
                "BALD needs no more labels than the best of three strategies of scikit-activeml with a random forest",
                all(needed[s, BALD] <= best[s] for s in sets),
                ", ".join(f"{s} {needed[s, BALD]:.0f} against {_number(best[s])}" for s in sets),
                is_ours=True,
            )
        )
    kept = {m: _kept(records, sets, m, config["most_short"]) for m in (BALD, ALONE)}
    if (own := kept[BALD]) is not None:
        text.append(
            f"Fall of the NLL from {config['start']} to {config['most_short']} labels, as a share of that with one "
            "label at a time, the same seeds: " + "; ".join(f"{NAMES[m]} {value}" for m, value in kept.items()) + "."
        )
        verdicts.append(
            Verdict(
                f"batches of {config['batch']} keep {100 * config['least_kept']:.0f} % of the gain of one label at "
                "a time",
                own.share >= config["least_kept"],
                str(own),
                is_ours=True,
            )
        )
    return Summary("\n\n".join(text), verdicts, {"active": _draw(curves, sets, target, shown)})


class _Curve:
    """The mean NLL over the seeds after each number of labels."""

    def __init__(self, fits: list[Record]) -> None:
        self.labels, self.nll = fits[0]["labels"], np.mean([fit["nll"] for fit in fits], 0)

    def labels_to(self, target: float) -> float:
        """Return where the curve first reaches a value, linear between its points; ∞ if it does not."""
        below = np.flatnonzero(self.nll <= target)
        if not len(below):
            return math.inf
        if (i := int(below[0])) == 0:
            return float(self.labels[0])
        return float(np.interp(target, self.nll[[i, i - 1]], [self.labels[i], self.labels[i - 1]]))


def _labels(needed: float | None, curve: _Curve | None) -> str:
    if needed is None or curve is None:
        return ""
    return f"{needed:.0f}" if math.isfinite(needed) else f"{curve.labels[-1]}: {curve.nll[-1]:.3f}"


def _number(labels: float) -> str:
    return f"{labels:.0f}" if math.isfinite(labels) else "never"


class _Kept(NamedTuple):
    """The share of a gain that is kept, and its standard error over seeds and sets."""

    share: float
    se: float

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} ± {100 * self.se:.0f} %"


def _kept(records: list[Record], sets: list[str], model: str, labels: int) -> _Kept | None:
    """Return the sum of the gains of a strategy, relative to that of one label at a time on the same seeds."""
    gains = {}
    for record in records:
        if record["model"] in (model, SINGLE) and record["set"] in sets and labels in record["labels"]:
            fall = record["nll"][0] - record["nll"][record["labels"].index(labels)]
            gains[record["model"], record["set"], record["seed"]] = fall
    pairs = np.array(
        [(gains[model, *key], gain) for (m, *key), gain in gains.items() if m == SINGLE and (model, *key) in gains]
    )
    if len(pairs) < 2:
        return None
    share = float(pairs[:, 0].sum() / pairs[:, 1].sum())
    residual = pairs[:, 0] - share * pairs[:, 1]
    return _Kept(share, float(residual.std(ddof=1) * len(pairs) ** 0.5 / pairs[:, 1].sum()))


def _draw(curves: dict[tuple[Any, ...], _Curve], sets: list[str], target: dict[str, float], shown: list[str]) -> Any:
    figure = new_figure(2.4 * len(sets), 3.0)
    for axes, name in zip(figure.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        plain(axes)
        axes.axhline(target[name], color="0.6", linewidth=0.8, label="_target")
        for model in (m for m in shown if (name, m) in curves):
            curve, (color, line) = curves[name, model], STYLES[model]
            axes.plot(curve.labels, curve.nll, color=color, linestyle=line, linewidth=1.5, label=NAMES[model])
        axes.set(yscale="log", xlabel="labels", title=name)
        log_ticks(axes.yaxis, (1.0, 2.0, 5.0))
    figure.axes[0].set_ylabel("NLL of the test rows")
    legend(figure, 3)
    return figure
