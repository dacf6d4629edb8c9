"""`GPClassifier`, a scikit-learn estimator: arguments, fit, predict, save, report. No mathematics."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from cavity.data import Survey
from cavity.data.schema import NUMBER, UNKNOWN, Column, Schema
from cavity.data.source import Source, as_source, is_source, schema_of
from cavity.fitting.conformal import HeldOutScores, SetRule
from cavity.fitting.encoding import Encoding, Group, TableEncoding
from cavity.fitting.fit import FitOptions, FittedModel, OnlineFit, choose_seed, fit_rows, fit_source
from cavity.fitting.novelty import Novelty
from cavity.fitting.rows import read_cells, validate_training
from cavity.fitting.settings import PAPER_STEPS, Settings
from cavity.gp import probabilities
from cavity.gp.gaussian import Posterior
from cavity.gp.probabilities import Uncertainty
from cavity.kernels import Grouped, Kernel
from cavity.runtime.device import choose_device, without_autograd
from cavity.runtime.distributed import current_workers
from cavity.runtime.warnings import CavityWarning
from cavity.training import Event, Record, Stop, Watch, describe
from cavity.training.history import NUMERICAL_EVENTS

if TYPE_CHECKING:
    from cavity.decisions import Decision
    from cavity.explanations import Explanation
    from cavity.report import DriftReport, Report

Array = NDArray[np.float64]


class NoveltyByColumn(NamedTuple):
    """How unlike the training rows each row is, and which of its cells are unusual.

    Attributes:
        novelty: as `GPClassifier.novelty` returns it, (N,).
        by_column: for each cell, the share of the training rows with one as unusual, (N, D): numbers as far out on
            either side, levels and gaps as rare. It is about 1 / n for what none of n training rows has.
        columns: the names of the columns, or their places.
    """

    novelty: Array
    by_column: Array
    columns: list[Any]


class _Moved(NamedTuple):
    """A copy of q(u) on another device."""

    source: Posterior
    device: torch.device
    posterior: Posterior


def _can_learn_online(classifier: GPClassifier) -> bool:
    if classifier.method not in ("auto", "sep"):
        raise AttributeError(f"partial_fit needs method='sep' or 'auto', got method={classifier.method!r}")
    return True


class GPClassifier(ClassifierMixin, BaseEstimator):
    """Gaussian process classifier for any number of classes, by expectation propagation with inducing points.

    Every class has a latent function with a Gaussian process prior. The label is the class whose function, plus noise,
    is largest. The functions are summarized by their values at M inducing points per class. EP, stochastic EP or one
    of their rivals approximates the posterior of these values; length-scales, variances, noise and the points
    themselves maximize log Z_q, an estimate of the marginal likelihood.

    Args:
        method: "ep" keeps a site for every row and class. "sep" keeps one site per class, so memory does not grow with
            the rows. "gfitc" runs EP on the latent values themselves, on all rows at once. "vi" maximizes a lower
            bound of the evidence. "auto" is EP if training uses all rows at once, and SEP on mini-batches; but VI on
            mini-batches of more than 200 features, such as pixels, if labels are clear and no other argument says how
            to learn.
        kernel: "rbf", "matern12", "matern32", "matern52", "laplace" or "linear", or a `cavity.kernels.Kernel` with its
            own start values. None is RBF + Matérn 1/2 or Matérn 1/2 + Laplace where a search precedes the fit
            (`n_inducing="auto"`), whichever predicts better, and RBF elsewhere. Length-scales are in units of scaled
            inputs.
        noise: initial latent noise variance, a float or (C,).
        n_inducing: M, or a fraction of the training rows as a float in (0, 1]. With "auto", if `method` is "ep" or
            "auto" and no argument says how to learn, the fit starts with a search: leave-one-out predictions of some
            rows, which come with EP, choose the scaling and the kernel's parameters. Up to 1,500 rows (1,370 with five
            classes, 1,090 with ten), all rows are then inducing points. Up to 2,000 rows, 200 to 600 fixed points
            follow, and above, 200 points that mini-batches move. Otherwise, and with more than 200 features and
            2,000 rows, it is 100; in that last case 500 on a GPU.
        inducing_points: initial values in units of X, (M, D) or (C, M, D); overrides `n_inducing` and `init`.
        init: initial inducing points: "kmeans" of all rows, "kmeans-per-class" (half from the rows of the class),
            "random" rows, or "paper" (random rows, and kernel and noise as in the paper).
        share_kernel: one kernel and noise for all classes.
        share_inducing: one set of inducing points for all classes; with `share_kernel` up to C times cheaper.
        learn_kernel: False keeps kernel and noise at their initial values.
        learn_inducing: False keeps the inducing points at their initial values.
        priors: weak priors on the kernel's parameters against overfitting: "default", None (pure maximization of
            log Z_q, as in the paper) or a dict. The dict maps "lengthscale", "variance" and "noise" to (median, sd of
            the log) or (median, sd below, sd above), where a median of None is the initial value; "spread" to the sd
            of the classes' log length-scales about their mean; and "relevance" to the sd of all log length-scales
            below their mean.
        scaling: of numbers: "standard", "quantile" (each column to its training quantiles), "power" (the power
            transform of Yeo and Johnson, to a nearly normal distribution), "common" (one scale for all columns: for
            pixels and other features of one kind), "auto" (the better of the first two by log Z_q on the training
            rows) or None. "default" is "standard"; in a table with categories, dates or gaps, "quantile" for its skewed
            columns. Where a search precedes the fit, "default" and "auto" are the best of that, "quantile" and, if all
            columns have similar ranges, "common". Dates and times are scaled in any case.
        categorical_features: which columns are categories: "from_dtype" (text, categorical and boolean columns of a
            frame), None (none), or a mask, places or names of columns, as in scikit-learn's
            HistGradientBoostingClassifier.
        calibrate: whether to set the sharpness of the probabilities on held-out rows. After a search and with all rows
            at once, EP predicts each row from all others. Elsewhere, with all rows at once, this takes three-fold
            cross-fitting, about as long as three more fits. With mini-batches training leaves out one row
            in twenty, at least 500 (or one in five) and at most 5,000. Copies of a row are never on both sides,
            but in a table of categories and numbers of few values, where copies are natural. Where
            the probabilities are still worse than class frequencies on these rows, they are mixed with them; after a
            fit that `max_seconds` has cut short, unless they are better by more than two standard errors. "auto"
            calibrates unless q(u) is all there is to learn; an int is a number of folds.
        class_weight: "balanced", or a dict from label to weight; multiplies `sample_weight`.
        batch_size: rows of a mini-batch; None for all rows at once; "auto" chooses by the number of rows.
        max_epochs: maximum number of passes over the rows; "auto" chooses by the number of rows.
        max_seconds: maximum training time, from the first step on, shared with the fits of calibration. Whatever it is,
            a fit makes one pass over the rows at least, q(u) then converges for up to 50 sweeps where all rows are used
            at once, and the result is calibrated.
        tol: training stops when log Z_q per row rises by less than this per epoch; if q(u) is all there is to learn,
            when a sweep changes it by less than this. "auto" is 1e-4, and 1e-10 if q(u) is all.
        optimizer: "adam" with a decaying rate; "lbfgs", for `updates="outer"` and GFITC; "paper", as the authors: their
            adaptive rates for EP and SEP, L-BFGS for GFITC, and for VI on hyper-parameters and q(u) at once.
        learning_rate: of the optimizer; None for its default.
        damping: weight of the new value in an update of a site, or the length of VI's natural-gradient step; None for
            the default.
        alpha: power of the factors in EP and SEP, in (0, 1]. 1 is EP. Below 1 it is power EP, between EP and the
            variational bound on the same factors, by quadrature, and a fit takes two to three times as long. GFITC and
            VI need 1.
        updates: "inner" (one sweep for each step of the hyper-parameters), "inner-exact" (the same with the full
            gradient) or "outer" (q converges before each step, as it always does for GFITC).
        device: "auto" (a GPU if there is one), "cpu", "cuda", …
        memory_limit: bytes that a fit may need by an estimate, for each process, such as 8e9; None for what is free on
            the device, `math.inf` for no limit.
        dtype: "float64", or "float32" for inputs and distances and, in mini-batches, all products with the rows of a
            batch; factorizations are float64. "float32" is faster, most of all with many features, and falls back to
            float64 if rows lie too far out for it. "auto": "float32" in mini-batches of more than 200 features on a
            CPU.
        checkpoint: a folder for checkpoints, from which `fit(..., resume=True)` continues. Without `resume=True` it
            must have none.
        checkpoint_seconds: time between checkpoints; one more is written at the end.
        distributed: whether this process shares the rows with the others of its torch.distributed group, all of which
            must then call `fit`. "auto": only under `torchrun`. True: uses an existing group, or joins the one that
            RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe. False: fits in this process alone.
        random_state: seed of the inducing points and of the order of mini-batches.
        verbose: 1 shows a progress bar, 2 also prints a line per epoch.

    Attributes:
        classes_: labels, sorted; the columns of `predict_proba`.
        n_features_in_, feature_names_in_: number and, for frames, names of the features.
        columns_: what each column was read as: its `kind` ("number", "category", "date", "time" or "left out") and the
            `levels` of a category.
        groups_: the column of each length-scale, and what it measures there: the "value", whether it is "missing", the
            "level" of a category, the class "frequency" of its levels where they are many, or the "year", "week" or
            "day" of a date. Without categories, dates and gaps it is the "value" of every column.
        kernel_: the kernel with its learned parameters; its length-scales are those of `groups_`.
        noise_: latent noise variances, (C,).
        inducing_points_: (C, M, D), in units of X; for categories, the nearest level.
        sharpness_: factor on the latent means in probabilities, set by calibration; 1 without calibration.
        posterior_: q(u), with `mean` (C, M) and `cov` (C, M, M).
        log_marginal_likelihood_: log Z_q of the training rows; for VI the bound.
        history_: one dict per epoch: objective (None if only sites move), seconds, learning rate, damping, and an event
            if something went wrong.
        n_iter_: number of epochs.
        method_: the method used if `method` is "auto".
        training_: number of training rows, rows of each class, and a digest of them.
        metrics_: scores stored with the model by `save`.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(random_state=0, max_epochs=50).fit(X, y)
    >>> clf.predict(X[:2])
    array([0, 0])
    >>> clf.predict_proba(X).shape
    (150, 3)
    """

    classes_: NDArray[Any]
    history_: list[Record]
    metrics_: dict[str, Any]
    training_: dict[str, Any]
    columns_: list[Column]
    groups_: list[tuple[Any, str]]
    _schema: Schema | None
    _encoding: Encoding
    _held_out: HeldOutScores | None
    _novelty: Novelty | None

    def __init__(
        self,
        method: str = "auto",
        *,
        kernel: Kernel | str | None = None,
        noise: ArrayLike | None = None,
        n_inducing: int | float | str = "auto",
        inducing_points: ArrayLike | None = None,
        init: str = "kmeans",
        share_kernel: bool = False,
        share_inducing: bool = False,
        learn_kernel: bool = True,
        learn_inducing: bool = True,
        priors: Any = "default",
        scaling: str | None = "default",
        categorical_features: Any = "from_dtype",
        calibrate: bool | int | str = "auto",
        class_weight: Any = None,
        batch_size: int | str | None = "auto",
        max_epochs: int | str = "auto",
        max_seconds: float | None = None,
        tol: float | str = "auto",
        optimizer: str = "auto",
        learning_rate: float | None = None,
        damping: float | None = None,
        alpha: float = 1.0,
        updates: str = "inner",
        device: str = "auto",
        memory_limit: float | None = None,
        dtype: str = "auto",
        checkpoint: Any = None,
        checkpoint_seconds: float = 60.0,
        distributed: bool | str = "auto",
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
        self.categorical_features = categorical_features
        self.calibrate = calibrate
        self.class_weight = class_weight
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.max_seconds = max_seconds
        self.tol = tol
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.damping = damping
        self.alpha = alpha
        self.updates = updates
        self.device = device
        self.memory_limit = memory_limit
        self.dtype = dtype
        self.checkpoint = checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.distributed = distributed
        self.random_state = random_state
        self.verbose = verbose

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, without a copy of q(u) on a GPU; skops and MLflow store arrays, not tensors."""
        from cavity.files.state import to_plain

        return {name: to_plain(value) for name, value in super().__getstate__().items() if name != "_moved"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from cavity.files.state import from_plain

        super().__setstate__({name: from_plain(value) for name, value in state.items()})

    def __copy__(self) -> GPClassifier:
        found = type(self).__new__(type(self))
        found.__dict__.update(self.__dict__)
        return found

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what X may hold: gaps, categories and text."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    @classmethod
    def paper(cls, method: str = "ep", n_inducing: int | float = 0.1, **changes: Any) -> GPClassifier:
        """Return a classifier with the settings of the paper's authors, from their program where the text differs.

        Standardized inputs; variance and noise start at 1, length-scales at √(median distance); inducing points start
        at random rows, drawn for each class; all rows at once; no priors. EP and SEP: damping 0.5, times 0.99 per
        iteration; a rate for each parameter that grows by 2 % or halves with the sign of its gradient; 249 steps. As in
        their program, rates of length-scales follow the sign of the sum of all their gradients. GFITC and VI: 250
        iterations of L-BFGS, for VI over q(u) as well (docs/paper-settings.md).

        Args:
            method: "ep", "sep", "gfitc" or "vi".
            n_inducing: M, or a fraction of the training rows.
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
            "dtype": "float64",
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

        Under `torchrun` the processes share the rows (see `distributed`), and each ends with the same model. A fit that
        fails leaves the classifier as it was.

        Args:
            X: features, (N, D): an array, a pandas or polars frame of numbers, or a source of labeled rows
                (`cavity.data`), which is read in batches.
            y: labels of any type, (N,); None with a source.
            sample_weight: a row of weight w counts as w copies of it; a row of weight 0 is dropped.
            watch: a `cavity.training.Watch`, called with the classifier at given times of training.
            resume: continue from the last checkpoint in the folder `checkpoint`, if there is one.
            survey: the result of `cavity.data.survey` for the source; None reads the source once to compute it.
            stop: a `threading.Event`; once it is set, training ends after the current step with the model so far.

        Returns:
            The classifier itself.
        """
        settings = Settings(**self.get_params(deep=False))
        workers = current_workers(settings.distributed)
        if resume and settings.checkpoint is None:
            raise ValueError("resume=True needs the folder of the checkpoints: GPClassifier(checkpoint='folder')")
        look = None if watch is None else Watch(watch.at, lambda model, t: watch.look(copy(self)._set_fitted(model), t))
        options = FitOptions(settings, choose_seed(settings, resume, workers), workers, resume, stop, look)
        if is_source(X):
            if y is not None or sample_weight is not None:
                raise ValueError("y and sample_weight must be None with a source, which has its own labels")
            source = as_source(X, settings.categorical_features)
            return self._set_fitted(fit_source(source, survey, options))
        categorical = settings.categorical_features
        table = validate_training(self, X, y, sample_weight, settings.class_weight, categorical_features=categorical)
        return self._set_fitted(fit_rows(table, options))

    @available_if(_can_learn_online)
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> GPClassifier:
        """Learn from new rows and forget them (methods "sep" and "auto").

        Every row counts as new evidence, so pass each row once. The first call fixes the scaling of the inputs and the
        initial inducing points: it should hold a few hundred typical rows. After `fit`, learning continues from there.
        Rows from which the model cannot compute finite numbers are left out: a warning and `history_` say how many.

        Args:
            X: features, (N, D).
            y: labels, (N,).
            classes: all labels that will ever occur; required in the first call.
            sample_weight: as for `fit`.
        """
        settings, online = Settings(**self.get_params(deep=False)), getattr(self, "_online", None)
        is_first = online is None
        if is_first and getattr(self, "_is_from_file", False):
            raise ValueError(
                "partial_fit cannot continue from a model file, which does not store its state: fit a new "
                "GPClassifier, or pickle the classifier"
            )
        if is_first and classes is None:
            raise ValueError(
                "classes must list all labels that will ever occur in the first call of partial_fit, got None"
            )
        if not is_first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes must be those of the first call, {self.classes_!r}, got {classes!r}")
        known = classes if is_first else self.classes_
        categorical, schema = settings.categorical_features, None if is_first else self._schema
        table = validate_training(
            self, X, y, sample_weight, settings.class_weight, known, is_first, categorical, schema
        )
        with without_autograd(choose_device(self.device)):
            online = OnlineFit.start(settings, table) if online is None else online
            online, records, is_learned = online.absorb(table.rows, self.device)
            posterior = online.posterior(table.rows)
        for record in records:
            if record["event"] in (Event.ROWS_LEFT_OUT, *NUMERICAL_EVENTS):
                warnings.warn(describe(record), CavityWarning, stacklevel=2)
        counts, n_iter = np.bincount(table.rows.y[is_learned], minlength=len(table.classes)), 1
        history: list[Record] = []
        if not is_first:
            history, n_iter = self.history_, self.n_iter_ + 1
            counts = counts + self.training_["class_counts"]
            posterior = replace(posterior, sharpness=self.sharpness_, epsilon=self.posterior_.epsilon)
        n_features = table.rows.X.shape[1]
        fitted = FittedModel(
            classes=table.classes,
            n_features=n_features,
            feature_names=table.feature_names,
            schema=table.schema,
            encoding=online.encoding,
            posterior=posterior.to(torch.device("cpu")),
            method=online.method if is_first else self.method_,
            history=[*history, *({"epoch": n_iter, **record} for record in records)],
            n_iter=n_iter,
            log_marginal_likelihood=records[-1]["objective"],
            training={"rows": int(counts.sum()), "features": n_features, "class_counts": counts.tolist()},
            online=online,
            novelty=online.novelty(table, None if is_first else (self._novelty, self.posterior_)),
        )
        return self._set_fitted(fitted, {} if is_first else self.metrics_)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row of an array, frame or source."""
        best = self.predict_log_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities, (N, C), in the order of `classes_`; every row sums to one."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Return logarithms of the class probabilities, exact far into the tails."""
        found = [self._log_proba(rows) for rows in self._blocks(X)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def predict_to(self, X: Any, folder: Any, *, resume: bool = False, coverage: float | None = None) -> int:
        """Write predictions for a source of any size to a folder of Parquet files, in constant memory.

        The files, in the order of their names, have a line for every row: its number in its part, `prediction`, and
        `p_…`, the probability of each class. Under `torchrun` the processes share the work (see `distributed`).

        Args:
            X: a source (`cavity.data`); labels are not needed.
            folder: where to write.
            resume: keep complete parts and write the others.
            coverage: of prediction sets (`predict_set`), which add a column `set_…` for each label; None for none.

        Returns:
            The number of rows that this process has predicted.
        """
        from cavity.data.predictions import write_predictions

        source = self._validate_source(as_source(X))
        workers = current_workers(self.distributed)
        sets = None if coverage is None else self._set_rule(coverage).sets
        return write_predictions(source, self._log_proba, self.classes_, folder, resume, workers, sets)

    def predict_set(
        self,
        X: Any,
        coverage: float = 0.9,
        *,
        conditional: str | None = None,
        score: str = "adaptive",
        allow_empty: bool = False,
    ) -> NDArray[np.bool_]:
        """Return which labels cannot be ruled out, (N, C), in the order of `classes_`.

        The sets hold the label of at least this fraction of new rows, if these are exchangeable with the rows that the
        fit has held out, or with those of `conformalize`. A fit with calibration holds rows out; up to 2,000 rows, by
        leave-one-out predictions (docs/prediction-sets.md says what is proven, and what is measured).

        Args:
            X: an array, frame or source.
            coverage: in (0, 1).
            conditional: None for this coverage of all rows together. "class" for each class; a class of fewer than
                coverage / (1 − coverage) held-out rows is then in every set. "confidence" for each of up to five groups
                of rows, by the probability of their most probable label: rows that the model is unsure of are covered
                as often as others.
            score: "adaptive" adds labels, the most probable first, until they are as probable together as held-out rows
                ask for. "threshold" takes all labels of at least some probability, for the smallest sets on average.
            allow_empty: whether a set may be empty, where even the most probable label can be ruled out. Otherwise the
                set has that label, so sets cover at least as many rows as `predict` gets right.

        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = GPClassifier(random_state=0).fit(X[::2], y[::2])
        >>> sets = clf.predict_set(X[1::2], coverage=0.95)
        >>> bool(sets[:25, 0].all()), int(sets.sum(1).max())
        (True, 2)
        """
        check_is_fitted(self, "posterior_")
        return self._set_rule(coverage, conditional, score, allow_empty).sets(self.predict_log_proba(X))

    def conformalize(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> GPClassifier:
        """Use labeled rows that the model has not learned from as the held-out rows of `predict_set`.

        The coverage of the sets is then proven for rows that are exchangeable with these, whatever the model. The
        probabilities do not change.

        Args:
            X: features, (N, D).
            y: labels, (N,), of the classes of the fit.
            sample_weight: a row of weight w counts as w rows.
        """
        check_is_fitted(self, "posterior_")
        table = validate_training(
            self, X, y, sample_weight, None, self.classes_, False, self.categorical_features, self._schema
        )
        rows = table.rows
        self._held_out = HeldOutScores.of_labels(self._log_proba(rows.X), rows.y, rows.weight)
        return self

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Return mean and variance of the latent functions f, noise included, each (N, C)."""
        rows = self._validate_new(X)
        return probabilities.marginals(self._posterior_on_device(), self._encode(rows))

    def uncertainty(self, X: Any) -> Uncertainty:
        """Return the total, aleatoric and epistemic uncertainty of each prediction, in nats."""
        rows = self._validate_new(X)
        return probabilities.uncertainty(self._posterior_on_device(), self._encode(rows))

    def decide(
        self,
        X: Any,
        cost: Any,
        *,
        abstain: ArrayLike | None = None,
        actions: Sequence[Any] | None = None,
        value_of_rows: bool = True,
    ) -> Decision:
        """Choose the action of the least expected cost for each row, and say what knowing more would be worth.

        Args:
            X: rows of an array, frame or source, as for `predict`.
            cost: of each action (column) for each true label (row, in the order of `classes_`), (C, A): an array, or
                a pandas frame or dict of dicts that names labels and actions. Negative costs are gains. Square without
                names: the actions are the labels.
            abstain: the cost of one more action, "abstain", whatever the label is; or (C,), its cost for each label.
            actions: names of the columns of `cost`; needed where they are neither named nor the labels.
            value_of_rows: whether to compute what more training rows are worth, which takes most of the time.

        Returns:
            A `Decision`.

        >>> from sklearn.datasets import load_breast_cancer
        >>> X, y = load_breast_cancer(return_X_y=True)  # 0: malignant, 1: benign
        >>> clf = GPClassifier(n_inducing=10, max_epochs=10, random_state=0).fit(X[::2], y[::2])
        >>> found = clf.decide(X[1::2], {0: {"treat": 1, "wait": 20}, 1: {"treat": 3, "wait": 0}}, abstain=0.5)
        >>> found.actions
        array(['treat', 'wait', 'abstain'], dtype='<U7')
        >>> found.costs.shape
        (284, 3)
        """
        from cavity.decisions import Costs

        check_is_fitted(self, "posterior_")
        costs = Costs.read(cost, self.classes_, abstain, actions)
        posterior, regret = self._posterior_on_device(), torch.from_numpy(costs.regret)
        p, values = [], []
        for rows in self._blocks(X):
            encoded = self._encode(rows)
            p.append(np.exp(probabilities.log_probabilities(posterior, encoded)))
            if value_of_rows:
                values.append(probabilities.value_of_rows(posterior, encoded, regret))
        return costs.decide(np.concatenate(p), np.concatenate(values) if value_of_rows else None)

    def explain(self, X: Any, against: Any = None, *, label: Any = None, background: Any = None) -> Explanation:
        """Say which columns of each row speak for its label against another one, and how much.

        Args:
            X: rows, (N, D), as for `predict`.
            against: the other label, one for all rows or (N,); None for the most probable one but `label`.
            label: the label to explain, in the same way; None for the predicted one, or the most probable one but
                `against`.
            background: rows to compare with, as X; None for rows that combine the values that the model knows of each
                column.

        Returns:
            An `Explanation`.

        >>> from sklearn.datasets import load_iris
        >>> data = load_iris(as_frame=True)
        >>> X, y = data.data, data.target_names[data.target]
        >>> clf = GPClassifier(n_inducing=10, max_epochs=20, random_state=0).fit(X, y)
        >>> found = clf.explain(X[70:71])
        >>> str(found.label[0]), str(found.against[0])
        ('virginica', 'versicolor')
        >>> found.columns[found.contributions[0].argmax()]
        'petal width (cm)'
        """
        from cavity.explanations import Background, choose_labels, explain, training_background

        rows = self._validate_new(X)
        labels = choose_labels(self._log_proba(rows), self.classes_, label, against)
        if background is not None:
            reference = Background.of_rows(self._validate_new(background))
        elif self._novelty is not None:
            reference = training_background(self._novelty.profile)
        else:
            raise ValueError(
                "explain needs background rows, which this model file of an older version of cavity does not have: "
                "pass background=X with some training rows"
            )
        return explain(
            self._posterior_on_device(),
            self._encoding,
            self._schema,
            self._feature_names() or [f"x{j}" for j in range(self.n_features_in_)],
            self.classes_,
            rows,
            labels,
            reference,
        )

    def novelty(self, X: Any, *, explain: bool = False) -> Any:
        """Return how unlike the training rows each row is: the share of such rows that look as strange or stranger.

        For rows like the training rows this is uniform in (0, 1]; it is near 0 for rows that are far from them, with
        levels or gaps that they do not have, or of a class that they do not have. So `novelty(X) < 0.05` finds such
        rows, and one in twenty of the others. A row is compared with rows that the model has not learned from: those
        held out for calibration, or each training row with the others as its training rows (docs/novelty.md).

        Args:
            X: features, (N, D), or a source, where an unknown level of a category counts as a gap.
            explain: whether to return, in addition, how unusual each cell is, as a `NoveltyByColumn`.

        Returns:
            The share of each row, (N,), or a `NoveltyByColumn`.

        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = GPClassifier(random_state=0).fit(X, y)
        >>> clf.novelty([[5.0, 3.4, 1.5, 0.2], [50.0, 3.4, 1.5, 0.2]]) < 0.05
        array([False,  True])
        >>> clf.novelty([[50.0, 3.4, 1.5, 0.2]], explain=True).by_column < 0.05
        array([[ True, False, False, False]])
        """
        check_is_fitted(self, "posterior_")
        known = self._known_novelty()
        if is_source(X):
            source = self._validate_source(X)
            parts = [self._novelty_of(known, block.X) for lane in range(source.lanes) for block in source.blocks(lane)]
            p, by_column = (np.concatenate(part) for part in zip(*parts, strict=True))
        else:
            p, by_column = self._novelty_of(known, read_cells(self, X, self._schema, unknown=UNKNOWN))
        return NoveltyByColumn(p, by_column, [column.name for column in self.columns_]) if explain else p

    def _known_novelty(self) -> Novelty:
        """Return what tells how unlike the training rows a row is; raise ValueError if no row has shown that."""
        if self._novelty is not None and self._novelty.held_out.shape[1]:
            return self._novelty
        if self._is_from_file and self._novelty is None:
            remedy = "the model file is of an older version of cavity: fit and save the model again"
        elif self._online is not None and self.calibrate is not False and "digest" not in self.training_:
            remedy = "partial_fit has seen a single batch: it compares the rows of each batch with those before"
        else:
            remedy = "fit with calibrate=True, which holds out rows"
        raise ValueError(f"novelty needs rows that the model has not learned from, and has none: {remedy}")

    def _novelty_of(self, known: Novelty, cells: Array) -> tuple[Array, Array]:
        parts = known.parts(self._posterior_on_device(), self._encoding, cells)
        return known.p_values(parts), known.profile.unusual(cells)

    def save(self, path: Any, metrics: dict[str, Any] | None = None) -> None:
        """Write the model to a file for `cavity.load`: no pickle, safe to read from any source.

        The file holds what prediction needs, the settings, a description of the training rows, `metrics_` and a summary
        of `history_`. It does not hold the state of `partial_fit`.

        Args:
            path: the file, usually `*.cavity`; replaced atomically if it exists.
            metrics: scores to store with the model, as JSON values; they are added to `metrics_`.
        """
        from cavity.files import model_file

        check_is_fitted(self, "posterior_")
        self.metrics_ = self.metrics_ | (metrics or {})
        model = model_file.SavedModel(
            params=self.get_params(deep=False),
            classes=self.classes_,
            n_features=self.n_features_in_,
            feature_names=self._feature_names(),
            posterior=self.posterior_,
            schema=self._schema,
            encoding=self._encoding,
            method=self.method_,
            log_marginal_likelihood=self.log_marginal_likelihood_,
            n_iter=self.n_iter_,
            history=self.history_,
            training=self.training_,
            metrics=self.metrics_,
            held_out=self._held_out,
            novelty=self._novelty,
        )
        model_file.write(path, model)

    def report(
        self,
        X: Any,
        y: Any,
        *,
        train: tuple[Any, Any] | None = None,
        title: str | None = None,
        row_names: Any = None,
    ) -> Report:
        """Examine the model on rows that it has not learned from, and return an HTML report.

        The report shows scores with intervals beside baselines, calibration, confusions, feature relevance, uncertain
        rows, training, and advice.

        Args:
            X: features, (N, D).
            y: labels, (N,).
            train: features and labels of the training rows, to train the baselines and to find rows that the model has
                seen; without them the baselines are cross-validated on the rows given.
            title: of the page.
            row_names: integers that identify the rows, such as line numbers; by default their indices.

        Returns:
            The report; `save("report.html")` writes it, and notebooks show it.
        """
        from cavity.report import Report, examine

        check_is_fitted(self, "posterior_")
        return Report(examine(self, X, y, train=train, title=title, row_names=row_names))

    def drift(self, X: Any, y: Any = None, *, title: str | None = None, row_names: Any = None) -> DriftReport:
        """Compare a table with the training rows, and return an HTML report.

        The report shows how many rows are novel beside how many are expected, which columns have moved, and, where
        labels are there, scores and calibration.

        Args:
            X: features, (N, D).
            y: labels, (N,), which may include some that the model does not know.
            title: of the page.
            row_names: integers that identify the rows, such as line numbers; by default their indices.

        Returns:
            The report; `save("drift.html")` writes it, and `findings` are its numbers.

        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = GPClassifier(random_state=0).fit(X[::2], y[::2])
        >>> [column.name for column in clf.drift(X[1::2] + [0.0, 0.0, 2.0, 0.0]).findings.moved]
        ['x2']
        """
        from cavity.report import DriftReport, examine_drift

        check_is_fitted(self, "posterior_")
        self._known_novelty()
        return DriftReport(examine_drift(self, X, y, title=title, row_names=row_names))

    def to_onnx(
        self,
        path: Any = None,
        dtype: str = "float64",
        *,
        coverage: float | None = None,
        conditional: str | None = None,
        score: str = "adaptive",
        allow_empty: bool = False,
    ) -> Any:
        """Export the model as ONNX: probabilities and labels from rows in units of X, for programs without cavity.

        The input is `X`, (N, D), for a table of numbers, and else one for each column, (N, 1), with its name: strings
        for a category, seconds since 1970 for a date. NaN and "" are missing.

        Args:
            path: a file to write; None only returns the model.
            dtype: of numbers and probabilities, "float64" or "float32"; dates and the computation are float64.
            coverage: adds an output `set`, (N, C), as `predict_set` with this coverage and the arguments after it; None
                for none.
            conditional, score, allow_empty: as of `predict_set`.

        Returns:
            An `onnx.ModelProto`.
        """
        from cavity.export import to_onnx, write_onnx

        check_is_fitted(self, "posterior_")
        rule = None if coverage is None else self._set_rule(coverage, conditional, score, allow_empty)
        names = self._feature_names()
        model = to_onnx(self.posterior_, self._encoding, self.classes_, names, dtype, self._schema, rule)
        if path is not None:
            write_onnx(model, path)
        return model

    def _set_fitted(self, model: FittedModel, metrics: dict[str, Any] | None = None) -> GPClassifier:
        """Set all fitted attributes: the only place that does."""
        prior, n_classes = model.posterior.prior, len(model.classes)
        self.classes_, self.n_features_in_ = model.classes, model.n_features
        self.__dict__.pop("feature_names_in_", None)
        if model.feature_names is not None:
            self.feature_names_in_ = model.feature_names
        self.posterior_, self.sharpness_ = model.posterior, model.posterior.sharpness
        kernel, is_table = prior.kernel, isinstance(model.encoding, TableEncoding)
        kernel = kernel.kernel if is_table and isinstance(kernel, Grouped) else kernel
        self.kernel_ = kernel.fitted(prior.params)
        names = range(model.n_features) if model.feature_names is None else model.feature_names
        self.columns_ = [Column(name) for name in names] if model.schema is None else list(model.schema.columns)
        groups = model.encoding.groups if isinstance(model.encoding, TableEncoding) else map(Group, range(len(names)))
        self.groups_ = [(names[group.column], group.what) for group in groups]
        self.noise_ = np.broadcast_to(prior.log_noise.exp().numpy(), (n_classes,)).copy()
        Z = model.encoding.inverse(prior.Z.numpy())
        Z = Z if model.schema is None else model.schema.decode(Z)
        self.inducing_points_ = np.broadcast_to(Z, (n_classes, *Z.shape[1:])).copy()
        self.log_marginal_likelihood_ = model.log_marginal_likelihood
        self.history_, self.n_iter_, self.method_ = model.history, model.n_iter, model.method
        self.training_, self.metrics_ = model.training, metrics or {}
        self._schema, self._encoding, self._held_out = model.schema, model.encoding, model.held_out
        self._online, self._is_from_file, self._novelty = model.online, False, model.novelty
        return self

    def _validate_new(self, X: Any) -> Array:
        """Validate rows to predict."""
        check_is_fitted(self, "posterior_")
        return read_cells(self, X, self._schema)

    def _blocks(self, X: Any) -> Iterator[Array]:
        """Yield the validated rows of an array, frame or source."""
        if not is_source(X):
            yield self._validate_new(X)
            return
        source = self._validate_source(X)
        for lane in range(source.lanes):
            yield from (block.X for block in source.blocks(lane))

    def _validate_source(self, X: Any) -> Source:
        """Return a source with the columns of the fit, by their names where both have names."""
        check_is_fitted(self, "posterior_")
        source, names = as_source(X), self._feature_names()
        schema, own, own_names = Schema(tuple(self.columns_)), schema_of(source), source.feature_names
        if names is None and self._schema is None and own is not None:  # a model of numbers takes the numbers
            columns = tuple(column for column in own.columns if column.kind == NUMBER)
            schema = Schema(columns) if len(columns) == self.n_features_in_ else schema
        is_alike = self._schema is None and own is None and (None in (names, own_names) or names == own_names)
        if not is_alike and hasattr(source, "with_schema"):
            source = source.with_schema(schema)
        if source.n_features != self.n_features_in_:
            raise ValueError(
                f"the source has {source.n_features} features, but GPClassifier is expecting {self.n_features_in_} "
                "features as input"
            )
        if names is not None and source.feature_names is not None and names != list(source.feature_names):
            raise ValueError(
                f"the source must have the features of the fit in their order, {names}, got {source.feature_names}: "
                "create it with features=[...]"
            )
        return source

    def _set_rule(
        self, coverage: Any, conditional: Any = None, score: Any = "adaptive", allow_empty: bool = False
    ) -> SetRule:
        """Return which labels the sets of `predict_set` have."""
        if self._held_out is None:
            raise ValueError(
                "prediction sets need rows that the model has not learned from, and this model has kept none: fit with "
                "calibrate=True, or call conformalize(X, y) with such rows"
            )
        return self._held_out.rule(coverage, len(self.classes_), conditional, score, allow_empty)

    def _feature_names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def _log_proba(self, rows: Array) -> Array:
        """Predict validated rows."""
        return probabilities.log_probabilities(self._posterior_on_device(), self._encode(rows))

    def _encode(self, rows: Array) -> torch.Tensor:
        return torch.from_numpy(self._encoding.transform(rows))

    def _posterior_on_device(self) -> Posterior:
        """Return q(u) on the device that predicts; a copy there is kept with its factors, for the next prediction."""
        device = choose_device(self.device)
        if device.type == "cpu":
            return self.posterior_
        moved = self.__dict__.get("_moved")
        if moved is None or moved.source is not self.posterior_ or moved.device != device:
            moved = self._moved = _Moved(self.posterior_, device, self.posterior_.to(device))
        return moved.posterior


def load(path: Any, device: str = "auto") -> GPClassifier:
    """Load a classifier that `save` wrote; it predicts the same bits as before.

    Reading a file runs nothing from it, so the file may come from anyone. A damaged file raises an error that says what
    is wrong.

    Args:
        path: the file.
        device: where to predict: "auto" (a GPU if there is one), "cpu", "cuda", …
    """
    from cavity.files import model_file

    saved = model_file.read(path, GPClassifier._get_param_names())
    names = saved.feature_names
    fitted = FittedModel(
        classes=saved.classes,
        n_features=saved.n_features,
        feature_names=None if names is None else np.array(names, dtype=object),
        schema=saved.schema,
        encoding=saved.encoding,
        posterior=saved.posterior,
        method=saved.method,
        history=saved.history,
        n_iter=saved.n_iter,
        log_marginal_likelihood=saved.log_marginal_likelihood,
        training=saved.training,
        held_out=saved.held_out,
        novelty=saved.novelty,
    )
    classifier = GPClassifier(**(saved.params | {"device": device}))._set_fitted(fitted, saved.metrics)
    classifier._is_from_file = True
    return classifier
