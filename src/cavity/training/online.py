"""Online training with SEP: rows arrive in batches, and each row is used once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.data.training_data import ArrayData
from cavity.gp.gaussian import Natural, Posterior
from cavity.gp.prior import Conditional, Prior
from cavity.inference import SEP, Batch
from cavity.inference.base import factor_counts
from cavity.inference.sep import SEPState
from cavity.numerics.linalg import FactorizationError
from cavity.training.history import Event, Record
from cavity.training.optimizers import Optimizer
from cavity.training.parameters import HyperPrior, ParametricPrior
from cavity.training.step import Inference


def tie_sites(prior: Prior, state: Any, own_weight: Float[Tensor, "C"]) -> SEPState:
    """Return the SEP state with the same q as a state of EP, SEP or VI: q over the prior, now as one tied site."""
    T, t = prior.unwhiten(*state) if isinstance(state, Natural) else (state.T, state.t)
    return SEPState(T, t, factor_counts(own_weight))


@dataclass
class OnlineTrainer:
    """A model that is trained on one batch after another.

    Each row multiplies its sites into q. Then the hyper-parameters make one step, with the gradient of the batch scaled
    to all rows so far; `weight_seen` is the weight of the rows in the initial state, `alpha` the power of power EP.
    """

    model: ParametricPrior
    hyper_prior: HyperPrior
    optimizer: Optimizer
    theta: Tensor
    state: SEPState
    weight_seen: float
    log_z: float = 0.0
    alpha: float = 1.0

    @property
    def _method(self) -> SEP:
        return SEP(self.alpha)

    def absorb(self, data: ArrayData, batch_size: int) -> tuple[list[Record], Tensor]:
        """Learn from new rows; return records for the history, and which rows were learned from.

        The rows of a batch whose sites cannot be computed are left out.
        """
        kept: list[str] = []  # why hyper-parameters were not updated
        failed: list[str] = []  # why rows were left out
        is_learned = torch.ones(len(data), dtype=torch.bool)
        for batch in data.in_order(batch_size):
            weight = float(batch.weight.sum())
            batch = batch._replace(scale=(self.weight_seen + weight) / weight, is_full=False)
            prior = self.model.prior(self.theta)
            try:
                state = self._method.absorb(prior, f := prior.conditional(batch.X), self.state, batch)
                if not torch.isfinite(self._method.posterior(prior, state).whitened.m).all():
                    raise FactorizationError("q(u) is not finite")
            except FactorizationError as error:
                is_learned[batch.positions.cpu()] = False
                failed.append(str(error))
                continue
            self.state, self.weight_seen = state, self.weight_seen + weight
            try:
                self._update_hyper_parameters(prior, f, batch)
                self.optimizer.recover(1)
            except FactorizationError as error:
                self.optimizer.shrink()
                kept.append(str(error))
        record: Record = {"objective": self.log_z, "rate": self.optimizer.learning_rate(), "event": None}
        events: list[Record] = []
        if failed:
            rows = int((~is_learned).sum())
            events.append({"event": Event.ROWS_LEFT_OUT, "rows": rows, "reason": failed[-1]})
        if kept:
            events.append({"event": Event.HYPERPARAMETERS_KEPT, "batches": len(kept), "reason": kept[-1]})
        return [record | event for event in events] or [record], is_learned

    def posterior(self) -> Posterior:
        """Return q(u) after all rows so far."""
        return self._method.posterior(self.model.prior(self.theta), self.state)

    def _update_hyper_parameters(self, prior: Prior, f: Conditional, batch: Batch) -> None:
        inference = Inference(self._method)
        found = list(inference.objectives(prior, f, self.state, batch, None))
        self.log_z = float(sum(of_block.log_z for _, of_block in found))
        if not len(self.theta):
            return
        _, gradient = inference.gradient(self.model, prior, found)
        gradient = self.hyper_prior.add_gradient(self.theta, gradient)
        if not torch.isfinite(gradient).all():  # it would spoil all further steps of Adam
            raise FactorizationError("the gradient is not finite")
        moved = self.optimizer.step(self.theta, gradient, 0.0)
        self._method.posterior(self.model.prior(moved), self.state)  # raises where θ has gone too far
        self.theta = moved
