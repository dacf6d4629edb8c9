"""Gradient ascent on θ. A step makes a new vector, so going back is keeping the old one."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.numerics.limits import tiny


@runtime_checkable
class Optimiser(Protocol):
    """One ascent step after another."""

    def step(self, theta: Tensor, gradient: Tensor, progress: float) -> Tensor:
        """θ after a step; `progress` is how much of the training has passed, 0 to 1."""

    def shrink(self) -> None:
        """Halve all steps from now on: the last one failed."""

    def size(self) -> float:
        """A typical learning rate, for the history."""


class Adam:
    """Adam (Kingma and Ba, 2015), its rate falling along a half cosine to a hundredth if `decay`."""

    FINAL = 0.01
    BETAS = (0.9, 0.999)

    def __init__(self, rate: Float[Tensor, "P"], decay: bool = True) -> None:
        self._rate, self._decay = rate, decay
        self._mean, self._square = torch.zeros_like(rate), torch.zeros_like(rate)
        self._steps, self._scale = 0, 1.0

    def step(self, theta: Float[Tensor, "P"], gradient: Float[Tensor, "P"], progress: float) -> Float[Tensor, "P"]:
        self._steps += 1
        b1, b2 = self.BETAS
        self._mean = torch.lerp(gradient, self._mean, b1)
        self._square = torch.lerp(gradient.square(), self._square, b2)
        bias1, bias2 = 1.0 - b1**self._steps, 1.0 - b2**self._steps
        direction = (self._mean / bias1) / ((self._square / bias2).sqrt() + 1e-8)
        return theta + self._now(progress) * self._scale * self._rate * direction

    def _now(self, progress: float) -> float:
        if not self._decay:
            return 1.0
        return self.FINAL + (1.0 - self.FINAL) * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))

    def shrink(self) -> None:
        self._scale *= 0.5

    def size(self) -> float:
        return self._scale * float(self._rate.mean()) if len(self._rate) else 0.0


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


def clip(gradient: Float[Tensor, "P"], largest: float) -> Float[Tensor, "P"]:
    """`gradient`, shortened to norm `largest` where it is longer."""
    return gradient * (largest / gradient.norm().clamp_min(tiny(gradient))).clamp_max(1.0)
