"""The kernel interface, sums and products.

A kernel is a description: which function, and start values if the user gave some. The numbers that training moves
live apart, in a dictionary of `log_*` tensors whose first axis is the class axis (of length 1 where all classes share
the kernel). Any differentiable `cross` and `diag` make a kernel: gradients reach it through autograd.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cavity.numerics.limits import LARGEST_PARAMETER

Params = dict[str, Tensor]


class Kernel(ABC):
    """A covariance function k(x, x')."""

    @abstractmethod
    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        """Start values in log space; `lengthscale` where the user gave none."""

    @abstractmethod
    def cross(self, params: Params, Z: Float[Tensor, "#C M D"], X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ M B"]:
        """k(z, x) for every pair."""

    @abstractmethod
    def gram(self, params: Params, Z: Float[Tensor, "#C M D"]) -> Float[Tensor, "_ M M"]:
        """k(z, z') for every pair of Z."""

    @abstractmethod
    def diag(self, params: Params, X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ B"]:
        """k(x, x) for every row."""

    @abstractmethod
    def fitted(self, params: Params) -> Kernel:
        """The same kernel with the values of `params` as its start values."""

    def __add__(self, other: Kernel) -> Kernel:
        return Sum((self, other))

    def __mul__(self, other: Kernel) -> Kernel:
        return Product((self, other))


def numbers(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """`value` as an array; an error that names it otherwise."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name}={value!r} cannot be used; {name} must be a number or an array of numbers") from None


def log_start(name: str, value: ArrayLike | None, default: float, shape: tuple[int, ...]) -> Tensor:
    """log of a positive start value of moderate size, broadcast to `shape`; an error that names it otherwise."""
    array = numbers(name, default if value is None else value)
    if not ((array >= 1.0 / LARGEST_PARAMETER) & (array <= LARGEST_PARAMETER)).all():
        least = 1.0 / LARGEST_PARAMETER
        raise ValueError(f"{name} must be positive and finite, from {least:g} to {LARGEST_PARAMETER:g}, got {value!r}")
    try:
        array = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name} has shape {array.shape}; a float or an array that fits {shape} is needed") from None
    return torch.log(torch.tensor(array, dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class _Composite(Kernel):
    """Several kernels combined entry by entry; parameter names carry the position of their kernel."""

    parts: tuple[Kernel, ...]

    @abstractmethod
    def combine(self, blocks: list[Tensor]) -> Tensor:
        """The entries of the whole from the entries of the parts."""

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        starts = [part.start(n_classes, n_features, lengthscale) for part in self.parts]
        return {f"{i}.{name}": value for i, start in enumerate(starts) for name, value in start.items()}

    def cross(self, params: Params, Z: Float[Tensor, "#C M D"], X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ M B"]:
        return self._map(params, lambda part, own: part.cross(own, Z, X))

    def gram(self, params: Params, Z: Float[Tensor, "#C M D"]) -> Float[Tensor, "_ M M"]:
        return self._map(params, lambda part, own: part.gram(own, Z))

    def diag(self, params: Params, X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ B"]:
        return self._map(params, lambda part, own: part.diag(own, X))

    def fitted(self, params: Params) -> Kernel:
        return type(self)(tuple(part.fitted(own) for part, own in self._split(params)))

    def _map(self, params: Params, block: Callable[[Kernel, Params], Tensor]) -> Tensor:
        return self.combine([block(part, own) for part, own in self._split(params)])

    def _split(self, params: Params) -> list[tuple[Kernel, Params]]:
        return [
            (part, {name.partition(".")[2]: v for name, v in params.items() if name.partition(".")[0] == str(i)})
            for i, part in enumerate(self.parts)
        ]


class Sum(_Composite):
    """k₁ + k₂ + …, written `k1 + k2`."""

    def combine(self, blocks: list[Tensor]) -> Tensor:
        total = blocks[0]
        for block in blocks[1:]:
            total = total + block
        return total

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


class Product(_Composite):
    """k₁ · k₂ · …, written `k1 * k2`."""

    def combine(self, blocks: list[Tensor]) -> Tensor:
        total = blocks[0]
        for block in blocks[1:]:
            total = total * block
        return total

    def __repr__(self) -> str:
        return " * ".join(f"({p!r})" if isinstance(p, Sum) else repr(p) for p in self.parts)
