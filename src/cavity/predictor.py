"""What a fitted classifier does: predict, say how sure it is, go into a file, a report or another program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from cavity.data import as_source, is_source
from cavity.data.predictions import write_predictions
from cavity.data.source import Source
from cavity.files import model_file as modelfile
from cavity.fitting.encoding import Scaler
from cavity.fitting.rows import large_sums
from cavity.gp import probabilities as predict
from cavity.gp.gaussian import Posterior
from cavity.gp.probabilities import Uncertainty
from cavity.report import Report, examine
from cavity.runtime.device import choose_device
from cavity.runtime.distributed import current_workers
from cavity.training import Record

Array = NDArray[np.float64]


class Predictor(ClassifierMixin, BaseEstimator):
    """The half of `GPClassifier` that needs no training rows: q(u), the scaling and the labels are all it has."""

    device: str
    classes_: NDArray[Any]
    n_features_in_: int
    history_: list[Record]
    training_: dict[str, Any]
    metrics_: dict[str, Any]
    method_: str
    n_iter_: int
    log_marginal_likelihood_: float
    sharpness_: float
    _scaler: Scaler

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row; of a source's too."""
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, (N, C), in the order of `classes_`; every row sums to one."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the class probabilities, exact far into the tails."""
        if is_source(X):
            source = self._validate_source(X)
            blocks = (block.X for lane in range(source.lanes) for block in source.blocks(lane))
            return np.concatenate([self._log_proba(rows) for rows in blocks])
        return predict.log_probabilities(*self._validate_new(X))

    def predict_to(self, X: Any, folder: Any, *, resume: bool = False) -> int:
        """Write predictions for a source of any size to a folder of Parquet files, in constant memory.

        The files, in the order of their names, have a line for every row: its number in its part, `prediction`, and
        `p_…`, the probability of each class. Under `torchrun` the processes share the work.

        Args:
            X: a source (`cavity.data`); labels are not needed.
            folder: where to write.
            resume: keep the parts that are there, whole, and write the others.

        Returns:
            How many rows this process has predicted for.
        """
        source = self._validate_source(as_source(X))
        return write_predictions(source, self._log_proba, self.classes_, folder, resume, current_workers())

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the latent functions f, noise included, each (N, C)."""
        return predict.marginals(*self._validate_new(X))

    def uncertainty(self, X: Any) -> Uncertainty:
        """How unsure each prediction is, and why: total, aleatoric and epistemic entropy in nats."""
        return predict.uncertainty(*self._validate_new(X))

    def save(self, path: Any, metrics: dict[str, Any] | None = None) -> None:
        """Write the model to a file that `cavity.load` reads: no pickle, safe to read whoever made it.

        Kept are what prediction needs, the settings, what is known of the training rows, `metrics_` and a summary of
        `history_`; `partial_fit` needs a classifier that was not saved.

        Args:
            path: the file, `*.cavity` by custom; replaced as a whole if it is there.
            metrics: scores to keep with the model, as JSON has them; they are added to `metrics_`.
        """
        check_is_fitted(self, "posterior_")
        names = getattr(self, "feature_names_in_", None)
        self.metrics_ = self.metrics_ | (metrics or {})
        model = modelfile.Model(
            params=self.get_params(deep=False),
            classes=self.classes_,
            n_features=self.n_features_in_,
            feature_names=None if names is None else [str(name) for name in names],
            posterior=self.posterior_,
            scaler=self._scaler,
            method=self.method_,
            log_marginal_likelihood=self.log_marginal_likelihood_,
            n_iter=self.n_iter_,
            history=self.history_,
            training=self.training_,
            metrics=self.metrics_,
        )
        modelfile.write(path, model)

    def report(
        self,
        X: Any,
        y: Any,
        *,
        train: tuple[Any, Any] | None = None,
        title: str | None = None,
        row_names: Any = None,
    ) -> Report:
        """A page that says how far to trust the model, from rows that it has not learned from.

        Scores with their intervals beside baselines, calibration, confusions, which features matter, where the model is
        unsure and why, training, and what to do about what was found.

        Args:
            X: features, (N, D).
            y: their labels, (N,).
            train: features and labels of the training rows, for the baselines; without them baselines learn from the
                rows given, in folds.
            title: of the page.
            row_names: whole numbers to call the rows by, such as lines of a file; their places by default.

        Returns:
            The report; `save("report.html")` writes it, and notebooks show it.
        """
        check_is_fitted(self, "posterior_")
        return Report(examine(self, X, y, train=train, title=title, row_names=row_names))

    def to_onnx(self, path: Any = None, dtype: str = "float64") -> Any:
        """The model as ONNX: probabilities and labels from rows in units of X, for programs without cavity.

        Args:
            path: a file to write; None only returns the model.
            dtype: of rows and probabilities, "float64" or "float32"; all between is float64.

        Returns:
            An `onnx.ModelProto`.
        """
        from cavity.export import to_onnx, write_onnx

        check_is_fitted(self, "posterior_")
        names = getattr(self, "feature_names_in_", None)
        model = to_onnx(self.posterior_, self._scaler, self.classes_, None if names is None else list(names), dtype)
        if path is not None:
            write_onnx(model, path)
        return model

    def _validate_new(self, X: Any) -> tuple[Posterior, torch.Tensor]:
        """q(u) on the device that predicts, and the scaled rows, which go there block by block."""
        check_is_fitted(self, "posterior_")
        with large_sums():
            X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return self._posterior_there(), torch.from_numpy(self._scaler.transform(X))

    def _validate_source(self, X: Any) -> Source:
        check_is_fitted(self, "posterior_")
        source, names = as_source(X), getattr(self, "feature_names_in_", None)
        if source.n_features != self.n_features_in_:
            raise ValueError(f"the source has {source.n_features} features, but GPClassifier is expecting "
                             f"{self.n_features_in_} features as input")  # fmt: skip
        if names is not None and source.feature_names is not None and list(names) != list(source.feature_names):
            raise ValueError(f"the source has the features {source.feature_names}, the fit had {list(names)}; "
                             "name them in their order: features=[...]")  # fmt: skip
        return source

    def _log_proba(self, X: Array) -> Array:
        """Of rows that are known to be in order."""
        return predict.log_probabilities(self._posterior_there(), torch.from_numpy(self._scaler.transform(X)))

    def _posterior_there(self) -> Posterior:
        """q(u) on the device that predicts."""
        device = choose_device(self.device)
        return self.posterior_ if device.type == "cpu" else self.posterior_.to(device)

    def _publish(self, posterior: Posterior) -> None:
        self.posterior_ = replace(posterior.to(torch.device("cpu")), sharpness=self.sharpness_)
        prior, n_classes = self.posterior_.prior, len(self.classes_)
        self.kernel_ = prior.kernel.fitted(prior.params)
        self.noise_ = np.broadcast_to(prior.log_noise.exp().numpy(), (n_classes,)).copy()
        Z = self._scaler.inverse(prior.Z.numpy())
        self.inducing_points_ = np.broadcast_to(Z, (n_classes, *Z.shape[1:])).copy()
