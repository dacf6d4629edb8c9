"""Candidates for the default settings, compared by the NLL of rows held out of the training rows of splits."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.classifier import GPClassifier
from cavity.datasets import make_waveform
from cavity.fitting.encoding import fit_scaler
from cavity.fitting.settings import PRIORS, START
from cavity.kernels import RBF, Kernel, Matern52
from cavity.records import Record
from cavity.report import scores
from cavity.reproduce.common import DIGITS, Rows, scored_fit, split
from cavity.reproduce.defaults_results import folds_of, show_results
from cavity.reproduce.experiment import Config, Job, Shown
from cavity.training import median_distance

WAVEFORM = "waveform"
DRAWN, DRAWN_TO_LEARN = 2300, 300
SHARE_TO_LEARN = 0.85
KERNELS = {"rbf": RBF, "matern52": Matern52}
# Seconds of an EP fit with its calibration, and how the methods compare.
SECONDS = {"glass": 2.0, "new_thyroid": 1.0, "svmguide2": 2.5, "vehicle": 8.0, "vowel": 5.0, WAVEFORM: 1.5,
           "wine": 1.0, "satellite": 30.0}  # fmt: skip
EFFORT = {"ep": 1.0, "sep": 0.5, "gfitc": 2.0, "vi": 4.0}


def jobs(config: Config) -> list[Job]:
    """A fit for every candidate, set and fold; the defaults in force stand in each, since candidates lean on them."""
    fixed = {name: config[name] for name in ("inducing", "calibrate", "splits")}
    fixed["defaults"] = as_json({"priors": PRIORS, "start": START._asdict()})
    return [
        {"candidate": candidate["name"], "data_set": data_set, "fold": i, "seed": i,
         "settings": _settings(candidate), **fixed}
        for candidate in config["candidates"]
        for data_set in config["sets"]
        for i in range(folds_of(config, data_set))
    ]  # fmt: skip


def cost(job: Job) -> float:
    """Seconds of one core."""
    return SECONDS.get(job["data_set"], 1.0) * EFFORT[job["settings"]["method"]]


def run(job: Job) -> Record:
    """One calibrated fit, scored twice: as if it were not calibrated, and as it is."""
    rows = fold(job["data_set"], job["fold"], job["splits"])
    model = classifier(job, rows[0])
    found = scored_fit(model, rows)
    blunt = copy(model)
    blunt.posterior_ = replace(model.posterior_, sharpness=1.0)
    plain = scores(rows[3], blunt.predict_log_proba(rows[2]), model.classes_)._asdict()
    calibrated = {f"{name}_calibrated": found[name] for name in plain}
    rounded = {name: round(value, DIGITS) for name, value in plain.items()}
    return found | rounded | calibrated | {"sharpness": round(model.sharpness_, DIGITS)}


def show(records: list[Record], config: Config, folder: Path) -> Shown:
    """Every candidate on every set, and how far the choice is from the best of them."""
    return show_results(records, config)


def fold(data_set: str, number: int, splits: str) -> Rows:
    """Rows to learn from and rows to validate on: the training rows of a split, or fresh draws of waveform."""
    if data_set == WAVEFORM:
        X, y = make_waveform(DRAWN, random_state=100 + number)
        learn, hold = np.split(np.arange(DRAWN), [DRAWN_TO_LEARN])
    else:
        X, y, _, _ = split(data_set, number, splits)
        order = np.random.default_rng(1000 + number).permutation(len(X))
        learn, hold = np.split(order, [int(SHARE_TO_LEARN * len(X))])
    return X[learn], y[learn], X[hold], y[hold]


def classifier(job: Job, X: NDArray[Any]) -> GPClassifier:
    """The candidate's settings for these rows. What it does not name is left to the defaults."""
    settings = dict(job["settings"])
    if "priors" in settings:
        settings["priors"] = priors(settings["priors"])
    start, name = settings.pop("start", None), settings.pop("kernel", "rbf")
    if start is not None or name != "rbf":
        settings["kernel"] = _kernel(name, start, settings.get("scaling", "standard"), X, job["seed"])
    fixed = {"n_inducing": job["inducing"], "calibrate": job["calibrate"], "random_state": job["seed"]}
    return GPClassifier(**fixed, **settings, device="cpu")


def priors(named: Any) -> dict[str, Any] | None:
    """As `GPClassifier` takes them: "none", or two sides of the length-scales' and what ties these to each other."""
    if named == "none":
        return None
    found = {"variance": (None, 2.0), "noise": (None, 2.0)} | named
    if "lengthscale" in named:
        found["lengthscale"] = (None, *(math.inf if sd is None else sd for sd in named["lengthscale"]))
    return found


def as_json(value: Any) -> Any:
    """What comes back the same from a file of records: names sorted, and null for infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {name: as_json(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [as_json(entry) for entry in value]
    return None if value == math.inf else value


def _settings(candidate: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in candidate.items() if name not in ("name", "what")}
    return dict(as_json({"method": "ep"} | given))


def _kernel(name: str, start: float | None, scaling: str | None, X: NDArray[Any], seed: int) -> Kernel:
    """With the default variance; length-scales start at so many median distances, or by default."""
    if start is None:
        return KERNELS[name](variance=START.variance)
    scaled = fit_scaler(scaling, X, np.ones(len(X))).transform(X)
    return KERNELS[name](start * median_distance(scaled, np.random.default_rng(seed)), START.variance)
