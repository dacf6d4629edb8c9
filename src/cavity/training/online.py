"""Online training with SEP: rows arrive in batches, and each row is used once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from cavity.data.training_data import ArrayData
from cavity.gp.gaussian import Posterior
from cavity.inference import SEP, Batch
from cavity.inference.base import factor_counts
from cavity.inference.sep import SEPState
from cavity.numerics.linalg import FactorizationError
from cavity.training.history import Event, Record
from cavity.training.optimizers import Optimizer
from cavity.training.parameters import HyperPrior, ParametricPrior
from cavity.training.step import Inference


def tie_sites(state: Any, own_weight: Float[Tensor, "C"]) -> SEPState:
    """Return the SEP state with the same q as an EP state: the same product of sites, now as one tied site."""
    return SEPState(state.T, state.t, factor_counts(own_weight))


@dataclass
class OnlineTrainer:
    """A model that is trained on one batch after another.

    Each row multiplies its sites into q. Then the hyper-parameters make one step, with the gradient of the batch scaled
    to all rows so far; `weight_seen` is the weight of the rows in the initial state.
    """

    model: ParametricPrior
    hyper_prior: HyperPrior
    optimizer: Optimizer
    theta: Tensor
    state: SEPState
    weight_seen: float
    log_z: float = 0.0

    _method: ClassVar[SEP] = SEP()

    def absorb(self, data: ArrayData, batch_size: int) -> Record:
        """Learn from new rows; return a record for the history."""
        reasons = []
        for batch in data.in_order(batch_size):
            self.weight_seen += float(batch.weight.sum())
            scale = self.weight_seen / float(batch.weight.sum())
            try:
                self._learn(batch._replace(scale=scale, is_full=False))
            except FactorizationError as error:
                self.optimizer.shrink()
                reasons.append(str(error))
        record: Record = {"objective": self.log_z, "rate": self.optimizer.learning_rate(), "event": None}
        if reasons:
            record |= {"event": Event.HYPERPARAMETERS_KEPT, "batches": len(reasons), "reason": reasons[-1]}
        return record

    def posterior(self) -> Posterior:
        """Return q(u) after all rows so far."""
        return self._method.posterior(self.model.prior(self.theta), self.state)

    def _learn(self, batch: Batch) -> None:
        prior, inference = self.model.prior(self.theta), Inference(self._method)
        f = prior.conditional(batch.X)
        self.state = self._method.absorb(prior, f, self.state, batch)
        found = inference.objective(prior, f, self.state, batch, None)
        self.log_z = float(found.log_z)
        if not len(self.theta):
            return
        _, gradient = inference.gradient(self.model, prior, f, found)
        gradient = self.hyper_prior.add_gradient(self.theta, gradient)
        moved = self.optimizer.step(self.theta, gradient, 0.0)
        self._method.posterior(self.model.prior(moved), self.state)  # raises where θ has gone too far
        if not torch.isfinite(moved).all():
            raise FactorizationError("the gradient is not finite")
        self.theta = moved
