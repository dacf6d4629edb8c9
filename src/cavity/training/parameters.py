"""The learned hyper-parameters as one vector θ, and their priors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.prior import KERNEL, Prior
from cavity.kernels import Kernel

Q = "q"  # the state of a method whose q is learned like a hyper-parameter
PriorSpec = Mapping[str, float | tuple[float | None, float] | tuple[float | None, float, float]]


@dataclass(frozen=True)
class ParametricPrior:
    """A sparse GP prior as a function of θ, the vector of its learned hyper-parameters.

    Args:
        kernel: the covariance function.
        values: initial value of each hyper-parameter by name: "Z", "log_noise" and "kernel.…".
        learned: the names of the hyper-parameters in θ, in order; the others are fixed.
        n_classes: C.
        dtype: precision of k(Z, X).
        noise_in_u: whether u contains the noise; if not, the noise must be fixed.
    """

    kernel: Kernel
    values: dict[str, Tensor]
    learned: tuple[str, ...]
    n_classes: int
    dtype: torch.dtype = torch.float64
    noise_in_u: bool = True

    def start(self) -> Float[Tensor, "P"]:
        """Return the initial θ."""
        return self.join(self.values)

    def split(self, theta: Float[Tensor, "P"]) -> dict[str, Tensor]:
        """Return the hyper-parameters in θ by name, as views of their own shapes."""
        sizes = [self.values[name].numel() for name in self.learned]
        parts = torch.split(theta, sizes) if sizes else ()
        return {n: part.view(self.values[n].shape) for n, part in zip(self.learned, parts, strict=True)}

    def join(self, parts: dict[str, Tensor]) -> Float[Tensor, "P"]:
        """Invert `split`: return a vector like θ, 0 where a part is missing."""
        found = [parts[n] if n in parts else torch.zeros_like(self.values[n]) for n in self.learned]
        return torch.cat([self.values["Z"].new_zeros(0), *(part.reshape(-1) for part in found)])

    def full(self, by_kind: dict[str, float], default: float) -> Float[Tensor, "P"]:
        """Return a vector like θ with one number for each kind of hyper-parameter."""
        return self.join({n: torch.full_like(self.values[n], by_kind.get(kind(n), default)) for n in self.learned})

    def with_q(self, q: Float[Tensor, "S"]) -> ParametricPrior:
        """Return the same prior with q(u) appended to θ."""
        return replace(self, values=self.values | {Q: q}, learned=(*self.learned, Q))

    def prior(self, theta: Float[Tensor, "P"]) -> Prior:
        """Return the GP prior at θ."""
        now = self.values | self.split(theta)
        params = {name.removeprefix(KERNEL): v for name, v in now.items() if name.startswith(KERNEL)}
        return Prior(self.kernel, params, now["log_noise"], now["Z"], self.n_classes, self.dtype, self.noise_in_u)


def kind(name: str) -> str:
    """Return the kind of a hyper-parameter of any kernel: "lengthscale", "variance", "noise" or "Z"."""
    return name.rpartition(".")[2].removeprefix("log_")


class HyperPrior:
    """Independent normal priors on log hyper-parameters, and none on inducing points.

    Args:
        model: the model with the hyper-parameters.
        spec: for "lengthscale", "variance" or "noise" a pair (median, sd of the log), or a triple (median, sd below the
            median, sd above it). A median of None is the initial value; an infinite sd is no prior on that side. For
            "spread", the sd of each class's log length-scales around their mean over classes. For "relevance", the sd
            of log length-scales below their mean over classes and features: a feature that matters more than others
            has a cost, but all length-scales together can be short.
    """

    def __init__(self, model: ParametricPrior, spec: PriorSpec) -> None:
        logs = tuple(name for name in model.learned if kind(name) not in ("Z", Q))
        self._model = replace(model, learned=logs)
        normals = {name: entry for name, entry in spec.items() if isinstance(entry, tuple)}
        pooled = {name: entry**-2 for name, entry in spec.items() if not isinstance(entry, tuple)}
        medians = {name: math.log(entry[0]) for name, entry in normals.items() if entry[0] is not None}
        given = self._model.full(medians, math.nan)
        self._mean = torch.where(given.isnan(), self._model.start(), given)
        self._below = self._model.full({name: entry[1] ** -2 for name, entry in normals.items()}, 0.0)
        self._above = self._model.full({name: entry[-1] ** -2 for name, entry in normals.items()}, 0.0)
        self._lengthscales = [n for n in logs if kind(n) == "lengthscale"]
        self._spread, self._relevance = (
            pooled.get(name, 0.0) if self._lengthscales else 0.0 for name in ("spread", "relevance")
        )
        self._is_flat = not (self._spread or self._relevance or self._below.any() or self._above.any())

    def log_density(self, theta: Float[Tensor, "P"]) -> Tensor:
        """Return the log density, up to a constant."""
        if self._is_flat:
            return theta.new_zeros(())
        theta = theta[: len(self._mean)]
        away = theta - self._mean
        total = (torch.where(away < 0, self._below, self._above) * away.square()).sum()
        for v in self._pooled(theta).values():
            total = total + self._spread * (v - v.mean(0)).square().sum() + self._relevance * _below(v).square().sum()
        return -0.5 * total

    def add_gradient(self, theta: Float[Tensor, "P"], to: Float[Tensor, "P"]) -> Float[Tensor, "P"]:
        """Add the gradient at θ to `to`, in place; inducing points, at the end of θ, are left alone."""
        if self._is_flat:
            return to
        theta = theta[: len(self._mean)]
        away = theta - self._mean
        to[: len(theta)] -= torch.where(away < 0, self._below, self._above) * away
        slopes = self._pooled(to[: len(theta)])
        for name, v in self._pooled(theta).items():
            below = _below(v)
            slopes[name] -= self._spread * (v - v.mean(0)) + self._relevance * (below - below.mean())
        return to

    def _pooled(self, theta: Float[Tensor, "P"]) -> dict[str, Tensor]:
        """Return views of the length-scales, if they have a common prior."""
        parts = self._model.split(theta) if self._spread or self._relevance else {}
        return {name: part for name, part in parts.items() if name in self._lengthscales}


def _below(v: Float[Tensor, "C D"]) -> Float[Tensor, "C D"]:
    """Return the distance of each value below the mean of all, as a negative number; 0 above it."""
    return (v - v.mean()).clamp_max(0.0)
