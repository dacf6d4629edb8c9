"""Fitted models made of nothing: with something of everything that a model file has to keep."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from datetime import datetime, time, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from cavity.data.schema import find_schema
from cavity.files.model_file import SavedModel, pack
from cavity.fitting.conformal import HeldOutScores
from cavity.fitting.encoding import MOST_INDICATORS, Monotone, Standard, TableEncoding, fit_encoding
from cavity.gp import probabilities as predict
from cavity.gp.gaussian import Posterior, Whitened
from cavity.gp.prior import Prior
from cavity.kernels import RBF, Constant, Grouped, Kernel

X_NEW = np.random.default_rng(5).normal(0.0, 1.5, (20, 2))


def posterior(
    kernel: Kernel | None = None,
    shared: tuple[bool, bool] = (False, False),
    dtype: torch.dtype = torch.float64,
    n_classes: int = 3,
    n_inducing: int = 4,
    rows: NDArray[np.float64] | None = None,
    **changes: float,
) -> Posterior:
    """Some q(u), with inducing points among these rows of features, or else in two dimensions.

    Its factors lie in memory as those of a fit do.
    """
    g, kernel = torch.Generator().manual_seed(0), RBF() if kernel is None else kernel
    n_kernels, n_points = (1 if is_shared else n_classes for is_shared in shared)
    start = kernel.start(n_kernels, 2 if rows is None else rows.shape[1], 1.5)
    if rows is not None and isinstance(kernel, Grouped):  # in the units of the features
        spread = np.bincount(kernel.groups, rows.var(0) + 1e-3) / np.bincount(kernel.groups)
        log_sd = torch.from_numpy(0.5 * np.log(spread) + 0.7)
        start = {name: x + log_sd if name.endswith("log_lengthscale") else x for name, x in start.items()}
    params = {name: x + 0.1 * torch.randn(x.shape, generator=g) for name, x in start.items()}
    Z = torch.randn(n_points, n_inducing, 2, generator=g, dtype=torch.float64)
    if rows is not None:
        Z = torch.from_numpy(np.resize(rows, (n_points, n_inducing, rows.shape[1])))
    noise = torch.randn(n_kernels, generator=g, dtype=torch.float64) - 3.0
    factor = 0.3 * torch.randn(n_classes, n_inducing, n_inducing, generator=g, dtype=torch.float64).triu(1)
    factor = (factor + torch.eye(n_inducing)).mT
    m = torch.randn(n_classes, n_inducing, generator=g, dtype=torch.float64)
    return Posterior(Prior(kernel, params, noise, Z, n_classes, dtype), Whitened(factor, m), **changes)


def quantile() -> Monotone:
    """The map of two features, the second of them constant."""
    standard = Standard(np.array([0.5, 0.1]), np.array([2.0, 1.0]))
    knots, levels = np.array([-1.0, 0.25, 3.0]), np.array([-1.5, 0.0, 1.5])
    return Monotone(standard, (knots, np.array([0.1])), (levels, np.zeros(1)))


def held_out_scores(n_rows: int = 40, n_classes: int = 3) -> HeldOutScores:
    """Scores of rows with random probabilities."""
    rng = np.random.default_rng(2)
    p, y = rng.dirichlet(np.ones(n_classes), n_rows), rng.integers(0, n_classes, n_rows)
    return HeldOutScores.of_labels(np.log(p), y, rng.choice([1.0, 2.0], n_rows))


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
        "metrics": {"nll": 0.1, "by_class": [0.1, math.nan, 0.3]}, "held_out": held_out_scores(),
    }  # fmt: skip
    return SavedModel(**(given | changes))


def mixed_table(n_rows: int = 400, seed: int = 0) -> pa.Table:
    """A table with a column of every kind, most of them with gaps; another seed has unknown levels too."""
    rng = np.random.default_rng(seed)

    def gappy(values: list[Any], share: float = 0.15) -> list[Any]:
        return [None if rng.random() < share else value for value in values]

    start = datetime(1960, 3, 1)
    return pa.table(
        {
            "size": gappy((3.0 * rng.standard_normal(n_rows) + 1.0).tolist()),
            "color": gappy(rng.choice(["", "red", 'dark "blue"', "grün\n", *(["new"] * seed)], n_rows).tolist()),
            "when": gappy([start + timedelta(seconds=int(t)) for t in rng.integers(0, 10**9, n_rows)]),
            "id": [f"{seed}-{i}" for i in range(n_rows)],
            "town": gappy([f"t{k}" for k in rng.integers(0, (2 + seed) * MOST_INDICATORS, n_rows)]),
            "at": gappy([time(int(h), int(m)) for h, m in rng.integers(0, [24, 60], (n_rows, 2))]),
            "label": rng.random(n_rows) < 0.3,
            "count": rng.integers(0, 9, n_rows),
        }
    )


def mixed_model(
    kernel: Kernel | None = None, scaling: str | None = "standard", shared: tuple[bool, bool] = (False, False)
) -> SavedModel:
    """A model of `mixed_table`, with three classes."""
    table, rng = mixed_table(), np.random.default_rng(1)
    schema, y = find_schema(table), rng.integers(0, 3, table.num_rows)
    encoding = fit_encoding(schema, scaling, schema.read(table), y, np.ones(len(y)), 3)
    assert isinstance(encoding, TableEncoding)
    groups = Grouped(RBF() if kernel is None else kernel, encoding.feature_groups)
    q = posterior(groups, shared, rows=encoding.transform(schema.read(table)), sharpness=20.0)
    names = list(table.column_names)
    about = {"schema": schema, "encoding": encoding, "n_features": len(names), "feature_names": names}
    return model(posterior=q, **about)


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
