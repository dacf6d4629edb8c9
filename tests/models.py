"""Fitted models made of nothing: with something of everything that a model file has to keep."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.files.model_file import SavedModel, pack
from cavity.fitting.encoding import Quantile, Standard
from cavity.gp import probabilities as predict
from cavity.gp.gaussian import Posterior, Whitened
from cavity.gp.prior import Prior
from cavity.kernels import RBF, Constant, Kernel

X_NEW = np.random.default_rng(5).normal(0.0, 1.5, (20, 2))


def posterior(
    kernel: Kernel | None = None,
    shared: tuple[bool, bool] = (False, False),
    dtype: torch.dtype = torch.float64,
    n_classes: int = 3,
    n_inducing: int = 4,
    **changes: float,
) -> Posterior:
    """Some q(u) in two dimensions; its factors lie in memory as those of a fit do."""
    g, kernel = torch.Generator().manual_seed(0), RBF() if kernel is None else kernel
    n_kernels, n_points = (1 if is_shared else n_classes for is_shared in shared)
    params = {name: x + 0.1 * torch.randn(x.shape, generator=g) for name, x in kernel.start(n_kernels, 2, 1.5).items()}
    Z = torch.randn(n_points, n_inducing, 2, generator=g, dtype=torch.float64)
    noise = torch.randn(n_kernels, generator=g, dtype=torch.float64) - 3.0
    factor = 0.3 * torch.randn(n_classes, n_inducing, n_inducing, generator=g, dtype=torch.float64).triu(1)
    factor = (factor + torch.eye(n_inducing)).mT
    m = torch.randn(n_classes, n_inducing, generator=g, dtype=torch.float64)
    return Posterior(Prior(kernel, params, noise, Z, n_classes, dtype), Whitened(factor, m), **changes)


def quantile() -> Quantile:
    """The map of two features, the second of them constant."""
    standard = Standard(np.array([0.5, 0.1]), np.array([2.0, 1.0]))
    knots, levels = np.array([-1.0, 0.25, 3.0]), np.array([-1.5, 0.0, 1.5])
    return Quantile(standard, (knots, np.array([0.1])), (levels, np.zeros(1)))


def model(**changes: Any) -> SavedModel:
    """A model of three classes and two features."""
    params = {
        "method": "auto", "kernel": RBF(np.array([1.0, 2.0])) + Constant(3.0), "noise": np.array([0.1, 0.2, 0.3]),
        "inducing_points": np.arange(8.0).reshape(4, 2), "n_inducing": 0.5, "class_weight": {"a": 1, "bb": 0.1},
        "priors": {"lengthscale": (None, 2.0, math.inf)}, "random_state": 7, "checkpoint": None, "tol": 1e-4,
    }  # fmt: skip
    records = [{"epoch": i + 1, "objective": -1.0 / (i + 1), "seconds": 0.1 * i, "event": None} for i in range(5)]
    given = {
        "params": params, "classes": np.array(["a", "bb", "c"]), "n_features": 2, "feature_names": ["x", "é"],
        "posterior": posterior(sharpness=1.25), "schema": None, "encoding": quantile(), "method": "ep",
        "log_marginal_likelihood": -12.345, "n_iter": 5, "history": records,
        "training": {"rows": 60, "features": 2, "digest": "ab" * 16, "class_counts": [20, 30, 10]},
        "metrics": {"nll": 0.1, "by_class": [0.1, math.nan, 0.3]},
    }  # fmt: skip
    return SavedModel(**(given | changes))


def said(found: SavedModel) -> tuple[Any, ...]:
    """All of a model, in a form that can be compared to the bit."""
    record, tensors = pack(found)
    parts = {name: (x.dtype, x.shape, x.contiguous().numpy().tobytes()) for name, x in tensors.items()}
    return json.dumps(record), parts, found.posterior.whitened.R_inverse.stride()


def log_p(found: SavedModel, X: NDArray[np.float64] = X_NEW) -> NDArray[np.float64]:
    """Its predictions."""
    return predict.log_probabilities(found.posterior, torch.from_numpy(found.encoding.transform(X)))


def run(program: str, *arguments: object) -> str:
    """What a program prints in a process of its own."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout
