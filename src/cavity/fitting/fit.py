"""What one call of `fit` does once its rows are validated: scale, start, train, calibrate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.data import ArrayData, StreamData, Survey
from cavity.data.arrays import Share
from cavity.data.base import Data
from cavity.data.source import Source
from cavity.fitting.calibration import HeldOut, best_sharpness, folds, held_out
from cavity.fitting.encoding import Scaler, fit_scaler, standard_scaler
from cavity.fitting.rows import Rows
from cavity.fitting.settings import LEAST_HELD_OUT, Choice, make_lbfgs, make_optimizer, prior_spec
from cavity.kernels import RBF
from cavity.kernels.base import numbers
from cavity.numerics.linalg import FactorizationError
from cavity.runtime.device import DTYPES
from cavity.runtime.distributed import SINGLE_PROCESS, Workers
from cavity.training import (
    HyperPrior,
    Keeper,
    Model,
    Record,
    Stop,
    Trained,
    Trainer,
    TrainingError,
    Watch,
    median_distance,
    start_inducing,
    start_model,
    train_lbfgs,
)

Array = NDArray[np.float64]

TRIAL_EPOCHS = 60
NUDGE = 1e-3  # of a length-scale, for inducing points at their start
MOST_HELD_NUMBERS = 500_000  # rows times classes that are held out for calibration
INDUCING_ROWS = 10_000  # of a source, at least, that inducing points are chosen from


class Fit(NamedTuple):
    """A scaled and trained model, and the weight of each class's rows that it has learned from."""

    scaler: Scaler
    model: Model
    trained: Trained
    own_weight: Array

    def seen(self, rows: Rows) -> HeldOut:
        """What it says of rows that it has not learned from."""
        return held_out(self.trained.posterior, torch.from_numpy(self.scaler.transform(rows.X)), rows)


def array_data(
    rows: Rows,
    scaler: Scaler,
    n_classes: int,
    device: torch.device,
    dtype: torch.dtype,
    workers: Workers = SINGLE_PROCESS,
) -> ArrayData:
    """This rank's block of the rows, scaled, on the device."""
    n = len(rows.X)
    first, last = workers.rank * n // workers.size, (workers.rank + 1) * n // workers.size
    own_weight = torch.from_numpy(np.bincount(rows.y, rows.weight, n_classes)).to(device)
    X = torch.as_tensor(scaler.transform(rows.X[first:last]), dtype=dtype, device=device)
    y, weight = (torch.as_tensor(part[first:last], device=device) for part in (rows.y, rows.weight))
    return ArrayData(X, y, weight, n_classes, Share(first, n, own_weight) if workers.size > 1 else None)


@dataclass(frozen=True)
class Fitting:
    """One fit.

    Args:
        params: the arguments of the classifier.
        choice: what they come to for so many rows.
        n_classes: C.
        device: where to train.
        workers: the processes that share the rows.
        report: told of every record of the history.
        watch: makes, for a scaler, what looks at the model on its way.
        keeper: makes what writes checkpoints, by the name of the fit.
        stop: asks to end training after the step at hand.
    """

    params: dict[str, Any]
    choice: Choice
    n_classes: int
    device: torch.device
    workers: Workers = SINGLE_PROCESS
    report: Callable[[Record], None] | None = None
    watch: Callable[[Scaler], Watch | None] = lambda _: None
    keeper: Callable[[str], Keeper | None] = lambda _: None
    stop: Stop | None = None

    def on_rows(self, rows: Rows) -> tuple[Fit, float]:
        """Train on rows in memory; the fit and its sharpness."""
        scaling = self.params["scaling"]
        scaling = self._choose_scaling(rows) if scaling == "auto" else scaling
        rows, held = self._hold_out(rows)
        fit = self._of_rows(rows, scaling, "fit", is_main=True)
        if self.choice.folds:
            return fit, self._cross_fit(rows, scaling, fit.trained)
        return fit, best_sharpness([fit.seen(held)] if held else [])

    def on_source(self, source: Source, survey: Survey, class_weight: Array) -> tuple[Fit, float]:
        """Train on rows that are read again and again; of a sample of them, some set the sharpness."""
        n_held = self._n_held
        held, sample = (_sampled(survey, class_weight, which) for which in (slice(n_held), slice(n_held, None)))
        if self.params["scaling"] == "quantile":
            scaler = fit_scaler("quantile", sample.X, sample.weight)
        else:
            scaler = standard_scaler(self.params["scaling"], survey.mean, survey.sd, survey.size)
        skip = _places(survey, n_held)

        def data(dtype: torch.dtype) -> StreamData:
            return StreamData(source, survey, scaler, class_weight, skip, self.device, dtype, self.workers)

        fit = self._train(data, sample, scaler, "fit", is_main=True)
        return fit, best_sharpness([fit.seen(held)] if n_held else [])

    def start(self, rows: Rows, scaler: Scaler) -> Model:
        """The model at its start values, by these rows."""
        params, start, X = self.params, self.choice.start, scaler.transform(rows.X)
        given, seed = self._given_inducing(scaler, X.shape[1]), self.choice.plan.seed
        lengthscale = start.lengthscale * median_distance(X, np.random.default_rng(seed)) ** start.power
        nudge = NUDGE * lengthscale if params["learn_inducing"] and params["init"] != "paper" else 0.0
        rng = np.random.default_rng(seed)
        Z = start_inducing(given, X, rows.y, self.n_classes, self.choice.n_inducing, params["init"], nudge, rng)
        model = start_model(
            RBF(variance=start.variance) if params["kernel"] is None else params["kernel"],
            X,
            self.n_classes,
            Z,
            start.noise if params["noise"] is None else numbers("noise", params["noise"]),
            (params["learn_kernel"], params["learn_inducing"]),
            (params["share_kernel"], params["share_inducing"]),
            lengthscale,
            self.device,
            DTYPES[params["dtype"]],
        )
        return replace(model, values={name: self.workers.same(value) for name, value in model.values.items()})

    def _of_rows(self, rows: Rows, scaling: str | None, name: str, is_main: bool = False) -> Fit:
        scaler = fit_scaler(scaling, rows.X, rows.weight)

        def data(dtype: torch.dtype) -> ArrayData:
            return array_data(rows, scaler, self.n_classes, self.device, dtype, self.workers)

        return self._train(data, rows, scaler, name, is_main)

    def _train(
        self, data_in: Callable[[torch.dtype], Data], sample: Rows, scaler: Scaler, name: str, is_main: bool
    ) -> Fit:
        """The one way from scaled rows to a trained model; only the main fit of several is reported and watched."""
        choice, model = self.choice, self.start(sample, scaler)
        data = data_in(model.dtype)
        if choice.method.learns_q:
            model = model.with_q(choice.method.init(model.prior(model.start()), data.own_weight, len(data)))
        report, watch = (self.report, self.watch(scaler)) if is_main else (None, None)
        hyper_prior = HyperPrior(model, prior_spec(self.params["priors"]))
        keeper = self.keeper(name)
        trainer = Trainer(
            model, choice.method, data, choice.plan, hyper_prior, report, watch, keeper, self.stop, self.workers
        )
        if model.dtype != DTYPES[self.params["dtype"]]:
            dtype = self.params["dtype"]
            trainer.note(0, None, 0.0, f"dtype={dtype!r} is too coarse for these rows: distances in float64")
        own_weight = data.own_weight.cpu().numpy()
        return Fit(scaler, model, self._trained(trainer, float(own_weight.sum())), own_weight)

    def _trained(self, trainer: Trainer, weight: float) -> Trained:
        choice, model = self.choice, trainer.model
        try:
            if not model.learned:
                return trainer.infer()
            lbfgs = make_lbfgs(choice, model)
            if lbfgs is not None:
                return train_lbfgs(trainer, lbfgs)
            return trainer.train(make_optimizer(choice, model, weight))
        except FactorizationError as error:
            raise trainer.failure(error) from error

    def _choose_scaling(self, rows: Rows) -> str:
        """The scaling with the better log Z_q after a short training on the same rows."""
        epochs = min(TRIAL_EPOCHS, self.choice.plan.max_epochs)
        seconds = self.params["max_seconds"] and 0.2 * self.params["max_seconds"]
        plan = replace(self.choice.plan, max_epochs=epochs, max_seconds=seconds)
        trial = replace(self, choice=replace(self.choice, plan=plan), keeper=lambda _: None)
        return max(("standard", "quantile"), key=lambda scaling: trial._of_rows(rows, scaling, "trial").trained.log_z)

    @property
    def _n_held(self) -> int:
        """Rows held out; fewer where there are many classes, each of which costs a quadrature a row."""
        return min(self.choice.n_held_out, max(LEAST_HELD_OUT, MOST_HELD_NUMBERS // self.n_classes))

    def _hold_out(self, rows: Rows) -> tuple[Rows, Rows | None]:
        """The rows to learn from, and those that calibration needs, if any."""
        if not self._n_held:
            return rows, None
        parts = folds(rows.y, -(-len(rows.y) // self._n_held), self.choice.plan.seed)
        learn, hold = next(parts, (None, None))  # no row can be spared where each is the only one of its class
        return (rows, None) if learn is None or hold is None else (rows.take(learn), rows.take(hold))

    def _cross_fit(self, rows: Rows, scaling: str | None, trained: Trained) -> float:
        """The sharpness, by fits that leave some of the rows out; 1 where rows are too few or such a fit fails."""
        count = self.choice.folds
        if len(rows.y) < 2 * count or self._is_stopped(trained):
            return 1.0
        if self.report is not None:
            self.report({"epoch": trained.epochs, "objective": None, "event": f"calibration by {count} more fits"})
        parts = []
        for i, (learn, hold) in enumerate(folds(rows.y, count, self.choice.plan.seed)):
            try:
                fit = self._of_rows(rows.take(learn), scaling, f"fold-{i}")
            except TrainingError as error:
                trained.history.note(f"not calibrated: {error}")
                return 1.0
            if self._is_stopped(trained):
                return 1.0
            parts.append(fit.seen(rows.take(hold)))
        return best_sharpness(parts)

    def _is_stopped(self, trained: Trained) -> bool:
        """Whether calibration is to end here, unfinished."""
        is_stopped = self.stop is not None and self.workers.largest(float(self.stop.is_set())) > 0.0
        if is_stopped:
            trained.history.note("stopped: not calibrated")
        return is_stopped

    def _given_inducing(self, scaler: Scaler, n_features: int) -> Array | None:
        if self.params["inducing_points"] is None:
            return None
        Z, C = numbers("inducing_points", self.params["inducing_points"]), self.n_classes
        fits = Z.ndim in (2, 3) and Z.shape[-1] == n_features and Z.size and (Z.ndim == 2 or len(Z) == C)
        if not (fits and np.isfinite(Z).all()):
            raise ValueError(f"inducing_points has shape {Z.shape}; finite numbers of shape (M, {n_features}) or "
                             f"({C}, M, {n_features}) are needed")  # fmt: skip
        return scaler.transform(Z.reshape(-1, n_features)).reshape(Z.shape)


def _sampled(survey: Survey, class_weight: Array, which: slice) -> Rows:
    """Rows of the sample."""
    X, y = survey.sample.X[which], survey.sample.y[which]
    return Rows(X, y, class_weight[y])


def _places(survey: Survey, count: int) -> dict[int, NDArray[np.int64]]:
    """Where the first rows of the sample are: by lane, sorted."""
    lane, row = survey.sample.lane[:count], survey.sample.row[:count]
    return {int(i): np.sort(row[lane == i]) for i in np.unique(lane)}
