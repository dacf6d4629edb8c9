"""Single precision in mini-batches: the same fits in both, and the error of the gradient along a training."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.figures import new_figure, plain
from benchmarks.records import Record
from cavity.classifier import GPClassifier
from cavity.data.training_data import ArrayData
from cavity.inference import METHODS
from cavity.kernels import BY_NAME
from cavity.numerics.linalg import FactorizationError
from cavity.report.palette import BLUE
from cavity.runtime.device import without_autograd
from cavity.training.initial import initial_inducing_points, initial_prior, median_distance
from cavity.training.loop import Trainer
from cavity.training.optimizers import Adam
from cavity.training.parameters import HyperPrior
from cavity.training.plan import Plan
from experiments.common import Split, grouped, markdown, mean_of, percent_of_log, scored_fit
from experiments.experiment import Config, Job, Summary, Verdict
from experiments.medium.run import rows_of
from experiments.mnist.run import VALIDATION, digits

DOUBLE, SINGLE = "float64", "float32"
IMAGES = ("mnist", "digits")
SCORES = {"nll": 4, "error": 4, "seconds": 1}  # shown with so many digits


def jobs(config: Config) -> list[Job]:
    """List a fit for each data set, seed and precision, and a training along which gradients are compared."""
    sizes = {name: config[name] for name in ("train_rows", "test_rows")}
    fits = [
        {"data_set": name, "seed": seed, "what": dtype, "settings": config["settings"].get(name, {}), **sizes}
        for name in config["sets"]
        for seed in range(config["seeds"].get(name, 1))
        for dtype in (DOUBLE, SINGLE)
    ]
    trainings = [
        {"data_set": name, "seed": 0, "what": f"gradient {method}", "settings": config["training"], **sizes}
        for name in config["gradients"]
        for method in ("sep", "ep", "vi")
    ]
    return fits + trainings


def cost(job: Job) -> float:
    """Estimate the cost: images take minutes."""
    return 10.0 if job["data_set"] in IMAGES else 1.0


def run(job: Job) -> Record:
    """Fit in one precision and score the other rows, or compare gradients along a training."""
    X, y, X_test, y_test = _rows(job)
    if job["what"] in (DOUBLE, SINGLE):
        model = GPClassifier(dtype=job["what"], random_state=job["seed"], device="cpu", **job["settings"])
        return scored_fit(model, (X, y, X_test, y_test))
    X = np.asarray(X, dtype=float)
    X = (X - X.mean(0)) / (X.std() if job["data_set"] in IMAGES else np.maximum(X.std(0), 1e-9))
    return _gradient_errors(job["what"].removeprefix("gradient "), X, np.unique(y, return_inverse=True)[1], job)


def _rows(job: Job) -> Split:
    if job["data_set"] in IMAGES:
        X, y, X_test, y_test = digits(job["data_set"], VALIDATION)
        return X[: job["train_rows"]], y[: job["train_rows"]], X_test, y_test
    return rows_of(job["data_set"], 0, job["train_rows"], job["test_rows"])


def _gradient_errors(method: str, X: Any, y: Any, job: Job) -> Record:
    """Train in double precision; from time to time compute the gradient in single precision at the same state too."""
    s, C, rng = job["settings"], int(y.max()) + 1, np.random.default_rng(job["seed"])
    unit = 0.5 * median_distance(X, rng)
    Z = initial_inducing_points(X, y, C, s["n_inducing"], "kmeans", rng, 1e-3 * unit, None)
    about = (True, True), (False, False), unit, torch.device("cpu")
    double = initial_prior(BY_NAME[s["kernel"]](variance=10.0), X, C, Z, 0.01, *about, torch.float64)
    single = replace(double, dtype=torch.float32)
    plan = Plan("inner", s["batch_size"], 1, None, 0.0, 0.03 if method == "vi" else 1.0)
    trainers, batches = [], []
    with without_autograd(torch.device("cpu")):
        for model, dtype in ((double, torch.float64), (single, torch.float32)):
            data = ArrayData(torch.as_tensor(X, dtype=dtype), torch.as_tensor(y), torch.ones(len(y)).double(), C)
            trainers.append(Trainer(model, METHODS[method](), data, plan, HyperPrior(model, {})))
            batches.append(data)
        optimizer, errors = Adam(0.02, n_rows=len(y)), []
        theta, state = trainers[0].start()
        for step in range(s["steps"]):
            draw = next(iter(batches[0].draws(s["batch_size"], job["seed"], step, 0)))
            try:
                new, _, gradient = trainers[0].evaluate(theta, state, batches[0].batch(draw), 0)
            except FactorizationError:
                break  # a fit would go back to an earlier state
            if step % s["every"] == 0:
                try:
                    draw = next(iter(batches[1].draws(s["batch_size"], job["seed"], step, 0)))
                    _, _, other = trainers[1].evaluate(theta, state, batches[1].batch(draw), 0)
                    errors.append(float((other - gradient).norm() / gradient.norm()))
                except FactorizationError:
                    errors.append(math.inf)
            theta, state = optimizer.step(theta, gradient, step / s["steps"]), new
    return {"median_error": float(np.median(errors)), "largest_error": max(errors), "compared": len(errors)}


def summarize(records: list[Record], config: Config, folder: Path) -> Summary:
    """Compare both precisions: NLL, error and time of the fits; the relative error of gradients."""
    by = {key: group[0] for key, group in grouped(records, "data_set", "seed", "what").items()}
    pairs = [(name, seed) for name, seed, what in by if what == DOUBLE and (name, seed, SINGLE) in by]
    rows, ratios = [], {}
    for name, seed in pairs:
        double, single = by[name, seed, DOUBLE], by[name, seed, SINGLE]
        ratios[name, seed] = math.log(single["nll"] / double["nll"])
        scores = [f"{r[score]:.{n}f}" for score, n in SCORES.items() for r in (double, single)]
        rows.append([name, str(seed), f"{100 * math.expm1(ratios[name, seed]):+.1f} %", *scores])
    head = ["set", "seed", "change of NLL", *(f"{score}{of}" for score in SCORES for of in (", double", ", single"))]
    text = ["NLL, error and time of fits in double and in single precision.", markdown(head, rows)]
    trained = [(name, what, r) for (name, _, what), r in by.items() if what.startswith("gradient")]
    if trained:
        head = ["set", "method", "median", "largest", "steps compared"]
        of_gradients = [
            [name, what.split()[1], f"{r['median_error']:.1e}", f"{r['largest_error']:.1e}", str(r["compared"])]
            for name, what, r in trained
        ]
        text += ["Relative error of the gradient in single precision, along trainings.", markdown(head, of_gradients)]
    if not pairs:
        return Summary("\n\n".join(text), [], {})
    change = mean_of(ratios.values())
    n_sets = len({name for name, _ in pairs})
    claim = f"single precision does not change the NLL of {n_sets} sets by more than two standard errors or 1%"
    holds = abs(change.mean) <= max(2.0 * change.se, 0.01)
    verdict = Verdict(claim, holds, percent_of_log(change), is_ours=True)
    return Summary("\n\n".join(text), [verdict], {"precision": _draw(ratios)})


def _draw(ratios: dict[tuple[str, int], float]) -> Any:
    """Draw the change of the NLL by single precision, a mark for each seed."""
    names = list(dict.fromkeys(name for name, _ in ratios))
    figure = new_figure(6.0, 0.3 * max(len(names), 4) + 0.9)
    axes = plain(figure.subplots(), "x")
    axes.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    x = [100.0 * math.expm1(value) for value in ratios.values()]
    axes.plot(x, [names.index(name) for name, _ in ratios], "o", color=BLUE, markersize=4.0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("change of the NLL by single precision in percent; left is better")
    return figure
