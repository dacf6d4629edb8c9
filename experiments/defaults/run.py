"""How the default settings were chosen: candidates compared by NLL on rows held out of training rows.

    python experiments/defaults/run.py --jobs 2    # resumes where it stopped; CAVITY_DATA names the data folder
    python experiments/defaults/run.py --table     # table.md from results.jsonl

A fold of a UCI set is the training rows of one of the authors' splits, 85 % to learn from and 15 % to validate on; its
test rows are never read. Waveform is drawn anew (300 and 2,000 rows); digits are 400 rows against the rest.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread a fit: the jobs share the cores

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from cavity import GPClassifier
from cavity.datasets import load, make_waveform
from cavity.kernels import RBF
from cavity.report import scores
from cavity.scaling import fit_scaler
from cavity.training import median_distance

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
SETS = ("glass", "new_thyroid", "svmguide2", "vehicle", "vowel", "waveform", "wine", "digits")
FOLDS = 3
SHARE = 0.1

Fold = tuple[NDArray[np.float64], NDArray[Any], NDArray[np.float64], NDArray[Any]]


def priors(below: float, above: float, spread: float | None = None) -> dict[str, Any]:
    """Priors about the start values; `below` and `above` are the two sides of the length-scales'."""
    found: dict[str, Any] = {"lengthscale": (None, below, above), "variance": (None, 2.0), "noise": (None, 2.0)}
    return found if spread is None else found | {"spread": spread}


# length-scale start (times the median distance), variance, noise; then arguments of GPClassifier
CANDIDATES: dict[str, tuple[float, float, float, dict[str, Any]]] = {
    "no priors": (2.0, 1.0, 0.01, {"priors": None}),
    "symmetric priors, sd 1": (1.0, 1.0, 0.01, {"priors": priors(1.0, 1.0)}),
    "the same, start at 2 medians": (2.0, 1.0, 0.01, {"priors": priors(1.0, 1.0)}),
    "the same, variance 10": (2.0, 10.0, 0.01, {"priors": priors(1.0, 1.0)}),
    "the same, classes pooled": (2.0, 10.0, 0.01, {"priors": priors(1.0, 1.0, 0.5)}),
    "the same, quantile scaling": (2.0, 1.0, 0.01, {"priors": priors(1.0, 1.0), "scaling": "quantile"}),
    "random inducing points": (1.0, 1.0, 0.01, {"priors": priors(1.0, 1.0), "init": "random"}),
    "inducing points per class": (1.0, 1.0, 0.01, {"priors": priors(1.0, 1.0), "init": "kmeans-per-class"}),
    "learning rate 0.1": (1.0, 1.0, 0.01, {"priors": priors(1.0, 1.0), "learning_rate": 0.1}),
    "learning rate 0.02": (1.0, 1.0, 0.01, {"priors": priors(1.0, 1.0), "learning_rate": 0.02}),
    "priors below only, sd 1": (2.0, 10.0, 0.01, {"priors": priors(1.0, math.inf)}),
    "priors below only, sd 0.5": (2.0, 10.0, 0.01, {"priors": priors(0.5, math.inf)}),
    "the same, pooled 0.5": (2.0, 10.0, 0.01, {"priors": priors(0.5, math.inf, 0.5)}),
    "the same, pooled 0.5, 1 median": (1.0, 10.0, 0.01, {"priors": priors(0.5, math.inf, 0.5)}),
    "the same, pooled 0.5, quantile": (1.0, 10.0, 0.01, {"priors": priors(0.5, math.inf, 0.5), "scaling": "quantile"}),
    "the same, pooled 1, 1.5 medians": (1.5, 10.0, 0.01, {"priors": priors(0.5, math.inf, 1.0)}),
}

# the rivals from the same start with the same priors: how to move q and the hyper-parameters
RIVALS: dict[str, tuple[float, float, float, dict[str, Any]]] = {
    "EP, the default": (1.5, 10.0, 0.01, {}),
    "GFITC, L-BFGS": (1.5, 10.0, 0.01, {"method": "gfitc", "max_epochs": 250}),
    "GFITC, L-BFGS, 50 iterations": (1.5, 10.0, 0.01, {"method": "gfitc", "max_epochs": 50}),
    "VI, natural gradient, Adam 0.05": (1.5, 10.0, 0.01, {"method": "vi"}),
    "VI, natural gradient, Adam 0.1": (1.5, 10.0, 0.01, {"method": "vi", "learning_rate": 0.1}),
    "VI, natural gradient, Adam 0.05, no priors": (1.5, 10.0, 0.01, {"method": "vi", "priors": None}),
    "VI, L-BFGS at the best q": (1.5, 10.0, 0.01, {"method": "vi", "updates": "outer", "max_epochs": 100}),
    "VI, L-BFGS on everything": (1.5, 10.0, 0.01, {"method": "vi", "optimizer": "paper"}),
}


def fold(data_set: str, number: int) -> Fold:
    """Rows to learn from and rows to validate on."""
    rng = np.random.default_rng(1000 + number)
    if data_set == "waveform":
        X, y = make_waveform(2300, random_state=1000 + number)
        return X[:300], y[:300], X[300:], y[300:]
    data = load(data_set)
    rows = rng.permutation(len(data.X) if data_set == "digits" else data.splits[number][0])
    n = 400 if data_set == "digits" else int(0.85 * len(rows))
    return data.X[rows[:n]], data.y[rows[:n]], data.X[rows[n:]], data.y[rows[n:]]


def run(candidate: str, data_set: str, number: int) -> dict[str, Any]:
    """Fit one candidate on one fold."""
    torch.set_num_threads(1)
    X, y, X_valid, y_valid = fold(data_set, number)
    times_median, variance, noise, arguments = (CANDIDATES | RIVALS)[candidate]
    scaled = fit_scaler(arguments.get("scaling", "standard"), X, np.ones(len(X))).transform(X)
    kernel = RBF(times_median * median_distance(scaled, np.random.default_rng(0)), variance)
    arguments = {"method": "ep"} | arguments
    model = GPClassifier(kernel=kernel, noise=noise, n_inducing=SHARE, random_state=number, **arguments)
    started = time.perf_counter()
    model.fit(X, y)
    found = scores(y_valid, model.predict_log_proba(X_valid), model.classes_)
    record = {"candidate": candidate, "data_set": data_set, "fold": number, "nll": found.nll, "error": found.error}
    per_row = model.log_marginal_likelihood_ / len(X)
    return record | {"log_z_per_row": per_row, "seconds": round(time.perf_counter() - started, 2)}


def records() -> list[dict[str, Any]]:
    """What has been run so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run_all(jobs: int) -> None:
    """Run what is missing, appending each record as it comes."""
    done = {(r["candidate"], r["data_set"], r["fold"]) for r in records()}
    wanted = [(c, d, f) for c in CANDIDATES | RIVALS for d in SETS for f in range(FOLDS)]
    with ProcessPoolExecutor(jobs) as pool, RESULTS.open("a") as file:
        futures = [pool.submit(run, *job) for job in wanted if job not in done]
        for future in tqdm(as_completed(futures), total=len(futures), unit="fit"):
            file.write(json.dumps(future.result()) + "\n")
            file.flush()


def table() -> str:
    """The candidates for EP's defaults, and the rivals."""
    return f"{comparison(CANDIDATES)}\n{comparison(RIVALS)}"


def comparison(candidates: Iterable[str]) -> str:
    """Mean NLL of each candidate on each set, and the geometric mean over sets."""
    nll: dict[tuple[str, str], list[float]] = {}
    for record in records():
        nll.setdefault((record["candidate"], record["data_set"]), []).append(record["nll"])
    lines = [f"| candidate | {' | '.join(SETS)} | geometric mean |", "|---" * (len(SETS) + 2) + "|"]
    for candidate in candidates:
        means = [float(np.mean(nll.get((candidate, data_set), [math.nan]))) for data_set in SETS]
        overall = math.exp(float(np.mean(np.log(means))))
        lines.append(f"| {candidate} | {' | '.join(f'{m:.3f}' for m in means)} | {overall:.3f} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true", help="write table.md and run nothing")
    options = parser.parse_args()
    if not options.table:
        run_all(options.jobs)
    (HERE / "table.md").write_text(table())
    sys.stdout.write(table())


if __name__ == "__main__":
    main()
