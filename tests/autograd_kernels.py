"""The kernels of the package once more, in plain torch: what autograd makes of them is what closed forms must give."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cavity.kernels import Constant, Kernel, Laplace, Linear, Params, Product, Sum
from cavity.kernels.stationary import Stationary


@dataclass(frozen=True, eq=False)
class ByAutograd(Kernel):
    """A kernel of one's own: differentiable entries, and no word on their gradients."""

    kernel: Kernel

    def start(self, n_classes: int, n_features: int, lengthscale: float) -> Params:
        return self.kernel.start(n_classes, n_features, lengthscale)

    def fitted(self, params: Params) -> Kernel:
        return ByAutograd(self.kernel.fitted(params))

    def cross(self, params: Params, Z: Tensor, X: Tensor) -> Tensor:
        return entries(self.kernel, params, Z[:, :, None, :], X[:, None, :, :])

    def diag(self, params: Params, X: Tensor) -> Tensor:
        return entries(self.kernel, params, X[:, None], X[:, None])[:, 0]


def entries(kernel: Kernel, params: Params, a: Tensor, b: Tensor) -> Tensor:
    """k of every pair of `a` and `b`, which are broadcast; the class axis comes first, features last."""
    if isinstance(kernel, Sum | Product):
        own = [{n[2:]: v for n, v in params.items() if n.startswith(f"{i}.")} for i in range(len(kernel.parts))]
        return kernel.combine([entries(part, p, a, b) for part, p in zip(kernel.parts, own, strict=True)])
    variance = torch.exp(params["log_variance"])[:, None, None]
    if isinstance(kernel, Constant):
        return variance.expand(torch.broadcast_shapes(variance.shape, (a + b).shape[:-1]))
    scale = torch.exp(-params["log_lengthscale"])[:, None, None, :]
    if isinstance(kernel, Linear):
        return variance * (a * b * scale.square()).sum(-1)
    if isinstance(kernel, Laplace):
        return variance * torch.exp(-((a - b) * scale).abs().sum(-1))
    assert isinstance(kernel, Stationary)
    return variance * kernel.correlation(((a - b) * scale).square().sum(-1))
