"""The scikit-learn front: validate, encode labels, scale, choose a device; no mathematics."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from cavity import predict
from cavity.calibration import HeldOut, best_sharpness, folds, held_out
from cavity.data import ArrayData
from cavity.front import (
    DTYPES,
    Rows,
    choose_device,
    class_weights,
    draw_seed,
    encode,
    kept_memory,
    large_sums,
    merge_equal_rows,
    progress,
    threads_for,
    untraced,
)
from cavity.inducing import Posterior
from cavity.inference import METHODS
from cavity.kernels import RBF, Kernel
from cavity.kernels.base import numbers
from cavity.numerics.linalg import FactorisationError
from cavity.predict import Uncertainty
from cavity.scaling import Scaler, fit_scaler
from cavity.settings import (
    PAPER_STEPS,
    Choice,
    check_arguments,
    make_lbfgs,
    make_optimiser,
    make_plan,
    prior_spec,
)
from cavity.training import (
    HyperPrior,
    Model,
    Record,
    Stream,
    Trained,
    Trainer,
    TrainingError,
    Watch,
    median_distance,
    start_inducing,
    start_model,
    tied,
    train_lbfgs,
)

Array = NDArray[np.float64]

STREAM_BATCH = 256
TRIAL_EPOCHS = 60
NUDGE = 1e-3  # of a length-scale, for inducing points at their start
MAX_WEIGHT = 2.0**53  # the first float64 that one does not change


def _seen_by(fit: Trained, scaler: Scaler, rows: Rows) -> HeldOut:
    """What a fit says of rows that it has not seen."""
    return held_out(fit.posterior, torch.from_numpy(scaler.transform(rows.X)), rows)


def _forgets_rows(classifier: GPClassifier) -> bool:
    if classifier.method not in ("auto", "sep"):
        raise AttributeError(
            f"method={classifier.method!r} cannot learn from rows that it sees once; partial_fit needs method='sep' "
            "or 'auto'"
        )
    return True


class GPClassifier(ClassifierMixin, BaseEstimator):
    """Gaussian process classifier for any number of classes, by expectation propagation with inducing points.

    Every class has a latent function with a Gaussian process prior; the label is the class whose function, plus
    noise, is largest. The functions are summarised by their values at M inducing points per class, whose posterior EP,
    stochastic EP or one of their rivals approximates; length-scales, variances, noise and the points themselves are
    learned by maximising log Z_q, an estimate of the marginal likelihood.

    Args:
        method: "ep" keeps a site for every row and class; "sep" keeps one per class, so memory does not grow with the
            rows; "gfitc" runs EP on the latent values themselves, on all rows; "vi" maximises a lower bound of the
            evidence; "auto" is EP where all rows are used at once, SEP on mini-batches.
        kernel: a `cavity.kernels.Kernel`; `RBF()` by default. Length-scales are in units of the scaled inputs.
        noise: start value of the latent noise variance, a float or (C,).
        n_inducing: M, or a share of the training rows as a float in (0, 1].
        inducing_points: start values in units of X, (M, D) or (C, M, D); overrides `n_inducing` and `init`.
        init: where inducing points start: "kmeans" of all rows, "kmeans-per-class" (half of the class's own rows),
            "random" rows, or "paper" (random rows, and kernel and noise as in the paper).
        share_kernel: one kernel and noise for all classes.
        share_inducing: one set of inducing points for all classes; with `share_kernel` up to C times cheaper.
        learn_kernel: False keeps kernel and noise as given.
        learn_inducing: False keeps the inducing points where they start.
        priors: weak priors on the kernel's parameters, against over-fitting: "default", None (pure maximisation of
            log Z_q, as in the paper) or a dict from "lengthscale", "variance", "noise" to (median, sd of the log) or
            (median, sd below, sd above); from "spread" to the sd of the classes' log length-scales about their mean,
            and from "relevance" to that of all log length-scales below their mean. A median of None is the start value.
        scaling: "standard", "quantile" (each feature to its training quantiles), "auto" (the one with the better
            log Z_q on the training rows) or None.
        calibrate: how sharp the probabilities are is set on rows held out: by cross-fitting in three folds where all
            rows are used at once, which takes about as long as three more fits; on mini-batches by one row in twenty,
            at most 5,000, that training does without. "auto" (where there is more to learn than q(u)), True, False, or
            a number of folds.
        class_weight: "balanced", or a dict from label to weight; multiplies `sample_weight`.
        batch_size: rows of a mini-batch; None for all rows at once; "auto" chooses by the number of rows.
        max_epochs: passes over the rows, at most; "auto" chooses by the number of rows.
        max_seconds: training time, at most.
        tol: training stops when log Z_q per row rises by less than this an epoch.
        optimizer: "adam" with a falling rate; "lbfgs", for `updates="outer"` and GFITC; "paper", as the authors: their
            adaptive rates for EP and SEP, L-BFGS for GFITC, and for VI on hyper-parameters and q(u) at once.
        learning_rate: of the optimizer; None for its default.
        damping: share of the new value in an update of a site, or the length of VI's natural-gradient step; None
            chooses.
        updates: "inner" (one sweep for each step of the hyper-parameters), "inner-exact" (the same with the full
            gradient) or "outer" (q converges before each step, as it always does for GFITC).
        device: "auto" (a GPU where there is one), "cpu", "cuda", …
        dtype: of the inputs and the distances; all factorisations are float64. "float32" is faster where there are many
            features, and falls back to float64 where rows lie too far out for it.
        random_state: seed of the inducing points and of the order of mini-batches.
        verbose: 1 shows a progress bar, 2 also a line an epoch.

    Attributes:
        classes_: labels, sorted; the columns of `predict_proba`.
        n_features_in_, feature_names_in_: number and, for frames, names of the features.
        kernel_: the kernel with its learned parameters.
        noise_: latent noise variances, (C,).
        inducing_points_: (C, M, D), in units of X.
        sharpness_: what the means of f are multiplied by in probabilities; 1 where nothing was calibrated.
        posterior_: q(u), with `mean` (C, M) and `cov` (C, M, M).
        log_marginal_likelihood_: log Z_q of the training rows; for VI the bound.
        history_: one dict an epoch: objective (None where only sites move), seconds, learning rate, damping, and what
            went wrong if anything did.
        n_iter_: epochs run.
        method_: the method used, where `method` is "auto".

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(random_state=0, max_epochs=50).fit(X, y)
    >>> clf.predict(X[:2])
    array([0, 0])
    >>> clf.predict_proba(X).shape
    (150, 3)
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        kernel: Kernel | None = None,
        noise: ArrayLike | None = None,
        n_inducing: int | float = 100,
        inducing_points: ArrayLike | None = None,
        init: str = "kmeans",
        share_kernel: bool = False,
        share_inducing: bool = False,
        learn_kernel: bool = True,
        learn_inducing: bool = True,
        priors: Any = "default",
        scaling: str | None = "standard",
        calibrate: bool | int | str = "auto",
        class_weight: Any = None,
        batch_size: int | str | None = "auto",
        max_epochs: int | str = "auto",
        max_seconds: float | None = None,
        tol: float = 1e-4,
        optimizer: str = "auto",
        learning_rate: float | None = None,
        damping: float | None = None,
        updates: str = "inner",
        device: str = "auto",
        dtype: str = "float64",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.kernel = kernel
        self.noise = noise
        self.n_inducing = n_inducing
        self.inducing_points = inducing_points
        self.init = init
        self.share_kernel = share_kernel
        self.share_inducing = share_inducing
        self.learn_kernel = learn_kernel
        self.learn_inducing = learn_inducing
        self.priors = priors
        self.scaling = scaling
        self.calibrate = calibrate
        self.class_weight = class_weight
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.max_seconds = max_seconds
        self.tol = tol
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.damping = damping
        self.updates = updates
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, method: str = "ep", n_inducing: int | float = 0.1, **changes: Any) -> GPClassifier:
        """The settings of the paper's authors, from their program where it differs from the paper's text.

        Standardised inputs; variance and noise start at 1, length-scales at √(median distance); inducing points at
        random rows, drawn for each class; all rows at once; no priors. EP and SEP: damping 0.5, times 0.99 an
        iteration; a rate for each parameter that grows by 2 % or halves with the sign of its gradient; 249 steps. As in
        their program, rates of length-scales follow the sign of the sum of all their gradients. GFITC and VI: 250
        iterations of L-BFGS, for VI over q(u) as well (docs/paper-settings.md).

        Args:
            method: "ep", "sep", "gfitc" or "vi".
            n_inducing: M, or a share of the training rows.
            changes: other arguments of the constructor.

        >>> GPClassifier.paper("sep", n_inducing=0.2).max_epochs
        249
        """
        settings: dict[str, Any] = {
            "init": "paper",
            "priors": None,
            "scaling": "standard",
            "calibrate": False,
            "batch_size": None,
            "max_epochs": PAPER_STEPS.get(method, 0),
            "tol": 0.0,
            "optimizer": "paper",
        }
        return cls(method, n_inducing=n_inducing, **(settings | changes))

    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, *, watch: Watch | None = None
    ) -> GPClassifier:
        """Learn kernel, inducing points and q(u) from labelled rows.

        Args:
            X: features, (N, D): an array, or a pandas or polars frame of numbers.
            y: labels of any type, (N,).
            sample_weight: a row of weight w counts as w copies of it; a row of weight 0 is left out.
            watch: a `cavity.training.Watch` that is shown the classifier at given moments of training.

        Returns:
            The classifier itself.
        """
        check_arguments(self.get_params(deep=False))
        rows = self._validate_training(X, y, sample_weight, reset=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]!r}; a classifier needs two classes or more")
        seed = draw_seed(self.random_state)
        rows = merge_equal_rows(rows)
        choice = make_plan(self.get_params(deep=False), len(rows.X), seed)
        with (
            untraced(choose_device(self.device)),
            threads_for(self._work(rows, choice)),
            kept_memory(),
            progress(f"cavity {choice.name}", choice.plan.max_epochs, self.verbose) as report,
        ):
            scaling = self._choose_scaling(rows, choice) if self.scaling == "auto" else self.scaling
            rows, held = self._hold_out(rows, choice)
            scaler, model, trained = self._train(rows, scaling, choice, report, watch)
            if choice.folds:
                self.sharpness_ = self._cross_fit(rows, scaling, choice, trained, report)
            else:
                self.sharpness_ = best_sharpness([_seen_by(trained, scaler, held)] if held else [])
        self._set_fitted(scaler, model, trained, choice, rows)
        return self

    @available_if(_forgets_rows)
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> GPClassifier:
        """Learn from rows never seen before, and forget them (methods "sep" and "auto").

        Every row given counts as new evidence: give each row once. The first call fixes the scaling of the inputs and
        the start of the inducing points, so it should hold a few hundred typical rows. After `fit`, goes on from there.

        Args:
            X: features, (N, D).
            y: labels, (N,).
            classes: all labels that will ever come; needed in the first call.
            sample_weight: as for `fit`.
        """
        check_arguments(self.get_params(deep=False))
        is_first = not hasattr(self, "_stream")
        self._check_classes(classes, is_first)
        rows = self._validate_training(X, y, sample_weight, reset=is_first, classes=classes)
        with untraced(choose_device(self.device)):
            if is_first:
                self._start_stream(rows)
            data = self._data(rows, self._scaler, self._stream.model.dtype)
            record = self._stream.absorb(data, STREAM_BATCH)
        self.n_iter_ += 1
        self.history_.append({"epoch": self.n_iter_, **record})
        self._publish(self._stream.posterior())
        self.log_marginal_likelihood_ = record["objective"]
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row."""
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, (N, C), in the order of `classes_`; every row sums to one."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the class probabilities, exact far into the tails."""
        return predict.log_probabilities(*self._validate_new(X))

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the latent functions f, noise included, each (N, C)."""
        return predict.marginals(*self._validate_new(X))

    def uncertainty(self, X: Any) -> Uncertainty:
        """How unsure each prediction is, and why: total, aleatoric and epistemic entropy in nats."""
        return predict.uncertainty(*self._validate_new(X))

    def _validate_training(
        self, X: Any, y: Any, sample_weight: Any, reset: bool, classes: ArrayLike | None = None
    ) -> Rows:
        with large_sums():
            X, y = validate_data(self, X, y, dtype=np.float64, order="C", reset=reset)
            check_classification_targets(y)
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            weight = weight * class_weights(self.class_weight, y)
            total = float(weight.sum())
        keep = weight > 0
        if not keep.any():
            raise ValueError("sample_weight and class_weight leave no row with a positive weight")
        if not total <= MAX_WEIGHT:
            raise ValueError(
                f"sample_weight times class_weight sums to {total:.3g}; a weight is a number of copies, and beyond "
                f"{MAX_WEIGHT:.3g} rows one more makes no difference: divide all weights"
            )
        if reset:
            self.classes_ = np.unique(y[keep] if classes is None else np.asarray(classes))
        return Rows(X[keep], encode(y[keep], self.classes_), weight[keep])

    def _check_classes(self, classes: ArrayLike | None, is_first: bool) -> None:
        if is_first and classes is None:
            raise ValueError("classes=None in the first call of partial_fit; all labels that will ever come are needed")
        if not is_first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} differ from those of the first call, {self.classes_!r}")

    def _validate_new(self, X: Any) -> tuple[Posterior, torch.Tensor]:
        """q(u) on the device that predicts, and the scaled rows, which go there block by block."""
        check_is_fitted(self, "posterior_")
        with large_sums():
            X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        device = choose_device(self.device)
        posterior = self.posterior_ if device.type == "cpu" else self.posterior_.to(device)
        return posterior, torch.from_numpy(self._scaler.transform(X))

    def _train(
        self,
        rows: Rows,
        scaling: str | None,
        choice: Choice,
        report: Callable[[Record], None] | None = None,
        watch: Watch | None = None,
    ) -> tuple[Scaler, Model, Trained]:
        scaler = fit_scaler(scaling, rows.X, rows.weight)
        data = self._data(rows, scaler)
        model = self._start_model(data, rows, scaler, choice)
        if model.dtype != data.X.dtype:
            data = self._data(rows, scaler, model.dtype)
        if choice.method.learns_q:
            model = model.with_q(choice.method.init(model.prior(model.start()), data.own_weight, len(data)))
        hyper_prior = HyperPrior(model, prior_spec(self.priors))
        watch = None if watch is None else Watch(watch.at, self._shown_to(watch, scaler))
        trainer = Trainer(model, choice.method, data, choice.plan, hyper_prior, report, watch)
        if model.dtype != DTYPES[self.dtype]:
            trainer.note(0, None, 0.0, f"dtype={self.dtype!r} is too coarse for these rows: distances in float64")
        try:
            if not model.learned:
                trained = trainer.infer()
            else:
                lbfgs = make_lbfgs(choice, model)
                if lbfgs is not None:
                    trained = train_lbfgs(trainer, lbfgs)
                else:
                    trained = trainer.train(make_optimiser(choice, model, float(rows.weight.sum())))
        except FactorisationError as error:
            raise trainer.failure(error) from error
        return scaler, model, trained

    def _cross_fit(
        self,
        rows: Rows,
        scaling: str | None,
        choice: Choice,
        trained: Trained,
        report: Callable[[Record], None] | None,
    ) -> float:
        """The sharpness, by fits that leave some of the rows out; 1 where rows are too few or such a fit fails."""
        if len(rows.y) < 2 * choice.folds:
            return 1.0
        if report is not None:
            report({"epoch": trained.epochs, "objective": None, "event": f"calibration by {choice.folds} more fits"})
        parts = []
        for learn, hold in folds(rows.y, choice.folds, choice.plan.seed):
            try:
                scaler, _, fit = self._train(rows.take(learn), scaling, choice)
            except TrainingError as error:
                trained.history.note(f"not calibrated: {error}")
                return 1.0
            parts.append(_seen_by(fit, scaler, rows.take(hold)))
        return best_sharpness(parts)

    @staticmethod
    def _hold_out(rows: Rows, choice: Choice) -> tuple[Rows, Rows | None]:
        """The rows to learn from, and those that calibration needs, if any."""
        if not choice.n_held_out:
            return rows, None
        learn, hold = next(folds(rows.y, -(-len(rows.y) // choice.n_held_out), choice.plan.seed))
        return rows.take(learn), rows.take(hold)

    def _shown_to(self, watch: Watch, scaler: Scaler) -> Callable[[Posterior, float], None]:
        """What shows q(u) to a watch in the form of a fitted classifier."""

        def look(posterior: Posterior, seconds: float) -> None:
            shown = copy(self)
            shown._scaler, shown.sharpness_ = scaler, 1.0
            shown._publish(posterior)
            watch.look(shown, seconds)

        return look

    def _work(self, rows: Rows, choice: Choice) -> int:
        """Entries of the largest block of a step: classes × inducing points × rows."""
        n_rows = choice.plan.batch_size or len(rows.X)
        return len(self.classes_) * choice.n_inducing * n_rows

    def _choose_scaling(self, rows: Rows, choice: Choice) -> str:
        """The scaling with the better log Z_q after a short training on the same rows."""
        epochs = min(TRIAL_EPOCHS, choice.plan.max_epochs)
        seconds = None if self.max_seconds is None else 0.2 * self.max_seconds
        trial = replace(choice, plan=replace(choice.plan, max_epochs=epochs, max_seconds=seconds))
        return max(("standard", "quantile"), key=lambda scaling: self._train(rows, scaling, trial)[2].log_z)

    def _start_model(self, data: ArrayData, rows: Rows, scaler: Scaler, choice: Choice) -> Model:
        X, n_classes, rng = scaler.transform(rows.X), len(self.classes_), np.random.default_rng(choice.plan.seed)
        given = self._given_inducing(scaler, n_classes, X.shape[1])
        start = choice.start
        lengthscale = start.lengthscale * median_distance(X, np.random.default_rng(choice.plan.seed)) ** start.power
        nudge = NUDGE * lengthscale if self.learn_inducing and self.init != "paper" else 0.0
        Z = start_inducing(given, X, rows.y, n_classes, choice.n_inducing, self.init, nudge, rng)
        return start_model(
            RBF(variance=start.variance) if self.kernel is None else self.kernel,
            X,
            n_classes,
            Z,
            start.noise if self.noise is None else numbers("noise", self.noise),
            (self.learn_kernel, self.learn_inducing),
            (self.share_kernel, self.share_inducing),
            lengthscale,
            data.X.device,
            DTYPES[self.dtype],
        )

    def _given_inducing(self, scaler: Scaler, n_classes: int, n_features: int) -> Array | None:
        if self.inducing_points is None:
            return None
        Z = numbers("inducing_points", self.inducing_points)
        fits = Z.ndim in (2, 3) and Z.shape[-1] == n_features and Z.size and (Z.ndim == 2 or len(Z) == n_classes)
        if not (fits and np.isfinite(Z).all()):
            raise ValueError(f"inducing_points has shape {Z.shape}; finite numbers of shape (M, {n_features}) or "
                             f"({n_classes}, M, {n_features}) are needed")  # fmt: skip
        return scaler.transform(Z.reshape(-1, n_features)).reshape(Z.shape)

    def _data(self, rows: Rows, scaler: Scaler, dtype: torch.dtype | None = None) -> ArrayData:
        device = choose_device(self.device)
        X = torch.as_tensor(scaler.transform(rows.X), dtype=dtype or DTYPES[self.dtype], device=device)
        y = torch.as_tensor(rows.y, device=device)
        return ArrayData(X, y, torch.as_tensor(rows.weight, device=device), len(self.classes_))

    def _start_stream(self, rows: Rows) -> None:
        if len(self.classes_) < 2:
            raise ValueError("partial_fit needs two classes or more: name all of them in classes=")
        seed = draw_seed(self.random_state)
        choice = make_plan(self.get_params(deep=False) | {"batch_size": STREAM_BATCH}, STREAM_BATCH + 1, seed)
        self._scaler = fit_scaler("standard" if self.scaling == "auto" else self.scaling, rows.X, rows.weight)
        data = self._data(rows, self._scaler)
        model = self._start_model(data, rows, self._scaler, choice)
        state = METHODS["sep"]().init(model.prior(model.start()), torch.zeros_like(data.own_weight), 0)
        self.history_: list[Record] = []
        self.n_iter_, self.sharpness_, self.method_ = 0, 1.0, choice.name
        self._keep_stream(model, choice, model.start(), state, 0.0)

    def _keep_stream(self, model: Model, choice: Choice, theta: torch.Tensor, state: Any, weight: float) -> None:
        hyper_prior = HyperPrior(model, prior_spec(self.priors))
        self._stream = Stream(model, hyper_prior, make_optimiser(choice, model, weight), theta, state, weight)

    def _set_fitted(self, scaler: Scaler, model: Model, trained: Trained, choice: Choice, rows: Rows) -> None:
        self._scaler, self.method_ = scaler, choice.name
        self.history_, self.n_iter_ = trained.history.records, trained.epochs
        if self.method in ("auto", "sep"):
            own_weight = np.bincount(rows.y, rows.weight, len(self.classes_))
            state = tied(trained.state, torch.from_numpy(own_weight).to(trained.theta.device))
            self._keep_stream(model, choice, trained.theta, state, float(rows.weight.sum()))
        else:
            self.__dict__.pop("_stream", None)  # of an earlier fit, with another scaling
        self._publish(trained.posterior)
        self.log_marginal_likelihood_ = trained.log_z

    def _publish(self, posterior: Posterior) -> None:
        self.posterior_ = replace(posterior.to(torch.device("cpu")), sharpness=self.sharpness_)
        prior, n_classes = self.posterior_.prior, len(self.classes_)
        self.kernel_ = prior.kernel.fitted(prior.params)
        self.noise_ = np.broadcast_to(prior.log_noise.exp().numpy(), (n_classes,)).copy()
        Z = self._scaler.inverse(prior.Z.numpy())
        self.inducing_points_ = np.broadcast_to(Z, (n_classes, *Z.shape[1:])).copy()
