"""Settings: the arguments of the classifier, checked and typed, and the plan of a fit that follows from them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cavity.inference import METHODS, Method, PlainVI
from cavity.kernels import BY_NAME, Kernel
from cavity.runtime.device import choose_device
from cavity.training.lbfgs import LBFGS
from cavity.training.optimizers import Adam, AdaptiveRate, Optimizer
from cavity.training.parameters import ParametricPrior
from cavity.training.plan import FINAL_SWEEPS, Plan

LogPrior = float | tuple[float | None, float] | tuple[float | None, float, float]

# How these were chosen: docs/defaults.md.
PRIORS: Mapping[str, LogPrior] = {
    "lengthscale": (None, 2.0, math.inf),
    "relevance": 0.5,
    "spread": 0.3,
    "variance": (None, 2.0),
    "noise": (None, 2.0),
}
TABLE_RELEVANCE = 1.0  # of tables with categories, dates or gaps, which often have many irrelevant columns
POOLED = ("relevance", "spread")
FULL_BATCH_ROWS = 2000
FOLDS = 3  # of cross-fitting, for calibration
HELD_OUT_FRACTION = 20  # with mini-batches, one row in 20 is held out for calibration,
LEAST_HELD_OUT, MOST_HELD_OUT = 500, 5000  # but no fewer and no more than this,
LARGEST_FRACTION = 5  # and never more than one in 5, which the model would miss
EPOCHS = 250
LBFGS_EPOCHS = 50  # iterations
INFERENCE_SWEEPS = 5000  # where only q(u) is inferred
BATCH_SIZE = 500
N_INDUCING, SEARCHED_INDUCING = 100, 200  # with "auto", and with mini-batches after a search
FIXED_INDUCING, FIXED_WORK = (200, 600), 1e9  # at fixed places; classes times rows times their square
FIXED_SWEEPS, FIXED_TOL = 100, 1e-3  # of EP at fixed places
SEARCHED_STEPS, STEP_ROWS = 600, 25  # of mini-batches after a search, at least; rows for each further step
MOST_SEARCHED = 200  # features with mini-batches: with more, the sum of two kernels takes too long
FULL_GP_ROWS = 1500  # all of them are inducing points with n_inducing="auto"
FULL_GP_NUMBERS, FULL_GP_WORK = 4e7, 1.3e10  # classes times rows², of which memory holds half a dozen, and times rows³
# With these, a search for the kernel and the scaling precedes the fit. Any other value is a wish for a plain fit.
OF_SEARCH: Mapping[str, tuple[Any, ...]] = {
    "method": ("auto", "ep"),
    "noise": (None,),
    "n_inducing": ("auto",),
    "inducing_points": (None,),
    "init": ("kmeans",),
    **dict.fromkeys(("share_kernel", "share_inducing"), (False,)),
    **dict.fromkeys(("learn_kernel", "learn_inducing"), (True,)),
    "priors": ("default",),
    "calibrate": ("auto", True, False),
    **dict.fromkeys(("max_epochs", "tol", "optimizer"), ("auto",)),
    "batch_size": ("auto", None),
    **dict.fromkeys(("learning_rate", "damping"), (None,)),
    "updates": ("inner",),
    "alpha": (1.0,),
    "dtype": ("auto", "float64", "float32"),
}
TOL, INFERENCE_TOL = 1e-4, 1e-10  # with tol="auto": rise of log Z per row and epoch; change of q in a sweep
STEPS = 2000  # of mini-batch training with max_epochs="auto"
RATE, BATCH_RATE = 0.05, 0.02
DAMPING = {"ep": 0.5, "sep": 0.5, "gfitc": 0.5, "vi": 0.25}
BATCH_DAMPING = {"ep": 1.0, "sep": 1.0, "vi": 0.03}
LEAST_VI_DAMPING = 0.002
PAPER_STEPS = {"ep": 249, "sep": 249, "gfitc": 250, "vi": 250}
PAPER_MEMORY = 5  # of L-BFGS
PAPER_RATE, PAPER_BATCH_RATE = 0.01, 0.001


@dataclass(frozen=True)
class Settings:
    """The arguments of `GPClassifier`, which documents them. Creating one checks all of them.

    Raises:
        ValueError, TypeError: naming the first argument that is not accepted, its value and what is.
    """

    method: str
    kernel: Kernel | str | None
    noise: ArrayLike | None
    n_inducing: int | float | str
    inducing_points: ArrayLike | None
    init: str
    share_kernel: bool
    share_inducing: bool
    learn_kernel: bool
    learn_inducing: bool
    priors: str | Mapping[str, LogPrior] | None
    scaling: str | None
    categorical_features: Any
    calibrate: bool | int | str
    class_weight: str | Mapping[Any, float] | None
    batch_size: int | str | None
    max_epochs: int | str
    max_seconds: float | None
    tol: float | str
    optimizer: str
    learning_rate: float | None
    damping: float | None
    alpha: float
    updates: str
    device: str
    memory_limit: float | None
    dtype: str
    checkpoint: str | os.PathLike[str] | None
    checkpoint_seconds: float
    distributed: bool | str
    random_state: int | np.random.RandomState | None
    verbose: int

    def __post_init__(self) -> None:
        for name, (is_valid, accepted) in _RULES.items():
            value = getattr(self, name)
            if not is_valid(value):
                raise ValueError(f"{name} must be {accepted}, got {value!r}")
        is_name = isinstance(self.kernel, str)
        if self.kernel not in BY_NAME if is_name else not isinstance(self.kernel, Kernel | None):
            error = ValueError if is_name else TypeError
            raise error(f"kernel must be one of {list(BY_NAME)}, a cavity.kernels.Kernel or None, got {self.kernel!r}")
        if self.alpha != 1.0 and self.method in ("gfitc", "vi"):
            raise ValueError(
                f"alpha must be 1 with method={self.method!r}, got {self.alpha}; use method='ep' or 'sep' for power EP"
            )
        has_batches = self.batch_size not in (None, "auto")
        if self.method == "gfitc" and has_batches:
            raise ValueError(
                f"method='gfitc' needs batch_size=None, got {self.batch_size}: its log Z is not a sum over rows, so it "
                "has no mini-batches; use method='sep' for these"
            )
        if self.converges_first and has_batches:
            raise ValueError(
                f"updates='outer' needs batch_size=None, got {self.batch_size}: q converges on all rows first"
            )
        if self.optimizer == "lbfgs" and not self.converges_first:
            raise ValueError("optimizer='lbfgs' needs updates='outer': it evaluates the objective at the converged q")

    @property
    def learns(self) -> bool:
        """Whether there is more to learn than q(u)."""
        return self.learn_kernel or self.learn_inducing

    @property
    def converges_first(self) -> bool:
        """Whether q converges before every step of the hyper-parameters."""
        return self.updates == "outer" or self.method == "gfitc"

    def log_priors(self, is_table: bool = False) -> Mapping[str, LogPrior]:
        """Return the priors on hyper-parameters as a mapping; `is_table`: with categories, dates or gaps."""
        if self.priors is None:
            return {}
        if not isinstance(self.priors, str):
            return self.priors
        return {**PRIORS, "relevance": TABLE_RELEVANCE} if is_table else PRIORS


class InitialValues(NamedTuple):
    """Initial hyper-parameters where the user gave none.

    The length-scale is `lengthscale` times the median distance of rows to the power of `power`.
    """

    variance: float
    noise: float
    lengthscale: float
    power: float


START = InitialValues(variance=10.0, noise=0.01, lengthscale=1.0, power=1.0)
BATCH_START = START._replace(lengthscale=0.5)  # many rows show finer detail
PAPER_START = InitialValues(variance=1.0, noise=1.0, lengthscale=1.0, power=0.5)


@dataclass(frozen=True)
class FitPlan:
    """The settings with everything that "auto" and None leave open resolved for a number of rows.

    Attributes:
        settings: the arguments.
        method: "ep", "sep", "gfitc" or "vi".
        dtype: of the inputs, distances and, in mini-batches, products with their rows.
        training: the plan of the training loop.
        optimizer: "adam", "lbfgs" or "paper".
        learning_rate: of the optimizer.
        initial: initial hyper-parameters.
        n_rows, n_inducing: N and M.
        searches: whether kernel and scaling come from a search on some rows (`fitting.search`). With all rows at once,
            they are then fixed.
        is_full_gp: whether all inputs are inducing points.
        folds: of cross-fitting for calibration; 0 for none.
        n_held_out: rows held out of mini-batch training for calibration; 0 for none.
    """

    settings: Settings
    method: str
    dtype: str
    training: Plan
    optimizer: str
    learning_rate: float
    initial: InitialValues
    n_rows: int
    n_inducing: int
    searches: bool
    is_full_gp: bool
    folds: int
    n_held_out: int

    @property
    def is_full_batch(self) -> bool:
        """Whether every step uses all rows."""
        return self.training.batch_size is None

    def inference(self) -> Method:
        """Return the inference method."""
        is_plain = self.method == "vi" and self.optimizer == "paper"
        return PlainVI() if is_plain else METHODS[self.method](self.settings.alpha)

    def lbfgs(self, model: ParametricPrior) -> LBFGS | None:
        """Return the settings of L-BFGS if the plan uses it.

        A unit of the authors' log(1/ℓ²) is half a unit of log ℓ.
        """
        if self.optimizer == "lbfgs":
            return LBFGS(model.full({}, 1.0))
        if self.optimizer == "paper" and self.method in ("gfitc", "vi") and self.is_full_batch:
            return LBFGS(model.full({"lengthscale": 0.5}, 1.0), PAPER_MEMORY)
        return None

    def stepwise_optimizer(self, model: ParametricPrior, weight: float) -> Optimizer:
        """Return the optimizer that makes one step at a time, for an objective summed over rows of this total weight.

        The authors' program moves log(1/ℓ²): a rate there is a quarter of that rate for log ℓ.
        """
        rate, is_paper = self.learning_rate, self.optimizer == "paper"
        if is_paper and self.is_full_batch:
            scale = model.full({"lengthscale": 0.25}, 1.0)
            return AdaptiveRate(rate * scale, scale, pooled=model.full({"lengthscale": 1.0}, 0.0))
        return Adam(rate, not is_paper, max(weight, 1.0))


def plan_fit(settings: Settings, n_rows: int, seed: int, n_classes: int = 2, n_features: int = 1) -> FitPlan:
    """Resolve everything that "auto" and None leave open."""
    s, is_paper = settings, settings.optimizer == "paper"
    batch_size = batch_size_of(s, n_rows)
    is_full = batch_size is None
    method = s.method if s.method != "auto" else "ep" if is_full else "sep"
    optimizer = s.optimizer if s.optimizer != "auto" else "lbfgs" if s.converges_first else "adam"
    is_small = n_classes * n_rows**2 <= FULL_GP_NUMBERS and n_classes * n_rows**3 <= FULL_GP_WORK
    searches = leaves_open(s) and (s.dtype != "float32" if is_full else n_features <= MOST_SEARCHED)
    is_full_gp, is_fixed = n_rows <= FULL_GP_ROWS and is_small and searches, searches and is_full
    folds, n_held_out = (0, 0) if is_fixed else _calibration(s, n_rows, is_full)
    training = Plan(
        updates="outer" if s.converges_first else s.updates,
        batch_size=batch_size,
        max_epochs=FIXED_SWEEPS if is_fixed else _max_epochs(s, n_rows, batch_size, searches),
        max_seconds=s.max_seconds and s.max_seconds / (1 + folds),
        tol=TOL if isinstance(s.tol, str) else s.tol,
        damping=s.damping or _damping(method, n_rows, batch_size),
        damping_decay=0.99 if is_paper and is_full and method in ("ep", "sep") else 1.0,
        sweep_tol=FIXED_TOL if is_fixed else 1e-4 if s.learns else INFERENCE_TOL if isinstance(s.tol, str) else s.tol,
        final_sweeps=0 if is_paper or not is_full or not s.learns or is_fixed else FINAL_SWEEPS,
        seed=seed,
    )
    rates = (PAPER_RATE, PAPER_BATCH_RATE) if is_paper else (RATE, BATCH_RATE)
    return FitPlan(
        settings=s,
        method=method,
        dtype=s.dtype if s.dtype != "auto" else _dtype(s, is_full or n_features <= MOST_SEARCHED),
        training=training,
        optimizer=optimizer,
        learning_rate=s.learning_rate or rates[0 if is_full else 1],
        initial=PAPER_START if s.init == "paper" else START if is_full else BATCH_START,
        n_rows=n_rows,
        n_inducing=n_rows if is_full_gp else inducing_count(s.n_inducing, n_rows, n_classes, searches, is_full),
        searches=searches,
        is_full_gp=is_full_gp,
        folds=folds,
        n_held_out=n_held_out,
    )


def leaves_open(s: Settings) -> bool:
    """Whether the settings leave open how the model is learned; a kernel may have a name."""
    values = {name: getattr(s, name) for name in OF_SEARCH}
    is_open = all(v is None or isinstance(v, str | bool | Real) for v in values.values())  # arrays are given values
    return is_open and all(v in OF_SEARCH[name] for name, v in values.items()) and not isinstance(s.kernel, Kernel)


def inducing_count(n_inducing: int | float | str, n_rows: int, n_classes: int, searches: bool, is_full: bool) -> int:
    """Return M: an int as it is, a fraction of the rows rounded, at least 1; our choice for "auto"."""
    if isinstance(n_inducing, str):
        fewest, most = FIXED_INDUCING
        fixed = min(max(fewest, math.isqrt(round(FIXED_WORK / (n_classes * n_rows)))), most)
        return N_INDUCING if not searches else fixed if is_full else SEARCHED_INDUCING
    return int(n_inducing) if _is_int(n_inducing) else max(1, round(float(n_inducing) * n_rows))


def batch_size_of(s: Settings, n_rows: int) -> int | None:
    """Return the rows of a mini-batch; None if training uses all rows at once."""
    size = s.batch_size
    if size == "auto":
        size = None if n_rows <= FULL_BATCH_ROWS or s.converges_first else BATCH_SIZE
    return None if size is None or int(size) >= n_rows else int(size)


def _max_epochs(s: Settings, n_rows: int, batch_size: int | None, searches: bool) -> int:
    if s.max_epochs != "auto":
        return int(s.max_epochs)
    if not s.learns:
        return INFERENCE_SWEEPS
    if batch_size is None:
        return LBFGS_EPOCHS if s.converges_first and s.optimizer in ("auto", "lbfgs") else EPOCHS
    steps = min(max(n_rows // STEP_ROWS, SEARCHED_STEPS), STEPS) if searches else STEPS
    return max(1, math.ceil(steps * batch_size / n_rows))


def _dtype(s: Settings, is_exact: bool) -> str:
    """Return the precision for "auto": single where products with the inputs take most of a step, on a CPU.

    Double where results must not depend on the order of sums: 1 or 2 processes end with the same model.
    """
    return "float64" if is_exact or choose_device(s.device).type != "cpu" else "float32"


def _damping(method: str, n_rows: int, batch_size: int | None) -> float:
    if batch_size is None:
        return DAMPING[method]
    if method == "vi":  # a natural gradient estimated from a batch: the smaller the batch, the shorter the step
        return min(BATCH_DAMPING["vi"], max(batch_size / n_rows, LEAST_VI_DAMPING))
    return BATCH_DAMPING[method]


def _calibration(s: Settings, n_rows: int, is_full: bool) -> tuple[int, int]:
    """Return the folds of cross-fitting and the rows held out; both 0 where only q(u) is inferred.

    With mini-batches a few thousand held-out rows determine the sharpness, and training does not miss them.
    """
    if s.calibrate is False or (s.calibrate == "auto" and not s.learns):
        return 0, 0
    if s.calibrate is True or s.calibrate == "auto":
        held_out = min(max(n_rows // HELD_OUT_FRACTION, LEAST_HELD_OUT), MOST_HELD_OUT, n_rows // LARGEST_FRACTION)
        return (FOLDS, 0) if is_full else (0, held_out)
    return int(s.calibrate), 0


Rule = tuple[Callable[[Any], bool], str]


def _one_of(*values: Any) -> Rule:
    return (lambda v: any(v is a or (isinstance(v, str) and v == a) for a in values)), f"one of {list(values)}"


def _is_int(v: object) -> bool:
    return not isinstance(v, bool) and isinstance(v, Integral)


def _is_real(v: Any) -> bool:
    return not isinstance(v, bool) and isinstance(v, Real) and math.isfinite(v)


def _is_positive(v: Any) -> bool:
    return _is_real(v) and v > 0


def _is_count(v: Any) -> bool:
    return _is_int(v) and v >= 1


def _is_auto(v: object) -> bool:
    return isinstance(v, str) and v == "auto"


def _is_prior_dict(v: Any) -> bool:
    if not isinstance(v, Mapping) or not set(v) <= set(PRIORS):
        return False
    return all(_is_sd(entry) if name in POOLED else _is_prior(entry) for name, entry in v.items())


def _is_prior(entry: Any) -> bool:
    if not isinstance(entry, tuple) or len(entry) not in (2, 3):
        return False
    median, *sds = entry
    return (median is None or _is_positive(median)) and all(map(_is_sd, sds))


def _is_sd(v: Any) -> bool:
    return not isinstance(v, bool) and isinstance(v, Real) and float(v) > 0


_RULES: dict[str, Rule] = {
    "method": _one_of("auto", *METHODS),
    "n_inducing": (
        lambda v: _is_auto(v) or _is_count(v) or (_is_real(v) and not _is_int(v) and 0 < v <= 1),
        "'auto', a positive int, or a float in (0, 1] for a fraction of the training rows",
    ),
    "init": _one_of("kmeans", "kmeans-per-class", "random", "paper"),
    "share_kernel": _one_of(True, False),
    "share_inducing": _one_of(True, False),
    "learn_kernel": _one_of(True, False),
    "learn_inducing": _one_of(True, False),
    "priors": (
        lambda v: v is None or (isinstance(v, str) and v == "default") or _is_prior_dict(v),
        "'default', None, or a dict that maps 'lengthscale', 'variance', 'noise' to (median, sd of the log) and "
        "'relevance', 'spread' to an sd",
    ),
    "scaling": _one_of("default", None, "standard", "common", "quantile", "power", "auto"),
    "calibrate": (
        lambda v: isinstance(v, bool) or _is_auto(v) or (_is_int(v) and v >= 2),
        "'auto', True, False or a number of folds, at least 2",
    ),
    "batch_size": (lambda v: v is None or _is_auto(v) or _is_count(v), "'auto', None (all rows) or a positive int"),
    "max_epochs": (lambda v: _is_auto(v) or _is_count(v), "'auto' or a positive int"),
    "max_seconds": (lambda v: v is None or _is_positive(v), "None or a positive number"),
    "tol": (lambda v: _is_auto(v) or (_is_real(v) and v >= 0), "'auto' or a number at or above 0"),
    "optimizer": _one_of("auto", "adam", "paper", "lbfgs"),
    "learning_rate": (lambda v: v is None or _is_positive(v), "None or a positive number"),
    "damping": (lambda v: v is None or (_is_real(v) and 0 < v <= 1), "None or a number in (0, 1]"),
    "alpha": (lambda v: _is_real(v) and 0 < v <= 1, "a number in (0, 1]"),
    "updates": _one_of("inner", "inner-exact", "outer"),
    "device": (lambda v: isinstance(v, str), "'auto' or the name of a torch device, such as 'cpu' or 'cuda:0'"),
    "memory_limit": (lambda v: v is None or _is_sd(v), "None or a positive number of bytes, such as 8e9 or math.inf"),
    "dtype": _one_of("auto", "float64", "float32"),
    "checkpoint": (
        lambda v: v is None or (isinstance(v, str | os.PathLike) and bool(os.fspath(v))),
        "None or the path of a folder",
    ),
    "checkpoint_seconds": (lambda v: _is_real(v) and v >= 0, "a number of seconds at or above 0"),
    "distributed": _one_of(True, False, "auto"),
    "verbose": (lambda v: isinstance(v, bool | Integral), "0 (silent), 1 (a progress bar) or 2 (a line per epoch)"),
}
