"""GPyTorch and GPflow on the same problem: SVGP with Adam, a kernel and inducing points for every class.

Both are optional, and imported only when they are used.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.problems import Start

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

LENGTHSCALE = 7.0
SAMPLES = 64  # of the latent functions, for the probabilities of a softmax
CHUNK = 1000
MIN_PROBABILITY = 1e-12  # the robust max may give a class a probability of zero


class Rival(Protocol):
    """A model that trains on rows that it holds."""

    def batch(self, rows: NDArray[np.int64]) -> Any:
        """Return the rows with these indices, as `step` takes them."""

    def step(self, batch: Any) -> None:
        """Make one step of Adam on the bound."""

    def log_proba(self, X: Array) -> Array:
        """Return the log-probabilities of the classes, (N, C)."""


Make = Callable[[Array, Labels, Start, str, str, float], Rival]


def available(dtype: str = "float64", device: str = "cpu") -> dict[str, Make]:
    """Return the rivals that are installed and work: GPflow with its default jitter fails in float32."""
    makers: dict[str, Make] = {"gpytorch": GPyTorch}
    if dtype == "float64" and device == "cpu":
        makers["gpflow"] = GPflow
    return {name: make for name, make in makers.items() if importlib.util.find_spec(name) is not None}


class GPyTorch:
    """SVGP with a softmax likelihood."""

    def __init__(self, X: Array, y: Labels, start: Start, dtype: str, device: str, rate: float) -> None:
        with _ignore_deprecations():
            import gpytorch

        n_classes = len(start.Z)
        self._to: dict[str, Any] = {"dtype": getattr(torch, dtype), "device": device}
        self._X, self._y = torch.as_tensor(X, **self._to), torch.as_tensor(y, device=device)
        self._model = _softmax_model(start).to(**self._to)
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=n_classes, mixing_weights=False)
        self._bound = gpytorch.mlls.VariationalELBO(likelihood, self._model, num_data=len(X))
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=rate)

    def batch(self, rows: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        picked = torch.as_tensor(rows, device=self._y.device)
        return self._X[picked], self._y[picked]

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        X, y = batch
        self._optimizer.zero_grad()
        loss = -self._bound(self._model(X), y)
        loss.backward()
        self._optimizer.step()

    def log_proba(self, X: Array) -> Array:
        """Average the softmax of samples of the latent functions at each row."""
        self._model.eval()
        with torch.no_grad():
            found = [self._average(torch.as_tensor(part, **self._to)) for part in _chunks(X)]
        self._model.train()
        return np.log(np.concatenate(found).clip(MIN_PROBABILITY))

    def _average(self, X: torch.Tensor) -> Array:
        q = self._model(X)
        noise = torch.randn(SAMPLES, *q.mean.shape, **self._to)
        return torch.softmax(q.mean + q.variance.sqrt() * noise, -1).mean(0).double().cpu().numpy()


def _softmax_model(start: Start) -> Any:
    """Build a GPyTorch model, which is a class, here defined after GPyTorch is imported."""
    with _ignore_deprecations():
        import gpytorch

    C, M, D = start.Z.shape
    classes = torch.Size([C])

    class SVGP(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(M, batch_shape=classes)
            Z = torch.as_tensor(start.Z)
            strategy = gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True)
            super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=C))
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=classes)
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=D, batch_shape=classes)
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=classes)

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = SVGP()
    model.covar_module.base_kernel.lengthscale = start.lengthscale
    model.covar_module.outputscale = start.variance
    return model


class GPflow:
    """SVGP with the robust-max likelihood, compiled, with as many threads as torch has."""

    def __init__(self, X: Array, y: Labels, start: Start, dtype: str, device: str, rate: float) -> None:
        import gpflow
        import tensorflow as tf

        for limit in ("intra", "inter"):
            getattr(tf.config.threading, f"set_{limit}_op_parallelism_threads")(torch.get_num_threads())
        gpflow.config.set_default_float(getattr(np, dtype))
        self._tf, self._dtype = tf, dtype
        self._X, self._y = tf.constant(X.astype(dtype, copy=False)), tf.constant(y[:, None])
        self._model = _robust_max_model(start, len(X), dtype)
        self._compiled = self._compile(tf.optimizers.Adam(rate))
        rows = tf.TensorSpec([None, X.shape[1]], dtype)
        self._predict = tf.function(self._model.predict_y, input_signature=[rows])

    def _compile(self, optimizer: Any) -> Callable[[Any, Any], None]:
        tf, model = self._tf, self._model

        @tf.function
        def step(X: Any, y: Any) -> None:
            with tf.GradientTape() as tape:
                loss = model.training_loss((X, y))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        return step

    def batch(self, rows: NDArray[np.int64]) -> tuple[Any, Any]:
        return self._tf.gather(self._X, rows), self._tf.gather(self._y, rows)

    def step(self, batch: tuple[Any, Any]) -> None:
        self._compiled(*batch)

    def log_proba(self, X: Array) -> Array:
        """Return its probabilities, normalized: those of the robust max sum to one only up to its quadrature."""
        found = [self._predict(self._tf.constant(part.astype(self._dtype)))[0].numpy() for part in _chunks(X)]
        p = np.concatenate(found).astype(np.float64).clip(MIN_PROBABILITY)
        return np.log(p / p.sum(1, keepdims=True))


def _robust_max_model(start: Start, n_rows: int, dtype: str) -> Any:
    import gpflow

    C, _, D = start.Z.shape
    kernels = [gpflow.kernels.SquaredExponential(start.variance, np.full(D, start.lengthscale)) for _ in range(C)]
    points = [gpflow.inducing_variables.InducingPoints(Z.astype(dtype)) for Z in start.Z]
    return gpflow.models.SVGP(
        gpflow.kernels.SeparateIndependent(kernels),
        gpflow.likelihoods.MultiClass(C),
        inducing_variable=gpflow.inducing_variables.SeparateIndependentInducingVariables(points),
        num_latent_gps=C,
        num_data=n_rows,
    )


def _chunks(X: Array) -> Iterator[Array]:
    return (X[first : first + CHUNK] for first in range(0, len(X), CHUNK))


@contextmanager
def _ignore_deprecations() -> Iterator[None]:
    """Ignore the deprecation warnings of a rival."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
