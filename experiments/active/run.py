"""Active learning: how many labels reach the NLL of a fit on most of the pool, by strategy and model."""

from __future__ import annotations

import os
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.records import Record
from cavity import GPClassifier, active
from cavity.metrics import scores
from experiments.common import DIGITS
from experiments.experiment import Config, Job

TARGET, MADE_UP, SINGLE, ALONE = "target", "made up", "single", "alone"


def jobs(config: Config) -> list[Job]:
    """List a curve for each set, seed and strategy; random's goes to the share of the pool that sets the target."""
    names = ("pool_rows", "test_rows", "start", "batch", "trees")
    sizes = {name: config[name] for name in names}
    end = round(config["share"] * config["pool_rows"])
    found = []
    for name, data_set, seed in product(config["models"], config["sets"], range(config["seeds"])):
        is_long = name.startswith("forest") or name == "random"
        found.append({"set": data_set, "seed": seed, "model": name, "end": end if is_long else config["most_labels"]})
    for data_set, seed in product(config["sets"], range(config["single_seeds"])):
        found.append({"set": data_set, "seed": seed, "model": SINGLE, "end": config["stop_single"]})
    return [job | sizes for job in found]


def cost(job: Job) -> float:
    """Estimate the cost: the number of fits."""
    if job["model"].startswith("forest"):
        return 2.0
    return (job["end"] - job["start"]) / (1 if job["model"] == SINGLE else job["batch"])


def run(job: Job) -> Record:
    """Label rows of the pool step by step; return the NLL on the test rows after each step."""
    X, y, X_test, y_test = _rows(job)
    rng = np.random.default_rng(job["seed"])
    known = _start(y, job["start"], rng)
    order = rng.permutation(np.setdiff1d(np.arange(len(y)), known))  # random's
    labels, nll, error, spent, cpu_began = [], [], [], 0.0, time.process_time()
    strategy = _forest if job["model"].startswith("forest") else _process
    if strategy is _forest:
        X, X_test = _indicators(X, X_test)
    ask = strategy(job, X, y)
    while True:
        model, query, log_proba = ask(known)
        if (len(known) - job["start"]) % job["batch"] == 0 or len(known) >= job["end"]:
            found = scores(y_test, log_proba(X_test), model)
            labels.append(len(known))
            nll.append(round(found.nll, DIGITS))
            error.append(round(found.error, DIGITS))
        if len(known) >= job["end"]:
            break
        size = min(1 if job["model"] == SINGLE else job["batch"], job["end"] - len(known))
        if job["model"].endswith("random"):
            step = 2 * size if job["model"] == "random" else size  # the curve is smooth
            done = len(known) - job["start"]
            new = order[done : min(done + step, job["end"] - job["start"])]
        else:
            left = np.setdiff1d(np.arange(len(y)), known)
            began = time.process_time()
            new = query(left, size)
            spent += time.process_time() - began
        known = np.concatenate([known, new])
    seconds = {"query_seconds": round(spent, 3), "cpu_seconds": round(time.process_time() - cpu_began, 3)}
    return {"labels": labels, "nll": nll, "error": error, **seconds}


def _process(job: Job, X: Any, y: NDArray[Any]) -> Any:
    """Return what fits our defaults to the labels so far, and asks for more."""
    def ask(known: NDArray[np.int64]) -> Any:
        clf = GPClassifier(random_state=job["seed"], device="cpu").fit(_take(X, known), y[known])

        def query(left: NDArray[np.int64], n: int) -> NDArray[np.int64]:
            pool = _take(X, left)
            if job["model"] == ALONE:
                return left[np.argsort(-clf.uncertainty(pool).epistemic, kind="stable")[:n]]
            return left[active.query(clf, pool, n, "bald" if job["model"] == SINGLE else job["model"])]

        return clf.classes_, query, clf.predict_log_proba

    return ask


def _forest(job: Job, X: NDArray[Any], y: NDArray[Any]) -> Any:
    """Do the same with a random forest and a strategy of scikit-activeml."""
    from skactiveml.classifier import SklearnClassifier
    from skactiveml.pool import QueryByCommittee, UncertaintySampling
    from sklearn.ensemble import RandomForestClassifier

    classes, codes = np.unique(y, return_inverse=True)
    kind, seed = job["model"].removeprefix("forest "), job["seed"]

    def ask(known: NDArray[np.int64]) -> Any:
        forest = RandomForestClassifier(job["trees"], random_state=seed, n_jobs=1)
        clf = SklearnClassifier(forest, classes=range(len(classes)), random_state=seed)
        seen = np.full(len(y), np.nan)
        seen[known] = codes[known]
        clf.fit(X, seen)

        def query(left: NDArray[np.int64], n: int) -> NDArray[np.int64]:
            if kind == "committee":
                members = [SklearnClassifier(tree, classes=range(len(classes))) for tree in clf.estimator_.estimators_]
                ensemble = [RandomForestClassifier(10, random_state=seed + k) for k in range(10)]
                members = [SklearnClassifier(one, classes=range(len(classes))).fit(X, seen) for one in ensemble]
                return QueryByCommittee(random_state=seed).query(X, seen, members, fit_ensemble=False, batch_size=n)
            method = {"entropy": "entropy", "margin": "margin_sampling"}[kind]
            return UncertaintySampling(method, random_state=seed).query(X, seen, clf, fit_clf=False, batch_size=n)

        def log_proba(rows: Any) -> NDArray[np.float64]:
            p = job["trees"] * clf.predict_proba(rows) + 1.0  # a vote for every class: no probability is 0
            return np.log(p / p.sum(1, keepdims=True))

        return classes, query, log_proba

    return ask


def _start(y: NDArray[Any], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the rows that have a label from the start: one of each class, and others."""
    order = rng.permutation(len(y))
    _, first = np.unique(y[order], return_index=True)
    return order[np.concatenate([first, np.setdiff1d(np.arange(len(y)), first)])[:n]]


def _rows(job: Job) -> tuple[Any, NDArray[Any], Any, NDArray[Any]]:
    """Return the pool and the test rows of a seed, stratified."""
    from sklearn.model_selection import train_test_split

    X, y = _load(job["set"])
    kept = np.isin(y, [label for label, count in zip(*np.unique(y, return_counts=True)) if count >= 10])
    X, y = _take(X, np.flatnonzero(kept)), y[kept]
    sizes = {"train_size": job["pool_rows"], "test_size": min(job["test_rows"], len(y) - job["pool_rows"])}
    pool, test = train_test_split(np.arange(len(y)), **sizes, stratify=y, random_state=job["seed"])
    return _take(X, pool), y[pool], _take(X, test), y[test]


def _load(name: str) -> tuple[Any, NDArray[Any]]:
    if name == MADE_UP:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 2))
        return X, np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    if name == "digits":
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)
    if name == "breast_cancer":
        from sklearn.datasets import load_breast_cancer
        return load_breast_cancer(return_X_y=True)
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
