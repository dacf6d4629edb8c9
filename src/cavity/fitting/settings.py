"""The constructor arguments: what each may be, and the training plan they amount to. No mathematics, no data."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

from cavity.inference import METHODS, Method, PlainVI
from cavity.kernels import Kernel
from cavity.runtime.distributed import SINGLE_PROCESS, Workers
from cavity.training import LBFGS, Adam, AdaptiveRate, Model, Optimizer, Plan

# How these were chosen: docs/defaults.md.
PRIORS: dict[str, Any] = {
    "lengthscale": (None, 2.0, math.inf),
    "relevance": 0.5,
    "spread": 0.3,
    "variance": (None, 2.0),
    "noise": (None, 2.0),
}
POOLED = ("relevance", "spread")
FULL_BATCH_ROWS = 2000
FOLDS = 3  # of cross-fitting, for calibration
HELD_OUT = 20  # where rows are many, one in so many is for calibration,
LEAST_HELD_OUT, MOST_HELD_OUT = 500, 5000  # but no fewer and no more than this: fewer say too little,
LARGEST_SHARE = 5  # and never more than one in so many: the model would miss them
EPOCHS = 250
LBFGS_EPOCHS = 50  # each an iteration
BATCH_SIZE = 500
STEPS = 2000  # of mini-batch training, where the number of epochs is left to us
RATE, BATCH_RATE = 0.05, 0.02
DAMPING = {"ep": 0.5, "sep": 0.5, "gfitc": 0.5, "vi": 0.25}
BATCH_DAMPING = {"ep": 1.0, "sep": 1.0, "vi": 0.03}
LEAST_DAMPING = 0.002  # of VI: a step this long for each batch's share of the rows, but no less
PAPER_STEPS = {"ep": 249, "sep": 249, "gfitc": 250, "vi": 250}
PAPER_MEMORY = 5  # of L-BFGS
PAPER_RATE, PAPER_BATCH_RATE = 0.01, 0.001


def check_arguments(params: dict[str, Any]) -> None:
    """Raise a ValueError or TypeError that names the first argument that cannot be used."""
    for name, (is_valid, accepted) in _RULES.items():
        if not is_valid(params[name]):
            raise ValueError(f"{name}={params[name]!r} cannot be used; {name} must be {accepted}")
    if params["kernel"] is not None and not isinstance(params["kernel"], Kernel):
        raise TypeError(f"kernel={params['kernel']!r} is a {type(params['kernel']).__name__}; "
                        "a cavity.kernels.Kernel or None is needed")  # fmt: skip
    has_batches = params["batch_size"] not in (None, "auto")
    if params["method"] == "gfitc" and has_batches:
        raise ValueError(
            f"batch_size={params['batch_size']} cannot be used with method='gfitc': with u integrated out its log Z is "
            "no sum over rows, so a batch has no share of it; use batch_size=None, or method='sep' for mini-batches"
        )
    if _waits(params) and has_batches:
        raise ValueError("updates='outer' waits for q to converge on all rows; it needs batch_size=None")
    if params["optimizer"] == "lbfgs" and not _waits(params):
        raise ValueError("optimizer='lbfgs' needs the objective at the best q; use updates='outer' with it")


class Start(NamedTuple):
    """Start values where the user gave none; the length-scale as a multiple and a power of the median distance."""

    variance: float
    noise: float
    lengthscale: float
    power: float


START = Start(variance=10.0, noise=0.01, lengthscale=1.0, power=1.0)
BATCH_START = START._replace(lengthscale=0.5)  # many rows show finer detail
PAPER_START = Start(variance=1.0, noise=1.0, lengthscale=1.0, power=0.5)


@dataclass(frozen=True)
class Choice:
    """What is left of the arguments once the size of the data is known.

    `climbs`: whether the paper has L-BFGS for the method on all rows, rather than its adaptive rates. For calibration,
    `folds`: of cross-fitting; `n_held_out`: rows that are not learned from; both 0 for none.
    """

    name: str
    method: Method
    plan: Plan
    optimizer: str
    climbs: bool
    learning_rate: float
    start: Start
    n_rows: int
    n_inducing: int
    folds: int
    n_held_out: int


def make_plan(params: dict[str, Any], n_rows: int, seed: int, workers: Workers = SINGLE_PROCESS) -> Choice:
    """Fill in everything that "auto" and None leave open."""
    learns = params["learn_kernel"] or params["learn_inducing"]
    batch_size = _batch_size(params, n_rows)
    is_full, is_paper = batch_size is None, params["optimizer"] == "paper"
    method = params["method"]
    if method == "auto":
        method = "ep" if is_full else "sep"
    folds, n_held_out = _calibration(params, n_rows, is_full, learns)
    plan = Plan(
        updates="outer" if _waits(params) else params["updates"],
        batch_size=batch_size,
        max_epochs=_max_epochs(params, n_rows, batch_size),
        max_seconds=params["max_seconds"] and params["max_seconds"] / (1 + folds),
        tol=params["tol"],
        damping=params["damping"] or _damping(method, n_rows, batch_size),
        damping_decay=0.99 if is_paper and is_full and method in ("ep", "sep") else 1.0,
        sweep_tol=1e-4 if learns else min(1e-10, max(params["tol"], 1e-12)),
        final_sweeps=0 if is_paper or not is_full or not learns else 50,
        seed=seed,
    )
    rates = (PAPER_RATE, PAPER_BATCH_RATE) if is_paper else (RATE, BATCH_RATE)
    start = PAPER_START if params["init"] == "paper" else START if is_full else BATCH_START
    rate = params["learning_rate"] or rates[0 if is_full else 1]
    optimizer = params["optimizer"]
    if optimizer == "auto":
        optimizer = "lbfgs" if _waits(params) else "adam"
    inference = PlainVI() if method == "vi" and is_paper else METHODS[method]()
    climbs, n_inducing = method in ("gfitc", "vi"), inducing_count(params["n_inducing"], n_rows)
    return Choice(method, inference, plan, optimizer, climbs, rate, start, n_rows, n_inducing, folds, n_held_out)


def _damping(method: str, n_rows: int, batch_size: int | None) -> float:
    """VI's natural gradient is a batch's guess at that of all rows: the smaller the batch, the less of it to take."""
    if batch_size is None:
        return DAMPING[method]
    largest = BATCH_DAMPING[method]
    return largest if method != "vi" else min(largest, max(batch_size / n_rows, LEAST_DAMPING))


def _calibration(params: dict[str, Any], n_rows: int, is_full: bool, learns: bool) -> tuple[int, int]:
    """Folds of cross-fitting, or where rows are many the number held out; neither where q(u) is all there is to learn.

    A few thousand rows say all about one number, and many rows do not miss them: no second fit is needed.
    """
    asked = params["calibrate"]
    if asked is False or (asked == "auto" and not learns):
        return 0, 0
    if asked is True or asked == "auto":
        return (FOLDS, 0) if is_full else (0, _held_out(n_rows))
    return int(asked), 0


def _held_out(n_rows: int) -> int:
    return min(max(n_rows // HELD_OUT, LEAST_HELD_OUT), MOST_HELD_OUT, n_rows // LARGEST_SHARE)


def _waits(params: dict[str, Any]) -> bool:
    """Whether q converges before every step of the hyper-parameters."""
    return params["updates"] == "outer" or params["method"] == "gfitc"


def make_lbfgs(choice: Choice, model: Model) -> LBFGS | None:
    """How to run L-BFGS, where the plan is for it; a unit of the authors' log(1/ℓ²) is half a unit of log ℓ."""
    if choice.optimizer == "lbfgs":
        return LBFGS(model.spread({}, 1.0))
    if choice.optimizer == "paper" and choice.climbs and choice.plan.batch_size is None:
        return LBFGS(model.spread({"lengthscale": 0.5}, 1.0), PAPER_MEMORY)
    return None


def make_optimizer(choice: Choice, model: Model, n_rows: float) -> Optimizer:
    """The optimizer that makes one step at a time on an objective summed over so many rows.

    The authors' program moves log(1/ℓ²): a rate there is a quarter of that rate for log ℓ.
    """
    rate, is_paper = choice.learning_rate, choice.optimizer == "paper"
    if is_paper and choice.plan.batch_size is None:
        scale = model.spread({"lengthscale": 0.25}, 1.0)
        return AdaptiveRate(rate * scale, scale, pooled=model.spread({"lengthscale": 1.0}, 0.0))
    return Adam(rate, not is_paper, max(n_rows, 1.0))


def prior_spec(priors: Any) -> dict[str, Any]:
    """The dictionary that `priors` stands for."""
    if priors is None:
        return {}
    return PRIORS if isinstance(priors, str) else priors


def _batch_size(params: dict[str, Any], n_rows: int) -> int | None:
    size = params["batch_size"]
    if size == "auto":
        size = None if n_rows <= FULL_BATCH_ROWS or _waits(params) else BATCH_SIZE
    return None if size is None or size >= n_rows else int(size)


def _max_epochs(params: dict[str, Any], n_rows: int, batch_size: int | None) -> int:
    if params["max_epochs"] != "auto":
        return int(params["max_epochs"])
    if not (params["learn_kernel"] or params["learn_inducing"]):
        return 5000
    if batch_size is None:
        return LBFGS_EPOCHS if _waits(params) and params["optimizer"] in ("auto", "lbfgs") else EPOCHS
    return max(1, math.ceil(STEPS * batch_size / n_rows))


def inducing_count(n_inducing: int | float, n_rows: int) -> int:
    """M: a number as it is, a share of the rows rounded to the nearest, at least one."""
    return int(n_inducing) if _is_int(n_inducing) else max(1, round(float(n_inducing) * n_rows))


def _one_of(*values: Any) -> tuple[Callable[[Any], bool], str]:
    return (lambda v: any(v is a or (isinstance(v, str) and v == a) for a in values)), f"one of {list(values)}"


def _is_int(v: Any) -> bool:
    return not isinstance(v, bool) and isinstance(v, Integral)


def _is_real(v: Any) -> bool:
    return not isinstance(v, bool) and isinstance(v, Real) and math.isfinite(v)


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "method": _one_of("auto", *METHODS),
    "n_inducing": (
        lambda v: (_is_int(v) and v >= 1) or (_is_real(v) and not _is_int(v) and 0 < v <= 1),
        "a positive int, or a float in (0, 1]: a share of the training rows",
    ),
    "init": _one_of("kmeans", "kmeans-per-class", "random", "paper"),
    "share_kernel": _one_of(True, False),
    "share_inducing": _one_of(True, False),
    "learn_kernel": _one_of(True, False),
    "learn_inducing": _one_of(True, False),
    "priors": (
        lambda v: v is None or (isinstance(v, str) and v == "default") or _is_prior_dict(v),
        "'default', None, or a dict: 'lengthscale', 'variance', 'noise' to (median, sd of the log), "
        "'relevance' and 'spread' to an sd",
    ),
    "scaling": _one_of(None, "standard", "quantile", "auto"),
    "calibrate": (
        lambda v: isinstance(v, bool) or (isinstance(v, str) and v == "auto") or (_is_int(v) and v >= 2),
        "'auto', True, False or a number of folds, at least 2",
    ),
    "batch_size": (
        lambda v: v is None or (isinstance(v, str) and v == "auto") or (_is_int(v) and v >= 1),
        "'auto', None (all rows) or a positive int",
    ),
    "max_epochs": (
        lambda v: (isinstance(v, str) and v == "auto") or (_is_int(v) and v >= 1),
        "'auto' or a positive int",
    ),
    "max_seconds": (lambda v: v is None or (_is_real(v) and v > 0), "None or a positive number"),
    "tol": (lambda v: _is_real(v) and v >= 0, "a number at or above 0"),
    "optimizer": _one_of("auto", "adam", "paper", "lbfgs"),
    "learning_rate": (lambda v: v is None or (_is_real(v) and v > 0), "None or a positive number"),
    "damping": (lambda v: v is None or (_is_real(v) and 0 < v <= 1), "None or a number in (0, 1]"),
    "updates": _one_of("inner", "inner-exact", "outer"),
    "device": (lambda v: isinstance(v, str), "'auto' or the name of a torch device, such as 'cpu' or 'cuda:0'"),
    "dtype": _one_of("float64", "float32"),
    "checkpoint": (
        lambda v: v is None or (isinstance(v, str | os.PathLike) and bool(os.fspath(v))),
        "None or the name of a folder",
    ),
    "checkpoint_seconds": (lambda v: _is_real(v) and v >= 0, "a number of seconds, at or above 0"),
    "verbose": (lambda v: isinstance(v, (bool, Integral)), "0 (silent), 1 (a progress bar) or 2 (a line an epoch)"),
}


def _is_prior_dict(v: Any) -> bool:
    if not isinstance(v, dict) or not set(v) <= set(PRIORS):
        return False
    return all(_is_sd(entry) if name in POOLED else _is_prior(entry) for name, entry in v.items())


def _is_prior(entry: Any) -> bool:
    if not isinstance(entry, tuple) or len(entry) not in (2, 3):
        return False
    median, *sds = entry
    return (median is None or (_is_real(median) and median > 0)) and all(map(_is_sd, sds))


def _is_sd(v: Any) -> bool:
    return not isinstance(v, bool) and isinstance(v, Real) and float(v) > 0
