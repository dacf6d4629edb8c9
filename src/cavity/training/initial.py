"""Where training starts: kernel parameters, noise and inducing points, from the scaled rows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist
from torch import Tensor

from cavity.gp.prior import KERNEL
from cavity.kernels import Kernel
from cavity.kernels.base import log_start
from cavity.numerics.limits import LEAST_LENGTHSCALE
from cavity.training.centers import choose_inducing
from cavity.training.parameters import Model

Array = NDArray[np.float64]

MEDIAN_ROWS = 1000
LARGEST_ERROR = 1e-4  # of a squared distance, in units of the length-scale


def start_model(
    kernel: Kernel,
    X: Array,
    n_classes: int,
    Z: Array,
    noise: ArrayLike,
    learned: tuple[bool, bool],
    shared: tuple[bool, bool],
    lengthscale: float,
    device: torch.device,
    dtype: torch.dtype,
) -> Model:
    """The model at its start values.

    Args:
        Z: inducing points, (C, M, D).
        learned: whether kernel (with the noise) and inducing points are learned.
        shared: whether all classes share the kernel (with the noise) and the inducing points.
        dtype: of the distances; single precision becomes double where it would not do.
    """
    n_kernels = 1 if shared[0] else n_classes
    params = kernel.start(n_kernels, X.shape[1], lengthscale)
    values = {KERNEL + name: value for name, value in params.items()}
    values["log_noise"] = log_start("noise", noise, 1.0, (n_kernels,))
    learned_names = tuple(values) if learned[0] else ()
    values["Z"] = torch.tensor(Z[:1] if shared[1] else Z)
    dtype = dtype if _is_safe(X, values, dtype) else torch.float64
    values = {name: value.to(device) for name, value in values.items()}
    return Model(kernel, values, learned_names + (("Z",) if learned[1] else ()), n_classes, dtype)


def _is_safe(X: Array, values: dict[str, Tensor], dtype: torch.dtype) -> bool:
    """Whether r² has digits enough: it is a difference of squares, so its error grows with the row furthest out."""
    if dtype == torch.float64:
        return True
    scales = [value for name, value in values.items() if name.endswith("log_lengthscale")]
    squares = torch.from_numpy(X - values["Z"].mean((0, 1)).numpy()).square_()
    largest = max((float((squares @ torch.exp(-2.0 * scale).mT).max()) for scale in scales), default=0.0)
    return torch.finfo(dtype).eps * largest <= LARGEST_ERROR


def median_distance(X: Array, rng: np.random.Generator) -> float:
    """The median distance between rows, of at most a thousand of them; 1 where all are equal."""
    if len(X) > MEDIAN_ROWS:
        X = X[rng.choice(len(X), MEDIAN_ROWS, replace=False)]
    size = np.abs(X).max()
    distances = pdist(X / size) * size if len(X) > 1 and size > 0 else np.zeros(1)
    return max(float(np.median(distances)) or float(distances.max()) or 1.0, LEAST_LENGTHSCALE)


def start_inducing(
    given: Array | None,
    X: Array,
    y: NDArray[np.int64],
    n_classes: int,
    n_inducing: int,
    how: str,
    nudge: float,
    rng: np.random.Generator,
) -> Array:
    """Inducing points (C, M, D): the given ones (scaled), or chosen from the rows."""
    if given is None:
        return choose_inducing(X, y, n_classes, n_inducing, "random" if how == "paper" else how, rng, nudge)
    return np.broadcast_to(given, (n_classes, *given.shape[-2:])).copy()
