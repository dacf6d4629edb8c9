"""Gradient ascent on θ. A step makes a new vector, so going back is keeping the old one."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.adam import adam


@runtime_checkable
class Optimizer(Protocol):
    """One ascent step after another."""

    def step(self, theta: Tensor, gradient: Tensor, progress: float) -> Tensor:
        """θ after a step; `progress` is how much of the training has passed, 0 to 1."""

    def shrink(self) -> None:
        """Halve all steps from now on: the last one failed."""

    def size(self) -> float:
        """A typical learning rate, for the history."""

    def kept(self) -> dict[str, Tensor]:
        """All that it has learned on its way."""

    def restore(self, kept: dict[str, Tensor]) -> None:
        """Go on from there."""


class Adam:
    """Adam (Kingma and Ba, 2015), its rate falling along a half cosine to a hundredth if `decay`.

    Args:
        rate: the largest step of a parameter.
        decay: whether the rate falls.
        n_rows: how many rows the objective is a sum over. Gradients far below EPSILON a row are rounding errors: they
            must not be blown up to full steps, which would make every machine learn something else.
    """

    FINAL = 0.01
    BETAS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, rate: float, decay: bool = True, n_rows: float = 1.0) -> None:
        self._rate, self._decay, self._scale = rate, decay, 1.0
        self._epsilon = self.EPSILON * n_rows
        self._moments: tuple[Tensor, Tensor, Tensor] | None = None

    def step(self, theta: Float[Tensor, "P"], gradient: Float[Tensor, "P"], progress: float) -> Float[Tensor, "P"]:
        theta = theta.clone()
        self.move_(theta, gradient, self.rate(progress))
        return theta

    def move_(
        self, theta: Float[Tensor, "P"], gradient: Float[Tensor, "P"], rate: float | Tensor, skip: Tensor | None = None
    ) -> None:
        """A step in place at this rate, and none where `skip` is true."""
        if self._moments is None:
            count = torch.zeros((), dtype=torch.float32, device=theta.device)
            self._moments = torch.zeros_like(theta), torch.zeros_like(theta), count
        mean, square, count = self._moments
        adam(
            [theta], [gradient], [mean], [square], [], [count], fused=True, amsgrad=False, beta1=self.BETAS[0],
            beta2=self.BETAS[1], lr=rate, weight_decay=0.0, eps=self._epsilon, maximize=True,
            found_inf=None if skip is None else skip.float(),
        )  # fmt: skip

    def rate(self, progress: float) -> float:
        """The learning rate once this share of the training has passed; in single precision, as a GPU takes it."""
        fall = 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0))) if self._decay else 1.0
        return float(np.float32((self.FINAL + (1.0 - self.FINAL) * fall) * self.size()))

    def shrink(self) -> None:
        self._scale *= 0.5

    def size(self) -> float:
        return self._scale * self._rate

    def kept(self) -> dict[str, Tensor]:
        names = ("mean", "square", "count")
        moments = {} if self._moments is None else dict(zip(names, self._moments, strict=True))
        return {"scale": torch.tensor(self._scale, dtype=torch.float64), **moments}

    def restore(self, kept: dict[str, Tensor]) -> None:
        self._scale = float(kept["scale"])
        self._moments = (kept["mean"], kept["square"], kept["count"]) if "mean" in kept else None


class AdaptiveRate:
    """The paper's rule: each parameter has its own rate, 2 % up while its gradient keeps its sign, half when it flips.

    Args:
        rate: start of the rates.
        largest: where they stop growing.
        pooled: parameters whose sign is compared with the sign of the sum of all their gradients, as the authors'
            program does for length-scales: their rates shrink often, so that they move little.
    """

    UP, DOWN = 1.02, 0.5

    def __init__(self, rate: Float[Tensor, "P"], largest: Float[Tensor, "P"], pooled: Float[Tensor, "P"]) -> None:
        self._rate, self._largest, self._pooled = rate, largest, pooled.bool()
        self._sign: Tensor | None = None

    def step(self, theta: Float[Tensor, "P"], gradient: Float[Tensor, "P"], progress: float) -> Float[Tensor, "P"]:
        sign = torch.sign(gradient)
        if self._sign is not None:
            total = torch.sign(torch.where(self._pooled, gradient, 0.0).sum())
            same = torch.where(self._pooled, total, sign) == self._sign
            self._rate = torch.minimum(torch.where(same, self.UP, self.DOWN) * self._rate, self._largest)
        self._sign = sign
        return theta + self._rate * gradient

    def shrink(self) -> None:
        self._rate = 0.5 * self._rate

    def size(self) -> float:
        return float(self._rate.mean()) if len(self._rate) else 0.0

    def kept(self) -> dict[str, Tensor]:
        return {"rate": self._rate} | ({} if self._sign is None else {"sign": self._sign})

    def restore(self, kept: dict[str, Tensor]) -> None:
        self._rate, self._sign = kept["rate"], kept.get("sign")
