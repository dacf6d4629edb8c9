"""A learned monotone map of each column as a further input of the search: a mixture of two maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from cavity.fitting import encoding as encodings
from cavity.fitting import search
from cavity.fitting.encoding import Encoding, Monotone, Scaler, Standard, TableEncoding
from cavity.fitting.fit import Fit
from cavity.fitting.search import FullGP
from cavity.kernels import Kernel
from cavity.kernels.base import Blocks, BoundKernel, KernelGradient, Params

Array = NDArray[np.float64]

MIXTURE = "mixture"
WEIGHT, WEIGHT_SD = "log_weight", 2.0  # the logit of the part of quantiles, and the sd of its prior around ½


@dataclass(frozen=True)
class Mixture(Standard):
    """Standardized columns whose map to quantiles is known: `Warped` mixes both."""

    quantile: Monotone


class Warped(Kernel):
    """A kernel of (1 − w_d) x_d + w_d q_d(x_d), where q_d maps a standardized feature to its quantiles.

    The weights w are learned with the kernel, one for each feature. All classes have the same: that of the mean of
    their logits.

    Args:
        kernel: any kernel.
        maps: the knots of q_d and their levels; None for a feature that stays as it is.
    """

    def __init__(self, kernel: Kernel, maps: Sequence[tuple[Array, Array] | None]) -> None:
        self.kernel, self.maps = kernel, maps

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        """Begin in the middle between both maps."""
        weight = torch.zeros(n_classes, n_features, dtype=torch.float64)
        return {**self.kernel.start(n_classes, n_features, lengthscale), WEIGHT: weight}

    def fitted(self, params: Params) -> Kernel:
        """Return the kernel with fitted parameters; the weights start in the middle again."""
        return Warped(self.kernel.fitted(_others(params)), self.maps)

    def bind(self, params: Params, Z: Float[Tensor, "_ M D"], dtype: torch.dtype) -> BoundKernel:
        """Bind the kernel at warped inducing points."""
        return _BoundWarped(self, params, Z, dtype)

    def difference(self, X: Float[Tensor, "*_ D"]) -> Float[Tensor, "*_ D"]:
        """Return q(x) − x; beyond the knots it is constant."""
        found = torch.zeros_like(X)
        for d, map_ in enumerate(self.maps):
            if map_ is not None:
                knots, levels = map_
                inside = np.interp(X[..., d].cpu().numpy(), knots, levels - knots)
                found[..., d] = torch.from_numpy(np.asarray(inside)).to(X)
        return found


class _BoundWarped(BoundKernel):
    def __init__(self, warped: Warped, params: Params, Z: Tensor, dtype: torch.dtype) -> None:
        self._warped, self._logit = warped, params[WEIGHT]
        self._weight = torch.sigmoid(self._logit.mean(0))
        self._difference = warped.difference(Z)
        self._bound = warped.kernel.bind(_others(params), Z + self._weight * self._difference, dtype)
        self.gram = self._bound.gram

    def blocks(self, X: Float[Tensor, "B D"]) -> Blocks:
        return self._bound.blocks(X + self._weight.to(X) * self._warped.difference(X))

    def pull_back(self, blocks: Blocks, by_gram: Tensor, by_cross: Tensor, by_diag: Tensor) -> KernelGradient:
        """Apply the chain rule for k(Z, Z); the weights' effect on k(Z, X) is left out, so X must have no rows."""
        assert not len(blocks.X)
        found = self._bound.pull_back(blocks, by_gram, by_cross, by_diag)
        by_weight = (found.by_Z * self._difference).sum((0, 1)) * self._weight * (1.0 - self._weight)
        by_logit = (by_weight / len(self._logit)).expand_as(self._logit)
        return KernelGradient({**found.by_params, WEIGHT: by_logit}, found.by_Z)


def _others(params: Params) -> Params:
    return {name: value for name, value in params.items() if name != WEIGHT}


@contextmanager
def inputs(more: Sequence[str], fewer: Sequence[str]) -> Iterator[None]:
    """Let the search compare `more` maps of columns of numbers, and not those named in `fewer`, for a while."""
    found, fit_scaler, on_rows = Fit._candidates, encodings.fit_scaler, FullGP.on_rows

    def candidates(self: Fit, rows: Any, fitted: Callable[[str | None], Encoding]) -> Iterator[tuple[Any, Encoding]]:
        yield from (pair for pair in found(self, rows, fitted) if pair[0] not in fewer)
        yield from ((name, fitted(name)) for name in (more if self._n_numbers else ()))

    def fitted_scaler(scaling: str | None, X: Array, weight: Array) -> Scaler:
        if scaling == MIXTURE:
            quantile = fit_scaler("quantile", X, weight)
            assert isinstance(quantile, Monotone)
            return Mixture(quantile.standard.mean, quantile.standard.sd, quantile)
        return fit_scaler(scaling, X, weight)

    def process(rows: Any, encoding: Encoding, *others: Any) -> FullGP:
        gp, maps = on_rows(rows, encoding, *others), _maps(encoding)
        return gp if maps is None else replace(gp, kernel=lambda *at: Warped(gp.kernel(*at), maps))

    priors = {**search.PRIORS, WEIGHT.removeprefix("log_"): (None, WEIGHT_SD)}
    with ExitStack() as stack:
        for what, name, value in (
            (Fit, "_candidates", candidates),
            (encodings, "fit_scaler", fitted_scaler),
            (FullGP, "on_rows", process),
            (search, "PRIORS", priors),
        ):
            stack.enter_context(patch.object(what, name, value))
        yield


def _maps(encoding: Encoding) -> list[tuple[Array, Array] | None] | None:
    """Return what `Warped` needs for each feature; None for another encoding."""
    scaler = encoding.scaler if isinstance(encoding, TableEncoding) else encoding
    if not isinstance(scaler, Mixture):
        return None
    z = [(k - mean) / sd for k, mean, sd in zip(scaler.quantile.knots, scaler.mean, scaler.sd, strict=True)]
    of_columns = [(k, v) if len(k) > 1 else None for k, v in zip(z, scaler.quantile.levels, strict=True)]
    if not isinstance(encoding, TableEncoding):
        return list(of_columns)
    n_features = len(encoding.order)  # the columns of numbers are the first of all features before they are ordered
    return [of_columns[k] if k < len(of_columns) else None for k in encoding.order[:n_features]]
