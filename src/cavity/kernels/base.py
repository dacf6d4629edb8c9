"""The kernel interface, and sums and products of kernels.

A kernel is a description: which function, and start values if the user gave any. The numbers that training moves are
apart, in a dictionary of `log_*` tensors. Their first axis is the class axis, of length 1 where all classes share them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cavity.numerics.limits import LARGEST_PARAMETER
from cavity.numerics.linalg import sum_to

Params = dict[str, Tensor]


class Blocks(NamedTuple):
    """The covariances of a batch, k(Z, X) and k(x, x), and what their gradient needs besides."""

    X: Float[Tensor, "B D"]
    cross: Float[Tensor, "_ M B"]
    diag: Float[Tensor, "_ B"]
    saved: Any = None


class KernelGradient(NamedTuple):
    """A gradient by the parameters of a kernel and by Z."""

    by_params: Params
    by_Z: Float[Tensor, "_ M D"]


class BoundKernel(ABC):
    """A kernel at fixed parameters and inducing points; `gram` is k(Z, Z)."""

    gram: Float[Tensor, "_ M M"]

    @abstractmethod
    def blocks(self, X: Float[Tensor, "B D"]) -> Blocks:
        """Return k(Z, X) and k(x, x)."""

    def blocks_to_predict(self, X: Float[Tensor, "B D"]) -> Blocks:
        """Return the same, without what a gradient needs, for one of many small blocks of rows."""
        return self.blocks(X)

    @abstractmethod
    def pull_back(
        self,
        blocks: Blocks,
        by_gram: Float[Tensor, "C M M"],
        by_cross: Float[Tensor, "C M B"],
        by_diag: Float[Tensor, "C B"],
    ) -> KernelGradient:
        """Apply the chain rule: from the derivatives by `gram` and by the blocks to those by parameters and Z.

        `by_gram` is symmetric. The derivatives may be overwritten.
        """


class Kernel(ABC):
    """A covariance function k(x, x').

    A kernel of your own defines `start`, `fitted`, and either `bind` (closed-form gradients) or `cross` and `diag`,
    differentiable in torch: autograd then computes the gradients.
    """

    @abstractmethod
    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        """Return start values in log space; `lengthscale` is used where the user gave none."""

    @abstractmethod
    def fitted(self, params: Params) -> Kernel:
        """Return the same kernel with the values of `params` as its start values."""

    def bind(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> BoundKernel:
        """Fix parameters and inducing points; k(Z, X) is computed in `dtype`."""
        return _AutogradKernel(self, params, Z, dtype)

    def bind_part(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> BoundKernel:
        """Do the same for a part of a sum or product, where the order of operations may differ."""
        return self.bind(params, Z, dtype)

    def cross(self, params: Params, Z: Float[Tensor, "#C M D"], X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ M B"]:
        """Return k(z, x) for every pair. Only the default `bind` calls it, and `gram` and `diag`."""
        raise NotImplementedError

    def gram(self, params: Params, Z: Float[Tensor, "#C M D"]) -> Float[Tensor, "_ M M"]:
        """Return k(z, z') for every pair of Z."""
        return self.cross(params, Z, Z)

    def diag(self, params: Params, X: Float[Tensor, "#C B D"]) -> Float[Tensor, "_ B"]:
        """Return k(x, x) for every row."""
        raise NotImplementedError

    def __add__(self, other: Kernel) -> Kernel:
        return Sum((self, other))

    def __mul__(self, other: Kernel) -> Kernel:
        return Product((self, other))


class _AutogradKernel(BoundKernel):
    """A kernel known only by its differentiable `cross`, `gram` and `diag`; works in `torch.inference_mode` too."""

    @torch.inference_mode(False)
    @torch.enable_grad()
    def __init__(self, kernel: Kernel, params: Params, Z: Tensor, dtype: torch.dtype) -> None:
        self._kernel, self._dtype = kernel, dtype
        self._params = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
        self._Z = Z.detach().clone().requires_grad_()
        self._gram = kernel.gram(self._params, self._Z)
        self.gram = self._gram.detach()

    @torch.inference_mode(False)
    @torch.enable_grad()
    def blocks(self, X: Float[Tensor, "B D"]) -> Blocks:
        params = {name: value.to(self._dtype) for name, value in self._params.items()}
        cross = self._kernel.cross(params, self._Z.to(self._dtype), X[None].clone().to(self._dtype)).to(self._Z.dtype)
        diag = self._kernel.diag(self._params, X[None].clone().to(self._Z.dtype))
        return Blocks(X, cross.detach(), diag.detach(), (cross, diag))

    @torch.inference_mode(False)
    @torch.enable_grad()
    def pull_back(self, blocks: Blocks, by_gram: Tensor, by_cross: Tensor, by_diag: Tensor) -> KernelGradient:
        traced, leaves = (self._gram, *blocks.saved), [*self._params.values(), self._Z]
        by = [sum_to(by, x.shape).clone() for by, x in zip((by_gram, by_cross, by_diag), traced, strict=True)]
        found = torch.autograd.grad(traced, leaves, by, retain_graph=True, allow_unused=True, materialize_grads=True)
        return KernelGradient(dict(zip(self._params, found, strict=False)), found[-1])


@dataclass(frozen=True, eq=False)
class ScaledKernel(Kernel):
    """A kernel with a variance and one length-scale per feature (ARD).

    Args:
        lengthscale: start value, a float or an array that broadcasts to (C, D); chosen from the data by default.
        variance: start value, a float or an array that broadcasts to (C,); 1 by default.
    """

    lengthscale: ArrayLike | None = None
    variance: ArrayLike | None = None

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        return {
            "log_lengthscale": log_start("lengthscale", self.lengthscale, lengthscale, (n_classes, n_features)),
            "log_variance": log_start("variance", self.variance, 1.0, (n_classes,)),
        }

    def fitted(self, params: Params) -> Kernel:
        values = {name: torch.exp(params[f"log_{name}"]).cpu().numpy() for name in ("lengthscale", "variance")}
        return replace(self, **values)


def numbers(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return `value` as an array; raise a TypeError that names it if it holds anything but numbers."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must be a number or an array of numbers, got {value!r}") from None


def log_start(name: str, value: ArrayLike | None, default: float, shape: tuple[int, ...]) -> Tensor:
    """Return the log of a positive start value, broadcast to `shape`; raise an error that names it if it is invalid."""
    array, least = numbers(name, default if value is None else value), 1.0 / LARGEST_PARAMETER
    if not ((array >= least) & (array <= LARGEST_PARAMETER)).all():
        raise ValueError(f"{name} must be positive and finite, from {least:g} to {LARGEST_PARAMETER:g}, got {value!r}")
    try:
        array = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name} must be a float or broadcast to shape {shape}, got shape {array.shape}") from None
    return torch.log(torch.tensor(array, dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class _Composite(Kernel):
    """Several kernels combined entry by entry; the position of a kernel precedes the names of its parameters."""

    parts: tuple[Kernel, ...]
    operator: ClassVar[Callable[[Tensor, Tensor], Tensor]]

    def combine(self, blocks: Sequence[Tensor]) -> Tensor:
        """Return the entries of the whole from the entries of the parts."""
        return reduce(type(self).operator, blocks)

    @abstractmethod
    def by_part(self, by: Tensor, blocks: Sequence[Tensor], i: int) -> Tensor:
        """Return the derivative by the entries of part `i`, in fresh memory, from that by the whole."""

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        starts = [part.start(n_classes, n_features, lengthscale) for part in self.parts]
        return {f"{i}.{name}": value for i, start in enumerate(starts) for name, value in start.items()}

    def fitted(self, params: Params) -> Kernel:
        return type(self)(tuple(part.fitted(own) for part, own in self._split(params)))

    def bind(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> BoundKernel:
        return _BoundComposite(self, [part.bind_part(own, Z, dtype) for part, own in self._split(params)])

    def _split(self, params: Params) -> list[tuple[Kernel, Params]]:
        return [
            (part, {name.removeprefix(f"{i}."): v for name, v in params.items() if name.startswith(f"{i}.")})
            for i, part in enumerate(self.parts)
        ]


class _BoundComposite(BoundKernel):
    def __init__(self, kernel: _Composite, parts: list[BoundKernel]) -> None:
        self._kernel, self._parts = kernel, parts
        self.gram = kernel.combine([part.gram for part in parts])

    def blocks(self, X: Float[Tensor, "B D"]) -> Blocks:
        of_parts = [part.blocks(X) for part in self._parts]
        cross, diag = ([getattr(part, name) for part in of_parts] for name in ("cross", "diag"))
        return Blocks(X, self._kernel.combine(cross), self._kernel.combine(diag), of_parts)

    def pull_back(self, blocks: Blocks, by_gram: Tensor, by_cross: Tensor, by_diag: Tensor) -> KernelGradient:
        own: list[Blocks] = blocks.saved
        each = [part.gram for part in self._parts], [b.cross for b in own], [b.diag for b in own]
        found = []
        for i, part in enumerate(self._parts):
            by = (self._kernel.by_part(by, x, i) for by, x in zip((by_gram, by_cross, by_diag), each, strict=True))
            found.append(part.pull_back(own[i], *by))
        by_params = {f"{i}.{name}": by for i, part in enumerate(found) for name, by in part.by_params.items()}
        return KernelGradient(by_params, torch.stack([part.by_Z for part in found]).sum(0))


class Sum(_Composite):
    """k₁ + k₂ + …, written `k1 + k2`."""

    operator = torch.add

    def by_part(self, by: Tensor, blocks: Sequence[Tensor], i: int) -> Tensor:
        return by.clone()

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


class Product(_Composite):
    """k₁ · k₂ · …, written `k1 * k2`."""

    operator = torch.mul

    def by_part(self, by: Tensor, blocks: Sequence[Tensor], i: int) -> Tensor:
        return reduce(torch.mul, (*blocks[:i], *blocks[i + 1 :]), by.clone())

    def __repr__(self) -> str:
        return " * ".join(f"({p!r})" if isinstance(p, Sum) else repr(p) for p in self.parts)
