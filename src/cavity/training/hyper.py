"""The hyper-parameters that training moves, as views of one flat vector, and weak priors on them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.inducing import Prior
from cavity.kernels import Kernel

KERNEL = "kernel."


@dataclass(frozen=True)
class Model:
    """A sparse GP prior as a function of θ, the vector of its learned hyper-parameters.

    Args:
        kernel: the covariance function.
        values: start value of every hyper-parameter by name: "Z", "log_noise" and "kernel.…".
        learned: the names that θ holds, in its order; the others stay as they are.
        n_classes: C.
        dtype: precision of k(Z, X).
    """

    kernel: Kernel
    values: dict[str, Tensor]
    learned: tuple[str, ...]
    n_classes: int
    dtype: torch.dtype = torch.float64

    def start(self) -> Float[Tensor, "P"]:
        """θ at the start values."""
        parts = [self.values[name].reshape(-1) for name in self.learned]
        return torch.cat(parts) if parts else self.values["Z"].new_zeros(0)

    def split(self, theta: Float[Tensor, "P"]) -> dict[str, Tensor]:
        """θ by name, each part in its own shape."""
        sizes = [self.values[name].numel() for name in self.learned]
        parts = torch.split(theta, sizes) if sizes else ()
        return {n: part.view(self.values[n].shape) for n, part in zip(self.learned, parts, strict=True)}

    def prior(self, theta: Float[Tensor, "P"]) -> Prior:
        """The GP prior at θ."""
        now = self.values | self.split(theta)
        params = {name.removeprefix(KERNEL): v for name, v in now.items() if name.startswith(KERNEL)}
        return Prior(self.kernel, params, now["log_noise"], now["Z"], self.n_classes, self.dtype)

    def spread(self, by_name: dict[str, float], default: float) -> Float[Tensor, "P"]:
        """A vector like θ with one number for each kind of hyper-parameter."""
        parts = [torch.full_like(self.values[n], by_name.get(kind(n), default)).reshape(-1) for n in self.learned]
        return torch.cat(parts) if parts else self.values["Z"].new_zeros(0)


def kind(name: str) -> str:
    """ "lengthscale", "variance", "noise" or "Z": what a hyper-parameter is, whatever kernel it belongs to."""
    return name.rpartition(".")[2].removeprefix("log_")


class HyperPrior:
    """Independent normal priors on log hyper-parameters; none on inducing points.

    Args:
        model: whose hyper-parameters.
        spec: for "lengthscale", "variance" or "noise" a pair (median, sd of the log); a median of None is the start
            value.
    """

    def __init__(self, model: Model, spec: dict[str, tuple[float | None, float]]) -> None:
        start = model.start()
        medians = {name: math.log(median) for name, (median, _) in spec.items() if median is not None}
        given = model.spread(medians, math.nan)
        self._mean = torch.where(given.isnan(), start, given)
        self._precision = model.spread({name: sd**-2 for name, (_, sd) in spec.items()}, 0.0)

    def log_density(self, theta: Float[Tensor, "P"]) -> Tensor:
        """The log density, up to a constant."""
        return -0.5 * (self._precision * (theta - self._mean).square()).sum()

    def gradient(self, theta: Float[Tensor, "P"]) -> Float[Tensor, "P"]:
        """Its gradient."""
        return -self._precision * (theta - self._mean)
