"""The hyper-parameters that training moves, as views of one flat vector, and weak priors on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.gp.prior import KERNEL, Prior
from cavity.kernels import Kernel

Q = "q"  # the state of a method whose q is learned like a hyper-parameter


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

    def join(self, parts: dict[str, Tensor]) -> Float[Tensor, "P"]:
        """The inverse of `split`: a vector like θ from its parts, 0 where one is missing."""
        found = [parts[n] if n in parts else torch.zeros_like(self.values[n]) for n in self.learned]
        return torch.cat([part.reshape(-1) for part in found]) if found else self.start()

    def with_q(self, q: Float[Tensor, "S"]) -> Model:
        """The same with q(u) in θ as well, after the hyper-parameters."""
        return replace(self, values=self.values | {Q: q}, learned=(*self.learned, Q))

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
    """Independent normal priors on log hyper-parameters, none on inducing points.

    Args:
        model: whose hyper-parameters.
        spec: for "lengthscale", "variance" or "noise" a pair (median, sd of the log), or a triple (median, sd below the
            median, sd above it); a median of None is the start value, an infinite sd is no prior on that side. Under
            "spread", the sd of each class's log length-scales about their mean over classes; under "relevance", the sd
            of log length-scales below their mean over classes and features: what makes a feature matter more than
            others has to pay, all length-scales together may be short.
    """

    def __init__(self, model: Model, spec: dict[str, Any]) -> None:
        logs = tuple(name for name in model.learned if kind(name) not in ("Z", Q))
        self._model = replace(model, learned=logs)
        sides = {name: entry for name, entry in spec.items() if name not in ("spread", "relevance")}
        medians = {name: math.log(entry[0]) for name, entry in sides.items() if entry[0] is not None}
        given = self._model.spread(medians, math.nan)
        self._mean = torch.where(given.isnan(), self._model.start(), given)
        self._below = self._model.spread({name: entry[1] ** -2 for name, entry in sides.items()}, 0.0)
        self._above = self._model.spread({name: entry[-1] ** -2 for name, entry in sides.items()}, 0.0)
        self._lengthscales = [n for n in logs if kind(n) == "lengthscale"]
        self._spread, self._relevance = (
            spec[name] ** -2 if name in spec and self._lengthscales else 0.0 for name in ("spread", "relevance")
        )
        self._is_flat = not (self._spread or self._relevance or self._below.any() or self._above.any())

    def log_density(self, theta: Float[Tensor, "P"]) -> Tensor:
        """The log density, up to a constant."""
        if self._is_flat:
            return theta.new_zeros(())
        theta = theta[: len(self._mean)]
        away = theta - self._mean
        total = (self._precision(away) * away.square()).sum()
        for v in self._pooled(theta).values():
            total = total + self._spread * (v - v.mean(0)).square().sum() + self._relevance * _below(v).square().sum()
        return -0.5 * total

    def add_gradient(self, theta: Float[Tensor, "P"], to: Float[Tensor, "P"]) -> Float[Tensor, "P"]:
        """`to` with the gradient at θ added, in place; inducing points come last in θ and are left alone."""
        if self._is_flat:
            return to
        theta = theta[: len(self._mean)]
        away = theta - self._mean
        to[: len(theta)] -= self._precision(away) * away
        slopes = self._pooled(to[: len(theta)])
        for name, v in self._pooled(theta).items():
            below = _below(v)
            slopes[name] -= self._spread * (v - v.mean(0)) + self._relevance * (below - below.mean())
        return to

    def _precision(self, away: Float[Tensor, "P"]) -> Float[Tensor, "P"]:
        return torch.where(away < 0, self._below, self._above)

    def _pooled(self, theta: Float[Tensor, "P"]) -> dict[str, Tensor]:
        """Views of the length-scales, where a prior ties them."""
        parts = self._model.split(theta) if self._spread or self._relevance else {}
        return {name: part for name, part in parts.items() if name in self._lengthscales}


def _below(v: Float[Tensor, "C D"]) -> Float[Tensor, "C D"]:
    """How far each is below the mean of all; 0 above it."""
    return (v - v.mean()).clamp_max(0.0)
