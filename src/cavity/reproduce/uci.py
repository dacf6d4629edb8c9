"""Eight UCI sets, M = 5, 10 and 20 % of the rows, 20 splits: the paper's Table 2 and those of its supplement."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from cavity.classifier import GPClassifier
from cavity.records import Record
from cavity.reproduce.common import device_for, scored_fit, split
from cavity.reproduce.experiment import Config, Job
from cavity.reproduce.uci_results import OURS, OURS_SEP, show

__all__ = ["cost", "jobs", "run", "show"]

MODELS: dict[str, Callable[..., GPClassifier]] = {OURS: GPClassifier, OURS_SEP: partial(GPClassifier, "sep")}
# Rows and classes of a training set, for the estimate of its cost.
SIZES = {"glass": (193, 6), "new_thyroid": (194, 3), "satellite": (1287, 6), "svmguide2": (352, 3), "vehicle": (761, 4),
         "vowel": (486, 6), "waveform": (300, 3), "wine": (160, 3), "iris": (135, 3)}  # fmt: skip
EFFORT = {"gfitc": 4.0, "ep": 1.0, "sep": 0.9, "vi": 2.0, OURS: 3.0, OURS_SEP: 1.5}


def jobs(config: Config) -> list[Job]:
    """A fit for every set, share of inducing points, method and split; the split is the seed as well."""
    cells = product(config["sets"], config["inducing"], config["methods"], range(config["repetitions"]))
    return [
        {"data_set": data_set, "inducing": share, "method": method, "split": i, "seed": i, "splits": config["splits"]}
        for data_set, share, method, i in cells
    ]


def cost(job: Job) -> float:
    """Factorizations and products of a step, with a floor for what does not grow."""
    rows, classes = SIZES[job["data_set"]]
    M = job["inducing"] * rows
    return float(EFFORT[job["method"]] * (1.0 + classes * (M * M * rows + M**3) * 2e-7))


def run(job: Job) -> Record:
    """The paper's settings, or ours with the same number of inducing points; large ones on a GPU where there is one."""
    device = device_for(cost(job))
    settings: dict[str, Any] = {"n_inducing": job["inducing"], "random_state": job["seed"], "device": device}
    make = MODELS.get(job["method"]) or partial(GPClassifier.paper, job["method"])
    model = make(**settings)
    return scored_fit(model, split(job["data_set"], job["split"], job["splits"])) | {"device": device}
