"""The kernel interface, sums and products.

A kernel is a description: which function, and start values if the user gave some. The numbers that training moves
live apart, in a dictionary of `log_*` tensors whose first axis is the class axis (of length 1 where all classes share
the kernel). Any differentiable `cross`, `gram` and `diag` make a kernel: gradients reach it through autograd, unless
its `anchor` knows better.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cavity.numerics.limits import LARGEST_PARAMETER
from cavity.numerics.linalg import sum_to

Params = dict[str, Tensor]


class Slopes(NamedTuple):
    """A gradient by the parameters of a kernel and by Z."""

    by_params: Params
    by_Z: Float[Tensor, "_ M D"]


class Anchored(ABC):
    """A kernel at fixed parameters and inducing points: k(Z, ·), made once and asked often."""

    gram: Float[Tensor, "_ M M"]

    @abstractmethod
    def cross(self, X: Float[Tensor, "B D"]) -> Float[Tensor, "_ M B"]:
        """k(Z, X)."""

    @abstractmethod
    def diag(self, X: Float[Tensor, "B D"]) -> Float[Tensor, "_ B"]:
        """k(x, x)."""

    @abstractmethod
    def pull_back(
        self,
        X: Float[Tensor, "B D"],
        by_gram: Float[Tensor, "C M M"],
        by_cross: Float[Tensor, "C M B"],
        by_diag: Float[Tensor, "C B"],
    ) -> Slopes:
        """The gradient of whatever has these derivatives by the blocks at X, which `cross` and `diag` saw last.

        The derivatives may be overwritten.
        """


class Kernel(ABC):
    """A covariance function k(x, x')."""

    def anchor(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> Anchored:
        """k(Z, ·), its entries for other points in `dtype`."""
        return Traced(self, params, Z, dtype)

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


class Traced(Anchored):
    """Any differentiable kernel: autograd keeps the trace of its blocks, also where nothing else is traced."""

    def __init__(self, kernel: Kernel, params: Params, Z: Tensor, dtype: torch.dtype) -> None:
        self._kernel, self._dtype = kernel, dtype
        with _tracing():
            self._params = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
            self._Z = Z.detach().clone().requires_grad_()
            self._gram = kernel.gram(self._params, self._Z)
        self.gram = self._gram.detach()

    def cross(self, X: Float[Tensor, "B D"]) -> Float[Tensor, "_ M B"]:
        with _tracing():
            params = {name: value.to(self._dtype) for name, value in self._params.items()}
            cross = self._kernel.cross(params, self._Z.to(self._dtype), X[None].clone().to(self._dtype))
            self._cross = cross.to(self._Z.dtype)
        return self._cross.detach()

    def diag(self, X: Float[Tensor, "B D"]) -> Float[Tensor, "_ B"]:
        with _tracing():
            self._diag = self._kernel.diag(self._params, X[None].clone().to(self._Z.dtype))
        return self._diag.detach()

    def pull_back(self, X: Tensor, by_gram: Tensor, by_cross: Tensor, by_diag: Tensor) -> Slopes:
        blocks, leaves = (self._gram, self._cross, self._diag), [*self._params.values(), self._Z]
        adjoints = [sum_to(by, block.shape) for by, block in zip((by_gram, by_cross, by_diag), blocks, strict=True)]
        with _tracing():
            adjoints = [by.clone() for by in adjoints]
            found = torch.autograd.grad(blocks, leaves, adjoints, allow_unused=True, materialize_grads=True)
        return Slopes(dict(zip(self._params, found, strict=False)), found[-1])


@contextmanager
def _tracing() -> Iterator[None]:
    with torch.inference_mode(False), torch.enable_grad():
        yield


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
