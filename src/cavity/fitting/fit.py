"""One fit: encode, initialize, train, calibrate.

`fit_rows` and `fit_source` turn validated data into a `FittedModel`, whose values the classifier publishes as its
attributes. `OnlineFit` does the same for `partial_fit`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cavity.data import Survey, read_all, survey
from cavity.data.labels import encode, listed
from cavity.data.profile import Profile
from cavity.data.schema import CATEGORY, DATE, LEFT_OUT, NUMBER, TIME, Schema, describe_left_out
from cavity.data.shuffle import find_hashes
from cavity.data.source import Source, coded, schema_of
from cavity.data.surveys import find_copies
from cavity.data.training_data import ArrayData, Data, Shard, StreamData
from cavity.files.json_values import to_json
from cavity.fitting.calibration import LOG_SD, Calibration, HeldOut, calibrate, predict_held_out, split_rows
from cavity.fitting.conformal import HeldOutScores
from cavity.fitting.encoding import (
    Encoding,
    TableEncoding,
    encode_training,
    fit_encoding,
    has_common_unit,
    most_features,
    standard_scaler,
)
from cavity.fitting.many_features import for_many_features
from cavity.fitting.novelty import Metric, Novelty, left_out_parts
from cavity.fitting.rows import (
    TrainingRows,
    TrainingTable,
    check_two_classes,
    class_weights,
    draw_seed,
    merge_equal_rows,
    weights_by_class,
)
from cavity.fitting.search import (
    KERNELS,
    LOG_SHARPNESS_SD,
    MAX_EPOCHS,
    NOISE,
    SHARED_FROM,
    STEPS,
    THRESHOLDS,
    TRIAL_STEPS,
    Search,
    left_out_rows,
)
from cavity.fitting.settings import HELD_OUT_FRACTION, LEAST_HELD_OUT, MOST_HELD_OUT, FitPlan, Settings, plan_fit
from cavity.gp.gaussian import Posterior, Whitened
from cavity.gp.residual import SAMPLE_ROWS, Residual, full_residual, measure_residual
from cavity.inference import METHODS
from cavity.inference.base import factor_counts
from cavity.inference.ep import leave_one_out
from cavity.inference.sep import SEPState
from cavity.kernels import BY_NAME, Kernel
from cavity.kernels.base import numbers
from cavity.kernels.grouped import for_groups
from cavity.numerics.linalg import FactorizationError, JitterLog, vector_times
from cavity.runtime.device import DTYPES, choose_device, without_autograd
from cavity.runtime.distributed import SINGLE_PROCESS, Workers
from cavity.runtime.memory import SOURCE_ROWS, FitSize, available_bytes, check_memory
from cavity.runtime.progress import Progress, show_progress
from cavity.runtime.threads import keep_freed_memory, limit_threads, spin_when_idle
from cavity.runtime.warnings import CavityWarning
from cavity.training.checkpoint import Checkpointer, Checkpoints, check_unused
from cavity.training.history import NUMERICAL_EVENTS, Clock, Event, History, Record, Stop, Watch, describe
from cavity.training.initial import ROWS_PER_CENTER, initial_inducing_points, initial_prior, median_distance
from cavity.training.lbfgs import train_lbfgs
from cavity.training.loop import PASS_COST, Trainer
from cavity.training.online import OnlineTrainer, tie_sites
from cavity.training.parameters import HyperPrior, ParametricPrior
from cavity.training.plan import FINAL_SWEEPS, Trained, TrainingError
from cavity.training.step import blocks_of

Array = NDArray[np.float64]

TRIAL_EPOCHS = 60
FINAL_PASSES = 2  # over the rows after the last epoch: one for the sums of the sites, one for log Z
NUDGE = 1e-3  # initial displacement of inducing points, in length-scales
MOST_HELD_OUT_NUMBERS = 500_000  # rows times classes that are held out for calibration
INDUCING_ROWS = 10_000  # of a source, at least, that inducing points are chosen from
ONLINE_BATCH = 256
RESIDUAL_ROWS = 32  # of a call of `partial_fit`, at least, to measure the residual of f
FEW_VALUES = 20  # of a column of numbers in a table whose rows have natural copies, at most
CAUTION = 2.0  # standard errors by which a model that was cut short must be better than class frequencies
FREE_TO_CHANGE = ("checkpoint", "checkpoint_seconds", "distributed", "memory_limit", "verbose")  # by a resumed fit


@dataclass(frozen=True)
class FitOptions:
    """What a call of `fit` adds to the settings.

    Attributes:
        settings: the arguments of the classifier.
        seed: of everything random, equal on all workers.
        workers: the processes that share the rows.
        resume: whether to continue from the last checkpoint.
        stop: asks training to end after the current step.
        watch: shows the model during training; its `look` receives a `FittedModel` and the seconds.
    """

    settings: Settings
    seed: int
    workers: Workers = SINGLE_PROCESS
    resume: bool = False
    stop: Stop | None = None
    watch: Watch | None = None


class DataDescription(NamedTuple):
    """What is known of the training data beside the rows.

    Attributes:
        classes: labels, sorted.
        class_counts: rows of each class.
        class_weight: total weight of the rows of each class.
        n_features: D.
        feature_names: of frames and files.
        fingerprint: identifies the data, for JSON.
        constant: lists the features that have the same value in all rows, in words; "" for none.
        schema: what the columns hold; None where all hold numbers.
    """

    classes: NDArray[Any]
    class_counts: NDArray[np.int64]
    class_weight: Array
    n_features: int
    feature_names: NDArray[Any] | None
    fingerprint: dict[str, Any]
    constant: str = ""
    schema: Schema | None = None


class FittedModel(NamedTuple):
    """The result of a fit: everything that the classifier publishes.

    Attributes:
        classes: labels, sorted.
        n_features: D.
        feature_names: of frames and files.
        schema: what the columns hold; None where all hold numbers.
        encoding: of the cells.
        posterior: q(u) on the CPU, with its sharpness.
        method: the method used.
        history: the records of training.
        n_iter: epochs.
        log_marginal_likelihood: log Z_q, or the bound of VI.
        training: describes the training rows, for JSON.
        held_out: the scores of held-out rows, for prediction sets; None without such rows.
        online: what `partial_fit` continues from; None if it cannot.
        novelty: what tells how unlike the training rows a row is; None in older files and during training.
    """

    classes: NDArray[Any]
    n_features: int
    feature_names: NDArray[Any] | None
    schema: Schema | None
    encoding: Encoding
    posterior: Posterior
    method: str
    history: list[Record]
    n_iter: int
    log_marginal_likelihood: float
    training: dict[str, Any]
    held_out: HeldOutScores | None = None
    online: OnlineFit | None = None
    novelty: Novelty | None = None


def choose_seed(settings: Settings, resume: bool, workers: Workers) -> int:
    """Return the seed of a fit, equal on all workers: that of the checkpoint if `random_state` leaves it open.

    Raises:
        ValueError: if the fit does not resume and its folder has checkpoints of an earlier run.
    """
    if settings.checkpoint is not None and not resume:
        check_unused(Path(settings.checkpoint), workers)
    seed = draw_seed(settings.random_state)
    if resume and settings.checkpoint is not None and settings.random_state is None:
        saved = Checkpoints(Path(settings.checkpoint)).latest()
        seed = seed if saved is None else saved.meta()["about"]["seed"]
    return workers.broadcast(seed)


def fit_rows(table: TrainingTable, options: FitOptions) -> FittedModel:
    """Fit rows in memory."""
    check_two_classes(table.classes)
    rows, settings = merge_equal_rows(table.rows), options.settings
    if table.schema is None:
        settings = for_many_features(settings, rows.X, rows.y, len(rows.X), _is_gpu(settings))
    plan = plan_fit(settings, len(rows.X), options.seed, len(table.classes), rows.X.shape[1])
    counts = np.bincount(table.rows.y, minlength=len(table.classes))
    weight = np.bincount(rows.y, rows.weight, len(table.classes)).astype(np.float64)
    _warn_left_out(table.schema, options)
    constant = _constant_features(_is_constant(rows.X, table.schema), table.feature_names, options)
    fingerprint = rows.fingerprint() | ({} if table.schema is None else table.schema.fingerprint())
    description = counts, weight, rows.X.shape[1], table.feature_names, fingerprint, constant, table.schema
    data = DataDescription(table.classes, *description)
    _check_memory(plan, data, options.workers, len(rows.X), rows.X.nbytes)
    with _resources(plan, data, options.workers) as report:
        fit = Fit(plan, data, options, report)
        trained, held_out = fit.on_rows(rows)
    return fit.result(trained, held_out)


def fit_source(source: Source, known: Survey | None, options: FitOptions) -> FittedModel:
    """Fit the rows of a source; they are read into memory only if training uses all of them at once."""
    settings, workers, seed = options.settings, options.workers, options.seed
    if workers.size > source.lanes:
        raise ValueError(
            f"the source must have a lane for each process, got {source.lanes} lanes and {workers.size} processes: "
            f"start fewer processes, or create the source with lanes={workers.size}"
        )
    if known is None:
        wanted = ROWS_PER_CENTER * settings.n_inducing if isinstance(settings.n_inducing, int) else 0
        known = survey(source, sample_rows=MOST_HELD_OUT + max(INDUCING_ROWS, wanted), seed=seed, workers=workers)
    if known.schema is None and schema_of(source) is not None:
        raise ValueError("survey must be of this source, which has categories or dates: use cavity.data.survey(source)")
    source = coded(source, known.schema)
    names = None if known.feature_names is None else np.array(known.feature_names, dtype=object)
    class_weight = weights_by_class(settings.class_weight, known.classes, known.class_counts)
    weight = known.class_counts * class_weight
    if known.schema is None:
        sample = known.sample
        settings = for_many_features(settings, sample.X, sample.y, known.n_rows, _is_gpu(settings))
    plan = plan_fit(settings, known.n_rows, seed, len(known.classes), known.n_features)
    constant = ""
    if not plan.is_full_batch:
        _warn_left_out(known.schema, options)
        constant = _constant_features(known.is_constant, names, options)
    about = known.n_features, names, known.fingerprint, constant, known.schema
    data = DataDescription(known.classes, known.class_counts, weight, *about)
    _check_memory(plan, data, workers, known.n_rows if plan.is_full_batch else SOURCE_ROWS)
    if plan.is_full_batch:
        X, y = read_all(source)
        rows = TrainingRows(X, encode(y, data.classes), class_weights(settings.class_weight, y))
        return fit_rows(TrainingTable(rows, data.classes, names, known.schema), options)
    check_two_classes(data.classes)
    if settings.scaling == "auto" or plan.folds:
        what = "scaling='auto'" if settings.scaling == "auto" else f"calibrate={settings.calibrate}"
        raise ValueError(
            f"{what} needs several fits on all rows in memory, which a source in mini-batches does not allow; use "
            "scaling='standard' or 'quantile', and calibrate='auto'"
        )
    with _resources(plan, data, workers) as report:
        fit = Fit(plan, data, options, report)
        trained, held_out = fit.on_source(source, known, class_weight)
    return fit.result(trained, held_out)


def _is_gpu(settings: Settings) -> bool:
    return choose_device(settings.device).type == "cuda"


def _is_constant(X: Array, schema: Schema | None) -> NDArray[np.bool_]:
    """Return which columns have one value in all rows; those left out are not counted."""
    if schema is None and not np.isnan(low := X.min(0)).any():
        return np.asarray(low == X.max(0))
    same = np.array([len(np.unique(column)) == 1 for column in X.T])  # all gaps are one value here
    return same if schema is None else same & [column.kind != LEFT_OUT for column in schema.columns]


def _warn_left_out(schema: Schema | None, options: FitOptions) -> None:
    found = "" if schema is None else describe_left_out(schema)
    if found and options.workers.rank == 0:
        text = f"X has columns that are left out: {found}; convert them or remove them"
        warnings.warn(text, CavityWarning, stacklevel=4)


def _constant_features(is_constant: NDArray[np.bool_], names: NDArray[Any] | None, options: FitOptions) -> str:
    """List the constant features; warn about them if they have names and no progress is shown.

    Features without names are often pixels, of which some are always constant.
    """
    found = listed(np.flatnonzero(is_constant) if names is None else names[is_constant])
    if found and names is not None and not options.settings.verbose and options.workers.rank == 0:
        text = f"X has columns that are constant in all rows and have no effect: {found}; remove or correct them"
        warnings.warn(text, CavityWarning, stacklevel=4)
    return found


def _check_memory(
    plan: FitPlan, data: DataDescription, workers: Workers, resident_rows: int, held_bytes: int = 0
) -> None:
    """Raise ValueError if the fit exceeds `memory_limit`, or the free memory plus the `held_bytes` it holds already."""
    s, n_rows = plan.settings, -(-plan.n_rows // workers.size)
    batch_rows = n_rows if plan.training.batch_size is None else -(-plan.training.batch_size // workers.size)
    n_features = data.n_features if data.schema is None else most_features(data.schema, len(data.classes))
    sizes = len(data.classes), plan.n_inducing, n_features, batch_rows, n_rows
    device, shares = choose_device(s.device), (s.share_kernel, s.share_inducing)
    size = FitSize(plan.method, *sizes, *shares, plan.dtype, resident_rows, workers.size, device.type)
    free = available_bytes(device)
    free = free and free // workers.local_size + held_bytes
    check_memory(size, *((free,) if s.memory_limit is None else (s.memory_limit, "memory_limit allows only")))


@contextmanager
def _resources(plan: FitPlan, data: DataDescription, workers: Workers) -> Iterator[Progress | None]:
    """Set threads, memory and progress for the time of a fit; yield what displays progress."""
    settings, training = plan.settings, plan.training
    largest_block = len(data.classes) * plan.n_inducing * (training.batch_size or plan.n_rows)
    verbose = settings.verbose if workers.rank == 0 else 0
    with (
        without_autograd(choose_device(settings.device)),
        limit_threads(largest_block),
        keep_freed_memory(),
        show_progress(
            f"cavity {plan.method}",
            MAX_EPOCHS if plan.is_full_gp else training.max_epochs,
            verbose,
            describe,
            search=TRIAL_STEPS + STEPS if plan.searches and not plan.is_full_gp else 0,
            trials=min(TRIAL_EPOCHS, training.max_epochs) if settings.scaling == "auto" and not plan.searches else 0,
            final=PASS_COST * (training.final_sweeps + FINAL_PASSES),
            folds=plan.folds,
            max_seconds=settings.max_seconds,
        ) as report,
    ):
        yield report


class Found(NamedTuple):
    """The result of a search on some rows.

    Attributes:
        scaling, encoding: the best one.
        kernel: the best one, with its parameters.
        seconds: that the search took.
        is_cut: whether a time limit has ended it early.
        records: of its history.
    """

    scaling: str | None
    encoding: Encoding
    kernel: Kernel
    seconds: float
    is_cut: bool
    records: list[Record]


class TrainedModel(NamedTuple):
    """A trained model with its encoding, and the weight of each class's rows that it has learned from."""

    encoding: Encoding
    model: ParametricPrior
    trained: Trained
    own_weight: Array

    def predict(self, held_out: TrainingRows) -> HeldOut:
        """Predict rows that the model has not learned from."""
        return predict_held_out(self.trained.posterior, self.encoding, held_out, self.own_weight)


class Calibrated(NamedTuple):
    """What held-out rows are for.

    Attributes:
        calibration: of the probabilities.
        scores: of their labels, if there are such rows.
        novelty: what tells how unlike the training rows a row is.
    """

    calibration: Calibration = Calibration()
    scores: HeldOutScores | None = None
    novelty: Novelty | None = None


@dataclass(frozen=True)
class Fit:
    """One fit, with its plan.

    Attributes:
        plan: the resolved settings.
        data: describes the training data.
        options: what the call of `fit` asked for.
        report: displays records of the history and progress; None for no display.
        is_trial: whether the result is only compared: no display, no checkpoints, no watch.
    """

    plan: FitPlan
    data: DataDescription
    options: FitOptions
    report: Progress | None = None
    is_trial: bool = False

    def on_rows(self, rows: TrainingRows) -> tuple[TrainedModel, Calibrated]:
        """Train on rows in memory; return the model and its calibration."""
        if self.plan.is_full_gp:
            return self._full_gp(rows)
        if self.plan.searches:
            return self._searched(rows)
        scaling = self.plan.settings.scaling
        scaling = self._choose_scaling(rows) if scaling == "auto" else scaling
        rows, held_out = self._hold_out(rows)
        model = self._train_rows(rows, scaling, "fit")
        if self.plan.folds:
            return self._cross_fit(rows, scaling, model)
        return self._held_out(rows, model, held_out)

    def on_source(self, source: Source, known: Survey, class_weight: Array) -> tuple[TrainedModel, Calibrated]:
        """Train on rows that are read again in every epoch; some rows of the survey's sample are held out."""
        n_held, drawn, found = self._n_held_out, known.sample, None
        sample = TrainingRows(drawn.X, drawn.y, class_weight[drawn.y])
        most = max(n_held, known.n_rows // HELD_OUT_FRACTION)
        skip = find_copies(source, known, n_held, most, self.options.workers) if n_held else None
        place = np.full(len(sample.y), -1) if skip is None else find_hashes(sample.X, skip.hashes)
        statistics = known.statistics
        if statistics is not None and skip is not None and skip.by_class is not None:
            hashes, first = np.unique(place[place >= 0], return_index=True)
            statistics = statistics.without(known.schema, sample.X[place >= 0][first], skip.by_class[hashes])
        held_out, sample = sample.take(np.flatnonzero(place >= 0)[:n_held]), sample.take(np.flatnonzero(place < 0))
        levels = None if statistics is None else statistics.levels()
        statistics = None if statistics is None else statistics.weighted(class_weight)
        of_all = known.mean, known.sd, known.size, known.schema

        def fitted(scaling: str | None) -> Encoding:
            scaler = None if scaling in ("quantile", "power") else standard_scaler(scaling, *of_all)
            return fit_encoding(known.schema, scaling, *sample, len(known.classes), statistics, scaler)

        if self.plan.searches:
            found = self._choose(sample, fitted)
        encoding = fitted(self.plan.settings.scaling) if found is None else found.encoding

        def stream(dtype: torch.dtype) -> StreamData:
            transform = partial(encode_training, encoding)
            return StreamData(source, known, transform, class_weight, skip, self._device, dtype, self.options.workers)

        model = self._train(stream, encode_rows(encoding, sample), encoding, "fit", found)
        return self._held_out(sample, model, held_out if len(held_out.y) else None, levels)

    def _searched(self, rows: TrainingRows) -> tuple[TrainedModel, Calibrated]:
        """Search for kernel and scaling on some rows, then fit all: by EP with both fixed, or by mini-batches."""
        rows, held_out = self._hold_out(rows)
        found = self._choose(rows, lambda scaling: self._fit_encoding(scaling, rows))
        model = self._train_rows(rows, found.scaling, "fit", found)
        if found.is_cut and self.plan.is_full_batch and not _is_cut(model.trained):
            model.trained.history.note(Event.TIME_LIMIT, max_epochs=MAX_EPOCHS)
        if held_out is not None or not self.plan.is_full_batch:
            return self._held_out(rows, model, held_out)
        return self._left_out(rows, model, self._leave_out(rows, model))

    def _choose(self, rows: TrainingRows, fitted: Callable[[str | None], Encoding]) -> Found:
        """Return the best kernel and scaling, by a search on some of the rows; `fitted` is the encoding of a scaling.

        A fit that can resume makes the same search again, so no time limit may cut it.
        """
        s, report = self.plan.settings, self.report
        if report is not None:
            report.begin("search")
        history = History(None if report is None else lambda record: report.advance(record["epoch"]))
        search = self._search(rows, history, None if s.checkpoint is not None else s.max_seconds)
        with torch.inference_mode(False), torch.no_grad(), JitterLog():
            try:
                best = search.choose(self._candidates(rows, fitted))
            except FactorizationError as error:
                raise TrainingError(f"training failed: {error}. Check X for columns of extreme values.") from error
        is_cut = search.is_cut and not search.clock.is_stopped()
        choice, seconds = best.choice, search.clock.seconds()
        return Found(choice.scaling, choice.encoding, best.kernel, seconds, is_cut, search.history.records)

    def _leave_out(self, rows: TrainingRows, model: TrainedModel) -> HeldOut:
        """Return the leave-one-out predictions of EP on all rows, the same on all workers."""
        workers, C, trained = self.options.workers, len(self.data.classes), model.trained
        data = array_data(encode_rows(model.encoding, rows), C, self._device, model.model.dtype, workers)
        prior, q, every = model.model.prior(trained.theta), trained.posterior.whitened, data.full
        blocks = blocks_of(prior, every)
        parts = [leave_one_out(prior, trained.state.part(rows), q, every.part(rows)) for rows in blocks]
        found = (torch.cat(of_blocks, -1) for of_blocks in zip(*parts, strict=True))
        at = data.row_ids.to(self._device)
        whole = [x.new_zeros(C, len(rows.y)).index_copy_(1, at, x) for x in found]
        mean, var = (x.cpu() for x in workers.sum(*whole))
        y, weight = torch.from_numpy(rows.y), torch.from_numpy(rows.weight)
        return HeldOut(mean, var, y, weight, 0.0, torch.from_numpy(model.own_weight / model.own_weight.sum()))

    def _search(self, rows: TrainingRows, history: History, max_seconds: float | None) -> Search:
        s, workers = self.plan.settings, self.options.workers
        clock = Clock(MAX_EPOCHS, max_seconds, workers, self.options.stop)
        kernels: list[Sequence[str]] = [KERNELS] if s.kernel is None else [(str(s.kernel),)]
        if s.kernel is None and self._n_numbers > 1:
            kernels.append(THRESHOLDS)
        about = kernels, s.calibrate is not False, self.plan.training.seed, self._device, clock, history, workers
        return Search(rows, len(self.data.classes), *about)

    def _full_gp(self, rows: TrainingRows) -> tuple[TrainedModel, Calibrated]:
        """Find the best full Gaussian process; its leave-one-out predictions calibrate it."""
        history = History(self.report)
        search = self._search(rows, history, self.plan.settings.max_seconds)
        if self.data.constant:
            event = Event.CONSTANT_FEATURES
            history.add(
                epoch=0, objective=None, seconds=0.0, rate=0.0, damping=0.0, event=event, features=self.data.constant
            )
        with torch.inference_mode(False), torch.no_grad(), JitterLog() as jitter:
            try:
                found = search.run(self._candidates(rows, lambda scaling: self._fit_encoding(scaling, rows)))
            except FactorizationError as error:
                raise TrainingError(f"training failed: {error}. Check X for columns of extreme values.") from error
            jitter.take()  # of factorizations in single precision, of which nothing remains
            log_z, left_out = found.ep.log_z(found.latent)
            own_weight = (found.ep.labels.own * found.ep.labels.weight).sum(-1)
            state = SEPState(torch.diag_embed(found.latent.tau), found.latent.nu, factor_counts(own_weight))
            prior = found.model.prior(found.theta)
            scaled = prior.L.mT * found.latent.tau[:, None, :]  # u = f, so the sites are a diagonal matrix
            posterior = Posterior(prior, Whitened.from_sites(scaled @ prior.L, vector_times(state.t, prior.L)))
        if search.is_cut:
            history.note(Event.STOPPED if search.clock.is_stopped() else Event.TIME_LIMIT, max_epochs=MAX_EPOCHS)
        if left_out:
            history.note(Event.FACTORS_LEFT_OUT, factors=left_out, of=int((~found.ep.labels.own).sum()))
        if jitter.matrices:
            history.note(Event.JITTER_ADDED, **jitter.take())
        posterior = replace(posterior, residual=full_residual(found.latent.var + NOISE, found.latent.prior_var))
        trained = Trained(found.theta, state, posterior, log_z, history, found.epochs)
        model = TrainedModel(found.encoding, found.model, trained, own_weight.cpu().numpy())
        return self._left_out(rows, model, left_out_rows(found.ep, found.latent))

    def _candidates(
        self, rows: TrainingRows, fitted: Callable[[str | None], Encoding]
    ) -> Iterator[tuple[str | None, Encoding]]:
        """Yield the encodings to compare, with the scaling of each: those that the user leaves open and that differ."""
        given, seen = self.plan.settings.scaling, list[Array]()
        scalings: list[str | None] = [given]
        if given in ("default", "auto"):
            is_alike = self.data.schema is None and has_common_unit(rows.X)
            scalings = [*(["common"] if is_alike else []), given if given == "default" else "standard", "quantile"]
        for scaling in scalings:
            encoding = fitted(scaling)
            X = encode_training(encoding, rows.X)
            if not any(np.array_equal(X, other) for other in seen):
                seen.append(X)
                yield scaling, encoding

    def initialize(self, rows: TrainingRows, encoding: Encoding, found: Found | None = None) -> ParametricPrior:
        """Return the model with its initial hyper-parameters, chosen from encoded rows or found by a search."""
        s, initial, C = self.plan.settings, self.plan.initial, len(self.data.classes)
        X = rows.X
        given, seed = self._given_inducing(encoding), self.plan.training.seed
        lengthscale = initial.lengthscale * median_distance(X, np.random.default_rng(seed)) ** initial.power
        is_fixed, is_shared = found is not None and self.plan.is_full_batch, found is not None and C >= SHARED_FROM
        learned = (False, False) if is_fixed else (s.learn_kernel, s.learn_inducing)
        shared = (is_shared, is_fixed or is_shared) if found is not None else (s.share_kernel, s.share_inducing)
        nudge = NUDGE * lengthscale if learned[1] and s.init != "paper" else 0.0
        rng = np.random.default_rng(seed)
        Z = initial_inducing_points(X, rows.y, C, self.plan.n_inducing, s.init, rng, nudge, given, self._device)
        kernel: Kernel
        noise: ArrayLike
        if found is not None:
            kernel, noise = found.kernel, NOISE
        else:
            kernel = s.kernel if isinstance(s.kernel, Kernel) else BY_NAME[s.kernel or "rbf"](variance=initial.variance)
            noise = initial.noise if s.noise is None else numbers("noise", s.noise)
            if isinstance(encoding, TableEncoding):
                kernel = for_groups(kernel, [group.column for group in encoding.groups], encoding.feature_groups)
        model = initial_prior(
            kernel,
            X,
            C,
            Z,
            noise,
            learned,
            shared,
            lengthscale,
            self._device,
            DTYPES[self.plan.dtype],
        )
        broadcast = self.options.workers.broadcast
        values = {name: broadcast(value) for name, value in model.values.items()}
        return replace(model, values=values, noise_in_u=not is_fixed)

    def result(self, fitted: TrainedModel, held_out: Calibrated) -> FittedModel:
        """Gather what the classifier publishes, and warn of what makes log Z or the predictions less exact."""
        trained, online = fitted.trained, None
        last = {r["event"]: r for r in trained.history.records if r["event"] in NUMERICAL_EVENTS}
        for record in last.values() if self.options.workers.rank == 0 else ():
            warnings.warn(f"{describe(record)}.", CavityWarning, stacklevel=4)
        if self.options.settings.method in ("auto", "sep"):
            own_weight = torch.from_numpy(fitted.own_weight).to(trained.theta.device)
            state = tie_sites(fitted.model.prior(trained.theta), trained.state, own_weight)
            residual = trained.posterior.to(torch.device("cpu")).residual
            start = fitted.model, trained.theta, state, fitted.own_weight
            online = OnlineFit(self.plan, fitted.encoding, *start, residual)
        posterior = held_out.calibration.apply(trained.posterior, self.data.class_weight)
        found = self._fitted(fitted.encoding, posterior, trained.history.records)
        found = found._replace(n_iter=trained.epochs, log_marginal_likelihood=trained.log_z)
        return found._replace(held_out=held_out.scores, novelty=held_out.novelty, online=online)

    def _fitted(self, encoding: Encoding, posterior: Posterior, history: list[Record]) -> FittedModel:
        counts = self.data.class_counts
        return FittedModel(
            classes=self.data.classes,
            n_features=self.data.n_features,
            feature_names=self.data.feature_names,
            schema=self.data.schema,
            encoding=encoding,
            posterior=posterior.to(torch.device("cpu")),
            method=self.plan.method,
            history=history,
            n_iter=history[-1]["epoch"] if history else 0,
            log_marginal_likelihood=np.nan,
            training=self.data.fingerprint | {"rows": int(counts.sum()), "class_counts": counts.tolist()},
        )

    @property
    def _device(self) -> torch.device:
        return choose_device(self.plan.settings.device)

    @property
    def _n_numbers(self) -> int:
        """Columns of numbers, dates and times."""
        if self.data.schema is None:
            return self.data.n_features
        return sum(column.kind in (NUMBER, DATE, TIME) for column in self.data.schema.columns)

    @property
    def _n_held_out(self) -> int:
        """Rows held out; fewer with many classes, each of which costs a quadrature per row."""
        return min(self.plan.n_held_out, max(LEAST_HELD_OUT, MOST_HELD_OUT_NUMBERS // len(self.data.classes)))

    def _fit_encoding(self, scaling: str | None, rows: TrainingRows) -> Encoding:
        return fit_encoding(self.data.schema, scaling, rows.X, rows.y, rows.weight, len(self.data.classes))

    def _train_rows(
        self, rows: TrainingRows, scaling: str | None, name: str, found: Found | None = None
    ) -> TrainedModel:
        encoding = self._fit_encoding(scaling, rows)
        encoded = encode_rows(encoding, rows)

        def arrays(dtype: torch.dtype) -> ArrayData:
            return array_data(encoded, len(self.data.classes), self._device, dtype, self.options.workers)

        return self._train(arrays, encoded, encoding, name, found)

    def _train(
        self,
        load: Callable[[torch.dtype], Data],
        sample: TrainingRows,
        encoding: Encoding,
        name: str,
        found: Found | None = None,
    ) -> TrainedModel:
        """Initialize and train.

        Args:
            load: gives the data to train on, in a dtype.
            sample: encoded training rows.
            encoding: of the cells.
            name: "fit", or that of a fold, which is neither displayed nor watched.
            found: the result of a search.
        """
        s, model = self.plan.settings, self.initialize(sample, encoding, found)
        method, data = self.plan.inference(), load(model.dtype)
        if method.learns_q:
            model = model.with_q(method.init(model.prior(model.start()), data.own_weight, len(data)))
        own_weight = data.own_weight.cpu().numpy()
        drawn = sample.take(np.random.default_rng(self.plan.training.seed).permutation(len(sample.y))[:SAMPLE_ROWS])

        def with_residual(posterior: Posterior) -> Posterior:
            return _with_residual(posterior, drawn, float(own_weight.sum()))

        is_main = name == "fit" and not self.is_trial
        report, watch = (self.report, self._watch(encoding, with_residual)) if is_main else (None, None)
        priors = s.log_priors(isinstance(encoding, TableEncoding))
        hyper_prior, workers, stop = HyperPrior(model, dict(priors)), self.options.workers, self.options.stop
        checkpointer, plan, advance = self._checkpointer(name), self.plan.training, None
        if found is not None and plan.max_seconds is not None:
            plan = replace(plan, max_seconds=max(plan.max_seconds - found.seconds, 1e-9))
        if self.report is not None:
            self.report.begin("trial" if self.is_trial else name.partition("-")[0])
            advance = self.report.advance
        trainer = Trainer(model, method, data, plan, hyper_prior, workers, report, watch, checkpointer, stop, advance)
        if model.dtype != DTYPES[self.plan.dtype]:
            trainer.note(0, None, 0.0, Event.DTYPE_TOO_COARSE, dtype=self.plan.dtype)
        if self.data.constant and is_main:
            trainer.note(0, None, 0.0, Event.CONSTANT_FEATURES, features=self.data.constant)
        for record in () if found is None else found.records:
            if record["event"] == Event.CANDIDATE:
                trainer.history.add(**record | {"epoch": 0})
        lbfgs = self.plan.lbfgs(model)
        try:
            with trainer.jitter:
                if not model.learned:
                    trained = trainer.infer()
                elif lbfgs is not None:
                    trained = train_lbfgs(trainer, lbfgs)
                else:
                    trained = trainer.train(self.plan.stepwise_optimizer(model, float(own_weight.sum())))
        except FactorizationError as error:
            raise trainer.failure(error) from error
        if is_main:
            trained = trained._replace(posterior=with_residual(trained.posterior))
        if found is not None:
            for record in trained.history.records:
                record["seconds"] += 0.0 if record["event"] == Event.CANDIDATE else found.seconds  # began after it
        return TrainedModel(encoding, model, trained, own_weight)

    def _watch(self, encoding: Encoding, finish: Callable[[Posterior], Posterior]) -> Watch | None:
        watch = self.options.watch
        if watch is None:
            return None
        return Watch(watch.at, lambda q, seconds: watch.look(self._fitted(encoding, finish(q), []), seconds))

    def _checkpointer(self, name: str) -> Checkpointer | None:
        """Return what writes checkpoints: those of a fold go into a folder of their own inside that of the fit."""
        s = self.plan.settings
        if s.checkpoint is None or self.is_trial:
            return None
        folder = Path(s.checkpoint) if name == "fit" else Path(s.checkpoint) / name
        settings = {n: to_json(value, hash_arrays=True) for n, value in vars(s).items() if n not in FREE_TO_CHANGE}
        about = {
            "settings": settings | {"dtype": self.plan.dtype},
            "data": to_json(self.data.fingerprint, hash_arrays=True),
            "seed": self.plan.training.seed,
        }
        return Checkpointer(Checkpoints(folder), about, s.checkpoint_seconds, self.options.resume, self.options.workers)

    def _choose_scaling(self, rows: TrainingRows) -> str:
        """Return the scaling with the better log Z_q after a short training on the same rows."""
        training, max_seconds = self.plan.training, self.plan.settings.max_seconds
        training = replace(
            training, max_epochs=min(TRIAL_EPOCHS, training.max_epochs), max_seconds=max_seconds and 0.2 * max_seconds
        )
        trial = replace(self, plan=replace(self.plan, training=training), is_trial=True)
        return max(("standard", "quantile"), key=lambda s: trial._train_rows(rows, s, "fit").trained.log_z)

    def _hold_out(self, rows: TrainingRows) -> tuple[TrainingRows, TrainingRows | None]:
        """Split the rows into those to learn from and those held out for calibration, if any."""
        if not (count := self._n_held_out):
            return rows, None
        parts = self._splits(rows, -(-len(rows.y) // count))
        small = (part for part in parts if len(part[1].y) <= 2 * count)  # without a row of too many copies
        return next(small, (rows, None))  # none where each row is the only one of its class

    def _splits(self, rows: TrainingRows, count: int) -> Iterator[tuple[TrainingRows, TrainingRows]]:
        """Yield training and held-out rows; copies are natural in a table of categories and numbers of few values."""
        schema, has_copies = self.data.schema, False
        if schema is not None and schema.categories:
            others = [j for j, column in enumerate(schema.columns) if column.kind not in (CATEGORY, LEFT_OUT)]
            has_copies = all(len(np.unique(rows.X[:, j])) <= FEW_VALUES for j in others)
        return split_rows(rows, count, self.plan.training.seed, has_copies)

    def _calibrate(
        self, trained: Trained, parts: list[HeldOut], log_sd: float = LOG_SD, is_wanted: bool = True
    ) -> Calibrated:
        """Calibrate by held-out rows, if that is wanted, and score their labels; the same on all workers."""
        calibration = Calibration()
        if is_wanted:
            calibration = calibrate(parts, CAUTION if _is_cut(trained) else 0.0, log_sd)
        scores = HeldOutScores.of_parts(parts, calibration, self._row_weight, self.plan.training.seed)
        found = self.options.workers.broadcast(Calibrated(calibration, scores))
        if found.calibration.shrinkage:
            trained.history.note(Event.SHRUNK, weight=found.calibration.shrinkage)
        return found

    def _held_out(
        self,
        rows: TrainingRows,
        model: TrainedModel,
        held_out: TrainingRows | None,
        levels: Mapping[int, Array] | None = None,
    ) -> tuple[TrainedModel, Calibrated]:
        """Calibrate by held-out rows, if any; `rows`, or a sample, and `levels` are what the model has learned from."""
        parts = [] if held_out is None else [model.predict(held_out)]
        found = self._calibrate(model.trained, parts)
        novelty, _ = self._novelty(rows, model, levels)
        novelty = self._with_rows(novelty, model, found.calibration, held_out)
        return model, found._replace(novelty=novelty)

    def _left_out(self, rows: TrainingRows, model: TrainedModel, part: HeldOut) -> tuple[TrainedModel, Calibrated]:
        """Calibrate by leave-one-out predictions."""
        is_wanted = self.plan.settings.calibrate is not False
        found = self._calibrate(model.trained, [part], LOG_SHARPNESS_SD, is_wanted)
        novelty, metric = self._novelty(rows, model)
        posterior = found.calibration.apply(model.trained.posterior, self.data.class_weight)
        copies = self._copies(rows)
        about = posterior, model.encoding, rows, copies, metric, novelty.profile, (part.mean, part.var)
        return model, found._replace(novelty=novelty.with_rows(left_out_parts(*about), copies))

    def _novelty(
        self, rows: TrainingRows, model: TrainedModel, levels: Mapping[int, Array] | None = None
    ) -> tuple[Novelty, Metric]:
        copies = self._copies(rows)
        metric = Metric.of(model.encoding, rows, copies, len(self.data.classes))
        return Novelty.start(Profile.of(self.data.schema, rows.X, copies, levels), metric), metric

    def _with_rows(
        self, novelty: Novelty, model: TrainedModel, calibration: Calibration, held_out: TrainingRows | None
    ) -> Novelty:
        if held_out is None:
            return novelty
        posterior = calibration.apply(model.trained.posterior, self.data.class_weight)
        return novelty.with_rows(novelty.parts(posterior, model.encoding, held_out.X), self._copies(held_out))

    def _copies(self, rows: TrainingRows) -> Array:
        """Return how many rows each row stands for."""
        return np.asarray(rows.weight / self._row_weight[rows.y])

    @property
    def _row_weight(self) -> Array:
        """The weight of one row of each class: that of the class, and less where weights are below one on average."""
        counts = self.data.class_counts
        by_class = weights_by_class(self.plan.settings.class_weight, self.data.classes, counts)
        by_class = np.where(by_class > 0.0, by_class, 1.0)  # of a class without rows
        mean = (self.data.class_weight / by_class).sum() / counts.sum()
        return np.asarray(by_class * min(mean, 1.0))

    def _cross_fit(
        self, rows: TrainingRows, scaling: str | None, model: TrainedModel
    ) -> tuple[TrainedModel, Calibrated]:
        """Calibrate by fits that leave out a fold each; not at all if rows are too few or such a fit fails."""
        count, trained, (novelty, _) = self.plan.folds, model.trained, self._novelty(rows, model)
        uncalibrated = model, Calibrated(novelty=novelty)
        if len(rows.y) < 2 * count or self._is_stopped(trained):
            return uncalibrated
        if self.report is not None:
            self.report(
                {
                    "epoch": trained.epochs,
                    "objective": None,
                    "event": f"calibration by {count} more fits",
                    "folds": count,
                }
            )
        fit, parts, folds = self, [], []
        if _is_cut(trained):
            # as many epochs and sweeps: folds that have learned more or less than the model say nothing about it
            training = replace(self.plan.training, max_epochs=trained.epochs, min_epochs=trained.epochs)
            training = replace(training, final_sweeps=min(training.final_sweeps, max(1, FINAL_SWEEPS - trained.epochs)))
            fit = replace(self, plan=replace(self.plan, training=training))
        for i, (learn, hold) in enumerate(self._splits(rows, count)):
            try:
                of_fold = fit._train_rows(learn, scaling, f"fold-{i}")
            except TrainingError as error:
                trained.history.note(Event.CALIBRATION_FAILED, reason=str(error))
                return uncalibrated
            if self._is_stopped(trained):
                return uncalibrated
            parts.append(of_fold.predict(hold))
            folds.append((learn, of_fold, hold))
        found = self._calibrate(trained, parts)
        for learn, of_fold, hold in folds:
            seen = self._with_rows(self._novelty(learn, of_fold)[0], of_fold, found.calibration, hold).held_out
            novelty = novelty.with_rows(seen[:3], seen[3].numpy())
        return model, found._replace(novelty=novelty)

    def _is_stopped(self, trained: Trained) -> bool:
        """Whether the user stopped the fit during calibration, on any worker."""
        stop = self.options.stop
        is_stopped = stop is not None and self.options.workers.max_value(float(stop.is_set())) > 0.0
        if is_stopped:
            trained.history.note(Event.CALIBRATION_STOPPED)
        return is_stopped

    def _given_inducing(self, encoding: Encoding) -> Array | None:
        given, C, D = self.plan.settings.inducing_points, len(self.data.classes), self.data.n_features
        if given is None:
            return None
        if self.data.schema is not None:
            return encoding.transform(self.data.schema.read(given, "inducing_points"))
        Z = numbers("inducing_points", given)
        fits = Z.ndim in (2, 3) and Z.shape[-1] == D and Z.size and (Z.ndim == 2 or len(Z) == C)
        if not (fits and np.isfinite(Z).all()):
            raise ValueError(
                f"inducing_points must be finite numbers of shape (M, {D}) or ({C}, M, {D}), got shape {Z.shape}"
            )
        features = encoding.transform(Z.reshape(-1, D))
        return features.reshape(*Z.shape[:-1], features.shape[-1])


def _is_cut(trained: Trained) -> bool:
    """Whether `max_seconds` has cut training short."""
    return any(record["event"] == Event.TIME_LIMIT for record in trained.history.records)


class OnlineFit:
    """A model that continues to learn from rows it sees once (`partial_fit`).

    Args:
        plan: the resolved settings.
        encoding: the encoding, fixed by the first rows.
        model, theta, state: the model, its hyper-parameters and the state of SEP.
        class_weight: the weight of each class's rows so far.
        residual: that of the fit before.
    """

    def __init__(
        self,
        plan: FitPlan,
        encoding: Encoding,
        model: ParametricPrior,
        theta: torch.Tensor,
        state: Any,
        class_weight: Array,
        residual: Residual | None = None,
    ) -> None:
        weight = float(class_weight.sum())
        self._residual = residual
        self.encoding, self.method, self._n_classes = encoding, plan.method, len(class_weight)
        priors = plan.settings.log_priors(isinstance(encoding, TableEncoding))
        hyper_prior = HyperPrior(model, dict(priors))
        optimizer, alpha = plan.stepwise_optimizer(model, weight), plan.settings.alpha
        self._trainer = OnlineTrainer(model, hyper_prior, optimizer, theta, state, weight, alpha=alpha)

    @classmethod
    def start(cls, settings: Settings, table: TrainingTable) -> OnlineFit:
        """Initialize a model by its first rows, without learning from them yet."""
        if len(table.classes) < 2:
            raise ValueError("partial_fit needs at least two classes: name all of them in classes=")
        seed = draw_seed(settings.random_state)
        optimizer = "paper" if settings.optimizer == "paper" else "adam"  # one step per batch, whatever `updates` says
        settings = replace(settings, batch_size=ONLINE_BATCH, updates="inner", optimizer=optimizer)
        plan = plan_fit(settings, ONLINE_BATCH + 1, seed)
        rows, none = table.rows, np.zeros(len(table.classes))
        about: tuple[Any, ...] = none.astype(np.int64), none, rows.X.shape[1], table.feature_names, {}, "", table.schema
        fit = Fit(plan, DataDescription(table.classes, *about), FitOptions(settings, seed))
        encoding = fit._fit_encoding("standard" if settings.scaling == "auto" else settings.scaling, rows)
        model = fit.initialize(encode_rows(encoding, rows), encoding)
        theta = model.start()
        state = METHODS["sep"]().init(model.prior(theta), torch.from_numpy(none).to(theta.device), 0)
        return cls(plan, encoding, model, theta, state, none)

    def absorb(self, rows: TrainingRows, device: str) -> tuple[OnlineFit, list[Record], NDArray[np.bool_]]:
        """Learn from new rows; return the new state, records for the history, and which rows were learned from."""
        found = copy(self)  # so that an error leaves this state as it was
        found._trainer = replace(self._trainer, optimizer=deepcopy(self._trainer.optimizer))
        data = array_data(
            encode_rows(self.encoding, rows), self._n_classes, choose_device(device), self._trainer.model.dtype
        )
        with spin_when_idle(), JitterLog() as jitter:
            records, is_learned = found._trainer.absorb(data, ONLINE_BATCH)
        if jitter.matrices:
            records.append(records[-1] | {"event": Event.JITTER_ADDED, **jitter.take()})
        return found, records, is_learned.numpy()

    def posterior(self, rows: TrainingRows) -> Posterior:
        """Return q(u) after all rows so far, of which `rows` are the last."""
        posterior = self._trainer.posterior()
        if len(rows.y) >= RESIDUAL_ROWS or self._residual is None:
            drawn = rows.take(np.random.default_rng(0).permutation(len(rows.y))[:SAMPLE_ROWS])
            drawn = encode_rows(self.encoding, drawn)
            self._residual = _with_residual(posterior, drawn, self._trainer.weight_seen).residual
        return replace(posterior, residual=self._residual)

    def novelty(self, table: TrainingTable, before: tuple[Novelty | None, Posterior] | None) -> Novelty:
        """Return what tells how unlike the rows so far a row is; the new rows are compared with those before.

        Args:
            table: the new rows.
            before: the novelty and the posterior without them, if there were rows before.
        """
        rows, copies = table.rows, table.rows.weight / min(table.rows.weight.mean(), 1.0)
        profile = Profile.of(table.schema, rows.X, copies)
        if before is None or before[0] is None:
            return Novelty.start(profile, Metric.of(self.encoding, rows, copies, self._n_classes))
        known, posterior = before[0], before[1]
        found = known.with_rows(known.parts(posterior, self.encoding, rows.X), copies)
        return replace(found, profile=known.profile.merged(profile))


def _with_residual(posterior: Posterior, sample: TrainingRows, total_weight: float) -> Posterior:
    """Add what separates epistemic from aleatoric uncertainty, measured on a sample of encoded training rows."""
    X, weight = torch.from_numpy(sample.X), torch.from_numpy(sample.weight)
    return replace(posterior, residual=measure_residual(posterior, X, weight, total_weight))


def encode_rows(encoding: Encoding, rows: TrainingRows) -> TrainingRows:
    """Return training rows with features instead of cells."""
    return rows._replace(X=encode_training(encoding, rows.X))


def array_data(
    rows: TrainingRows,
    n_classes: int,
    device: torch.device,
    dtype: torch.dtype,
    workers: Workers = SINGLE_PROCESS,
) -> ArrayData:
    """Return this worker's block of encoded rows on the device."""
    n = len(rows.X)
    first, last = workers.rank * n // workers.size, (workers.rank + 1) * n // workers.size
    own_weight = torch.from_numpy(np.bincount(rows.y, rows.weight, n_classes)).to(device)
    X = torch.as_tensor(rows.X[first:last], dtype=dtype, device=device)
    y, weight = (torch.as_tensor(part[first:last], device=device) for part in (rows.y, rows.weight))
    return ArrayData(X, y, weight, n_classes, Shard(first, n, own_weight) if workers.size > 1 else None)
