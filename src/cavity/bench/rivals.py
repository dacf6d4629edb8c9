"""One training step of GPyTorch and GPflow on the same problem; both are optional."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from cavity.bench.problems import Rows, Size

LENGTHSCALE, RATE = 7.0, 0.01


def available() -> dict[str, Callable[[Rows, Size, str], Callable[[], Any]]]:
    """The rivals that are installed."""
    makers = {"gpytorch": gpytorch_step, "gpflow": gpflow_step}
    return {name: make for name, make in makers.items() if importlib.util.find_spec(name) is not None}


def gpytorch_step(rows: Rows, size: Size, dtype: str) -> Callable[[], Any]:
    """SVGP with a softmax likelihood, an ARD kernel and inducing points of its own for every class; Adam."""
    import gpytorch

    precision = getattr(torch, dtype)
    classes = torch.Size([size.C])

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(size.M, batch_shape=classes)
            Z = torch.as_tensor(rows.Z, dtype=precision)
            strategy = gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True)
            many = gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=size.C)
            super().__init__(many)
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=classes)
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=size.D, batch_shape=classes)
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=classes)

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model().to(precision)
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=size.C, mixing_weights=False)
    model.covar_module.base_kernel.lengthscale = LENGTHSCALE
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(rows.X))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    X, y = torch.as_tensor(rows.X[: size.B], dtype=precision), torch.as_tensor(rows.y[: size.B])

    def step() -> None:
        optimizer.zero_grad()
        loss = -bound(model(X), y)
        loss.backward()
        optimizer.step()

    return step


def gpflow_step(rows: Rows, size: Size, dtype: str) -> Callable[[], Any]:
    """SVGP with the robust-max likelihood, compiled; otherwise the same."""
    import gpflow
    import tensorflow as tf

    gpflow.config.set_default_float(getattr(np, dtype))
    cast = getattr(np, dtype)
    kernels = [gpflow.kernels.SquaredExponential(lengthscales=np.full(size.D, LENGTHSCALE)) for _ in range(size.C)]
    points = [gpflow.inducing_variables.InducingPoints(Z.astype(cast)) for Z in rows.Z]
    model = gpflow.models.SVGP(
        gpflow.kernels.SeparateIndependent(kernels),
        gpflow.likelihoods.MultiClass(size.C),
        inducing_variable=gpflow.inducing_variables.SeparateIndependentInducingVariables(points),
        num_latent_gps=size.C,
        num_data=len(rows.X),
    )
    optimizer = tf.optimizers.Adam(RATE)
    data = tf.constant(rows.X[: size.B].astype(cast)), tf.constant(rows.y[: size.B, None])

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = model.training_loss(data)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    return step
