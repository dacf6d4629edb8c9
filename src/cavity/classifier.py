"""The scikit-learn front: validate, encode labels, scale, choose a device; no mathematics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from cavity.data import Survey, as_source, is_source, read_all, survey
from cavity.data.source import Source
from cavity.files import model_file as modelfile
from cavity.fitting.encoding import Scaler, fit_scaler
from cavity.fitting.fit import INDUCING_ROWS, Fit, Fitting, array_data
from cavity.fitting.keeping import Keeping
from cavity.fitting.rows import Rows, class_weights, draw_seed, encode, large_sums, merge_equal_rows, weights_of_classes
from cavity.fitting.settings import (
    MOST_HELD_OUT,
    PAPER_STEPS,
    Choice,
    check_arguments,
    make_optimizer,
    make_plan,
    prior_spec,
)
from cavity.gp.gaussian import Posterior
from cavity.inference import METHODS
from cavity.kernels import Kernel
from cavity.predictor import Predictor
from cavity.runtime.budget import BUFFER, Settings, bytes_needed, check_budget
from cavity.runtime.device import choose_device, untraced
from cavity.runtime.distributed import Workers, current_workers
from cavity.runtime.memory import available_bytes
from cavity.runtime.progress import progress
from cavity.runtime.threads import kept_memory, threads_for
from cavity.training import HyperPrior, Model, Stop, Stream, Watch, tied
from cavity.training.centers import ROWS_PER_CENTER

Array = NDArray[np.float64]

STREAM_BATCH = 256
MAX_WEIGHT = 2.0**53  # the first float64 that one does not change


class _Call(NamedTuple):
    """What one call of `fit` was asked beside the rows."""

    seed: int
    workers: Workers
    keeping: Keeping
    watch: Watch | None
    stop: Stop | None


def _forgets_rows(classifier: GPClassifier) -> bool:
    if classifier.method not in ("auto", "sep"):
        raise AttributeError(
            f"method={classifier.method!r} cannot learn from rows that it sees once; partial_fit needs method='sep' "
            "or 'auto'"
        )
    return True


class GPClassifier(Predictor):
    """Gaussian process classifier for any number of classes, by expectation propagation with inducing points.

    Every class has a latent function with a Gaussian process prior; the label is the class whose function, plus
    noise, is largest. The functions are summarized by their values at M inducing points per class, whose posterior EP,
    stochastic EP or one of their rivals approximates; length-scales, variances, noise and the points themselves are
    learned by maximizing log Z_q, an estimate of the marginal likelihood.

    Args:
        method: "ep" keeps a site for every row and class; "sep" keeps one per class, so memory does not grow with the
            rows; "gfitc" runs EP on the latent values themselves, on all rows; "vi" maximizes a lower bound of the
            evidence; "auto" is EP where all rows are used at once, SEP on mini-batches.
        kernel: a `cavity.kernels.Kernel`; `RBF(variance=10)` by default. Length-scales are in units of scaled inputs.
        noise: start value of the latent noise variance, a float or (C,).
        n_inducing: M, or a share of the training rows as a float in (0, 1].
        inducing_points: start values in units of X, (M, D) or (C, M, D); overrides `n_inducing` and `init`.
        init: where inducing points start: "kmeans" of all rows, "kmeans-per-class" (half of the class's own rows),
            "random" rows, or "paper" (random rows, and kernel and noise as in the paper).
        share_kernel: one kernel and noise for all classes.
        share_inducing: one set of inducing points for all classes; with `share_kernel` up to C times cheaper.
        learn_kernel: False keeps kernel and noise as given.
        learn_inducing: False keeps the inducing points where they start.
        priors: weak priors on the kernel's parameters, against over-fitting: "default", None (pure maximization of
            log Z_q, as in the paper) or a dict from "lengthscale", "variance", "noise" to (median, sd of the log) or
            (median, sd below, sd above); from "spread" to the sd of the classes' log length-scales about their mean,
            and from "relevance" to that of all log length-scales below their mean. A median of None is the start value.
        scaling: "standard", "quantile" (each feature to its training quantiles), "auto" (the one with the better
            log Z_q on the training rows) or None.
        calibrate: how sharp the probabilities are is set on rows held out: by cross-fitting in three folds where all
            rows are used at once, which takes about as long as three more fits; on mini-batches by one row in twenty
            that training does without, no fewer than 500 (or one in five) and no more than 5,000. "auto" (where there
            is more to learn than q(u)), True, False, or a number of folds.
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
        dtype: of the inputs and the distances; all factorizations are float64. "float32" is faster where there are many
            features, and falls back to float64 where rows lie too far out for it.
        checkpoint: a folder that training is kept in on its way, so that `fit(..., resume=True)` goes on from there.
        checkpoint_seconds: between checkpoints; one more is written at the end.
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
        training_: what tells the training rows from others: how many, of each class, and a digest of them.
        metrics_: scores that were kept with the model (`save`), and come back with it.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(random_state=0, max_epochs=50).fit(X, y)
    >>> clf.predict(X[:2])
    array([0, 0])
    >>> clf.predict_proba(X).shape
    (150, 3)
    """

    _is_from_file = False  # a file keeps nothing that partial_fit could go on from

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
        checkpoint: Any = None,
        checkpoint_seconds: float = 60.0,
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
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, method: str = "ep", n_inducing: int | float = 0.1, **changes: Any) -> GPClassifier:
        """The settings of the paper's authors, from their program where it differs from the paper's text.

        Standardized inputs; variance and noise start at 1, length-scales at √(median distance); inducing points at
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
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        watch: Watch | None = None,
        resume: bool = False,
        survey: Survey | None = None,
        stop: Stop | None = None,
    ) -> GPClassifier:
        """Learn kernel, inducing points and q(u) from labeled rows.

        Under `torchrun` the processes share the rows, and each ends with the same model.

        Args:
            X: features, (N, D): an array, or a pandas or polars frame of numbers; or a source of rows with their
                labels (`cavity.data`), which is read in batches.
            y: labels of any type, (N,); None with a source.
            sample_weight: a row of weight w counts as w copies of it; a row of weight 0 is left out.
            watch: a `cavity.training.Watch` that is shown the classifier at given moments of training.
            resume: go on from the last checkpoint in the folder `checkpoint`, if there is one.
            survey: what `cavity.data.survey` found in the source; None reads it once to find out.
            stop: a `threading.Event`; once it is set, training ends after the step at hand, with what it has.

        Returns:
            The classifier itself.
        """
        check_arguments(self.get_params(deep=False))
        if resume and self.checkpoint is None:
            raise ValueError("resume=True needs the folder that checkpoints were written to: checkpoint='folder'")
        workers = current_workers()
        keeping = Keeping(self.get_params(deep=False), resume, workers)
        call = _Call(keeping.seed(draw_seed(self.random_state)), workers, keeping, watch, stop)
        if not is_source(X):
            return self._fit_rows(self._validate_training(X, y, sample_weight, reset=True), call)
        if y is not None or sample_weight is not None:
            raise ValueError("y and sample_weight must be None with a source, which has its own labels")
        return self._fit_source(as_source(X), survey, call)

    def _fit_rows(self, all_rows: Rows, call: _Call) -> GPClassifier:
        self._check_two_classes()
        rows = merge_equal_rows(all_rows)
        choice = self._plan(len(rows.X), call)
        self._check_budget(choice, call.workers, len(rows.X), rows.X.nbytes)
        call.keeping.fingerprint = rows.fingerprint()
        with self._fitting(choice, call) as fitting:
            fit, self.sharpness_ = fitting.on_rows(rows)
        counts = np.bincount(all_rows.y, minlength=len(self.classes_))
        return self._set_fitted(fit, choice, call.keeping.fingerprint, counts)

    def _fit_source(self, source: Source, known: Survey | None, call: _Call) -> GPClassifier:
        workers = call.workers
        if workers.size > source.lanes:
            raise ValueError(f"{workers.size} processes cannot share the {source.lanes} lanes of the source: "
                             f"start fewer, or give the source lanes={workers.size}")  # fmt: skip
        if known is None:
            wanted = ROWS_PER_CENTER * self.n_inducing if isinstance(self.n_inducing, int) else 0
            known = survey(
                source, sample_rows=MOST_HELD_OUT + max(INDUCING_ROWS, wanted), seed=call.seed, workers=workers
            )
        self.classes_, self.n_features_in_ = known.classes, known.n_features
        self.__dict__.pop("feature_names_in_", None)
        if known.feature_names is not None:
            self.feature_names_in_ = np.array(known.feature_names, dtype=object)
        choice = self._plan(known.n_rows, call)
        is_read_whole = choice.plan.batch_size is None
        self._check_budget(choice, workers, known.n_rows if is_read_whole else BUFFER)
        if is_read_whole:
            X, y = read_all(source)
            weight = class_weights(self.class_weight, y)
            return self._fit_rows(Rows(X, encode(y, self.classes_), weight), call)
        self._check_two_classes()
        if self.scaling == "auto" or choice.folds:
            what = "scaling='auto'" if self.scaling == "auto" else f"calibrate={self.calibrate}"
            raise ValueError(f"{what} makes several fits on all rows at once, which a source is too large for; use "
                             "scaling='standard' or 'quantile', and calibrate='auto'")  # fmt: skip
        call.keeping.fingerprint = known.fingerprint
        with self._fitting(choice, call) as fitting:
            weight = weights_of_classes(self.class_weight, self.classes_, known.class_counts)
            fit, self.sharpness_ = fitting.on_source(source, known, weight)
        return self._set_fitted(fit, choice, known.fingerprint, known.class_counts)

    def _plan(self, n_rows: int, call: _Call) -> Choice:
        return make_plan(self.get_params(deep=False), n_rows, call.seed, call.workers)

    def _check_budget(self, choice: Choice, workers: Workers, resident_rows: int, held_bytes: int = 0) -> None:
        """Refuse what would not fit in memory, before more of it is made than is held already."""
        n_rows = -(-choice.n_rows // workers.size)
        batch = n_rows if choice.plan.batch_size is None else -(-choice.plan.batch_size // workers.size)
        shared = self.share_kernel, self.share_inducing
        sizes = len(self.classes_), choice.n_inducing, self.n_features_in_, batch, n_rows
        settings = Settings(choice.name, *sizes, *shared, self.dtype, resident_rows, workers.size)
        free = available_bytes(choose_device(self.device))
        check_budget(bytes_needed(*settings), free and free // workers.neighbors + held_bytes, settings)

    @contextmanager
    def _fitting(self, choice: Choice, call: _Call) -> Iterator[Fitting]:
        """Everything around a fit: threads, memory, progress."""
        device, workers, watch = choose_device(self.device), call.workers, call.watch

        def look(scaler: Scaler) -> Watch | None:
            return None if watch is None else Watch(watch.at, self._shown_to(watch, scaler))

        with (
            untraced(device),
            threads_for(self._work(choice)),
            kept_memory(),
            progress(
                f"cavity {choice.name}", choice.plan.max_epochs, self.verbose if workers.rank == 0 else 0
            ) as report,
        ):
            params = self.get_params(deep=False)
            keeper, n_classes = call.keeping.keeper, len(self.classes_)
            yield Fitting(params, choice, n_classes, device, workers, report, look, keeper, call.stop)

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
        if is_first and self._is_from_file:
            raise ValueError("this model comes from a file, which does not keep what partial_fit goes on from; fit a "
                             "new GPClassifier, or pickle the one that learns")  # fmt: skip
        self._check_classes(classes, is_first)
        rows = self._validate_training(X, y, sample_weight, reset=is_first, classes=classes)
        with untraced(choose_device(self.device)):
            if is_first:
                self._start_stream(rows)
            device, dtype = choose_device(self.device), self._stream.model.dtype
            data = array_data(rows, self._scaler, len(self.classes_), device, dtype)
            record = self._stream.absorb(data, STREAM_BATCH)
        self._count_more(rows)
        self.n_iter_ += 1
        self.history_.append({"epoch": self.n_iter_, **record})
        self._publish(self._stream.posterior())
        self.log_marginal_likelihood_ = record["objective"]
        return self

    def _count_more(self, rows: Rows) -> None:
        counts = np.bincount(rows.y, minlength=len(self.classes_)) + self.training_["class_counts"]
        self.training_ = {"rows": int(counts.sum()), "features": self.n_features_in_, "class_counts": counts.tolist()}

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

    def _check_two_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]!r}; a classifier needs two classes or more")

    def _shown_to(self, watch: Watch, scaler: Scaler) -> Callable[[Posterior, float], None]:
        """What shows q(u) to a watch in the form of a fitted classifier."""

        def look(posterior: Posterior, seconds: float) -> None:
            shown = copy(self)
            shown._scaler, shown.sharpness_ = scaler, 1.0
            shown._publish(posterior)
            watch.look(shown, seconds)

        return look

    def _work(self, choice: Choice) -> int:
        """Entries of the largest block of a step: classes × inducing points × rows."""
        return len(self.classes_) * choice.n_inducing * (choice.plan.batch_size or choice.n_rows)

    def _start_stream(self, rows: Rows) -> None:
        if len(self.classes_) < 2:
            raise ValueError("partial_fit needs two classes or more: name all of them in classes=")
        seed = draw_seed(self.random_state)
        choice = make_plan(self.get_params(deep=False) | {"batch_size": STREAM_BATCH}, STREAM_BATCH + 1, seed)
        self._scaler = fit_scaler("standard" if self.scaling == "auto" else self.scaling, rows.X, rows.weight)
        fitting = Fitting(self.get_params(deep=False), choice, len(self.classes_), choose_device(self.device))
        model = fitting.start(rows, self._scaler)
        nothing = torch.zeros(len(self.classes_), dtype=torch.float64, device=fitting.device)
        state = METHODS["sep"]().init(model.prior(model.start()), nothing, 0)
        self.history_ = []
        self.n_iter_, self.sharpness_, self.method_ = 0, 1.0, choice.name
        self.metrics_, self.training_ = {}, {"class_counts": [0] * len(self.classes_)}
        self._keep_stream(model, choice, model.start(), state, 0.0)

    def _keep_stream(self, model: Model, choice: Choice, theta: torch.Tensor, state: Any, weight: float) -> None:
        hyper_prior = HyperPrior(model, prior_spec(self.priors))
        self._stream = Stream(model, hyper_prior, make_optimizer(choice, model, weight), theta, state, weight)

    def _set_fitted(self, fit: Fit, choice: Choice, fingerprint: Any, counts: NDArray[np.int64]) -> GPClassifier:
        trained = fit.trained
        self.metrics_, self._is_from_file = {}, False
        self.training_ = fingerprint | {"rows": int(counts.sum()), "class_counts": counts.tolist()}
        self._scaler, self.method_ = fit.scaler, choice.name
        self.history_, self.n_iter_ = trained.history.records, trained.epochs
        if self.method in ("auto", "sep"):
            state = tied(trained.state, torch.from_numpy(fit.own_weight).to(trained.theta.device))
            self._keep_stream(fit.model, choice, trained.theta, state, float(fit.own_weight.sum()))
        else:
            self.__dict__.pop("_stream", None)  # of an earlier fit, with another scaling
        self._publish(trained.posterior)
        self.log_marginal_likelihood_ = trained.log_z
        return self


def load(path: Any, device: str = "auto") -> GPClassifier:
    """The classifier that `save` wrote to a file, ready to predict; the same bits as before.

    Nothing in the file is run: it may come from anyone. A damaged one is refused with an error that says what is wrong.

    Args:
        path: the file.
        device: where to predict: "auto" (a GPU where there is one), "cpu", "cuda", …
    """
    model = modelfile.read(path, GPClassifier._get_param_names())
    classifier = GPClassifier(**(model.params | {"device": device}))
    classifier.classes_, classifier.n_features_in_ = model.classes, model.n_features
    if model.feature_names is not None:
        classifier.feature_names_in_ = np.array(model.feature_names, dtype=object)
    classifier._scaler, classifier.method_ = model.scaler, model.method
    classifier.history_, classifier.n_iter_ = model.history, model.n_iter
    classifier.training_, classifier.metrics_ = model.training, model.metrics
    classifier.sharpness_ = model.posterior.sharpness
    classifier._publish(model.posterior)
    classifier.log_marginal_likelihood_ = model.log_marginal_likelihood
    classifier._is_from_file = True
    return classifier
