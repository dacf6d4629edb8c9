"""Length-scales that several features share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cavity.kernels.base import Blocks, BoundKernel, Kernel, KernelGradient, Params, Product, ScaledKernel, Sum

LENGTHSCALE = "log_lengthscale"


@dataclass(frozen=True, eq=False)
class Grouped(Kernel):
    """A kernel whose features share length-scales in groups, as the indicators of a category do.

    Args:
        kernel: any kernel; it has one length-scale for each group.
        groups: the group of each feature, 0 … G−1.

    >>> from cavity.kernels import RBF
    >>> Grouped(RBF(), (0, 1, 1, 1))  # a number, and a category of three levels
    Grouped(kernel=RBF(lengthscale=None, variance=None), groups=(0, 1, 1, 1))
    """

    kernel: Kernel
    groups: Sequence[int]

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        if len(self.groups) != n_features or sorted(set(self.groups)) != list(range(max(self.groups) + 1)):
            raise ValueError(
                f"groups must have the group of each of {n_features} features, numbered from 0 without gaps, got "
                f"{list(self.groups)}"
            )
        return self.kernel.start(n_classes, max(self.groups) + 1, lengthscale)

    def fitted(self, params: Params) -> Kernel:
        return Grouped(self.kernel.fitted(params), self.groups)

    def expand(self, params: Params) -> Params:
        """Return the parameters of the kernel with one length-scale for each feature."""
        groups = list(self.groups)
        return {name: v[:, groups] if name.endswith(LENGTHSCALE) else v for name, v in params.items()}

    def bind(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> BoundKernel:
        return _BoundGrouped(self.kernel.bind(self.expand(params), Z, dtype), self.groups)


def for_groups(kernel: Kernel, columns: Sequence[int], groups: Sequence[int]) -> Grouped:
    """Return the kernel for groups of features, given the column of each group and the group of each feature.

    Initial length-scales that the user gave for each column are those of its groups.
    """
    return Grouped(_by_column(kernel, list(columns)), tuple(groups))


def _by_column(kernel: Kernel, columns: list[int]) -> Kernel:
    if isinstance(kernel, Sum | Product):
        return type(kernel)(tuple(_by_column(part, columns) for part in kernel.parts))
    given = getattr(kernel, "lengthscale", None)
    if not isinstance(kernel, ScaledKernel) or given is None or np.ndim(given) == 0:
        return kernel
    given = np.asarray(given)
    fits = given.shape[-1] == len(set(columns)) != len(columns) and max(columns) < given.shape[-1]
    return replace(kernel, lengthscale=given[..., columns]) if fits else kernel


class _BoundGrouped(BoundKernel):
    def __init__(self, bound: BoundKernel, groups: Sequence[int]) -> None:
        self._bound, self._groups, self.gram = bound, groups, bound.gram

    def blocks(self, X: Float[Tensor, "B D"]) -> Blocks:
        return self._bound.blocks(X)

    def pull_back(self, blocks: Blocks, by_gram: Tensor, by_cross: Tensor, by_diag: Tensor) -> KernelGradient:
        found = self._bound.pull_back(blocks, by_gram, by_cross, by_diag)
        index = torch.tensor(list(self._groups), device=found.by_Z.device)
        members = torch.nn.functional.one_hot(index).to(found.by_Z.dtype)  # a product: the same bits on every run
        by = {name: v @ members if name.endswith(LENGTHSCALE) else v for name, v in found.by_params.items()}
        return KernelGradient(by, found.by_Z)
