"""Active learning: how many labels reach the NLL of a fit on most of the pool, by strategy and model."""

from __future__ import annotations

import os
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from benchmarks.records import Record
from cavity import GPClassifier, active
from cavity.metrics import scores
from experiments.common import DIGITS
from experiments.experiment import Config, Job

TARGET, MADE_UP = "target", "made up"
BALD, RANDOM, EXPLORE, ALONE, SINGLE, FOREST = "bald", "random", "explore", "alone", "single", "forest "
EXPLORED = 0.25  # of a batch, drawn at random
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
    ends = {ALONE: short, SINGLE: short, BALD: most, EXPLORE: most}
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
        self._job, self._X, self._n = job, X, len(known)
        self._clf = GPClassifier(random_state=job["seed"], device="cpu").fit(_take(X, known), y[known])
        self.classes = self._clf.classes_
        self.log_proba = self._clf.predict_log_proba

    def query(self, left: NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """Return n of the rows that are left."""
        pool, seed = _take(self._X, left), 1000 * self._job["seed"] + self._n
        if self._job["model"] == ALONE:
            return left[np.argsort(-self._clf.uncertainty(pool).epistemic, kind="stable")[:n]]
        explore = EXPLORED if self._job["model"] == EXPLORE else 0.0
        return left[active.query(self._clf, pool, n, explore=explore, random_state=seed)]


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


def summarize(records, config, folder):
    from experiments.experiment import Summary

    return Summary("to come", [], {})
