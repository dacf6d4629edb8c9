"""Gradient ascent on θ. A step returns a new vector, so the old one stays available after a failure."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.adam import adam

from cavity.training.checkpoint import Checkpointable


@runtime_checkable
class Optimizer(Checkpointable, Protocol):
    """An optimizer that makes one step at a time."""

    def step(self, theta: Tensor, gradient: Tensor, progress: float) -> Tensor:
        """Return θ after a step; `progress` is the completed part of training, from 0 to 1."""

    def shrink(self) -> None:
        """Halve further steps, after a step that failed."""

    def recover(self, steps: int) -> None:
        """Let the steps grow back towards their full length, after this number of steps that worked."""

    def learning_rate(self) -> float:
        """Return a typical learning rate, for the history."""


class Adam:
    """Adam (Kingma and Ba, 2015), with optional cosine decay of the learning rate to a hundredth.

    Args:
        rate: the initial learning rate.
        decay: whether the learning rate decays.
        n_rows: number of rows that the objective is a sum over. Gradients far below EPSILON per row are rounding
            errors. They must not become full steps, or results would differ between machines.
    """

    FINAL = 0.01
    BETAS, EPSILON = (0.9, 0.999), 1e-8
    UP = 1.02  # per step that works: a halved rate is back after 36

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
        """Make a step in place with this learning rate; do nothing if `skip` is true."""
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
        """Return the learning rate at this progress, rounded to single precision as on a GPU."""
        fall = 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0))) if self._decay else 1.0
        return float(np.float32((self.FINAL + (1.0 - self.FINAL) * fall) * self.learning_rate()))

    def shrink(self) -> None:
        self._scale *= 0.5

    def recover(self, steps: int) -> None:
        self._scale = min(1.0, self._scale * self.UP**steps)

    def learning_rate(self) -> float:
        return self._scale * self._rate

    def state_dict(self) -> dict[str, Tensor]:
        names = ("mean", "square", "count")
        moments = {} if self._moments is None else dict(zip(names, self._moments, strict=True))
        return {"scale": torch.tensor(self._scale, dtype=torch.float64), **moments}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._scale = float(state["scale"])
        self._moments = (state["mean"], state["square"], state["count"]) if "mean" in state else None


class AdaptiveRate:
    """The rule of the paper: the rate of a parameter grows by 2 % if its gradient keeps its sign, and halves if not.

    Args:
        rate: initial rate of each parameter.
        largest: upper limit of each rate.
        pooled: 1 for parameters whose last sign is compared with the sign of the sum of all their gradients, as in the
            authors' program for length-scales: their rates shrink often, so they move little.
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

    def recover(self, steps: int) -> None:
        """Do nothing: the rule itself raises the rates."""

    def learning_rate(self) -> float:
        return float(self._rate.mean()) if len(self._rate) else 0.0

    def state_dict(self) -> dict[str, Tensor]:
        return {"rate": self._rate} | ({} if self._sign is None else {"sign": self._sign})

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._rate, self._sign = state["rate"], state.get("sign")
