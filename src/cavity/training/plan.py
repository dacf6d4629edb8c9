"""What training is asked to do, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from cavity.gp.gaussian import Posterior
from cavity.training.history import History

FINAL_SWEEPS = 50  # of q after the last step: whatever the time, epochs and these sweeps are as many together


class TrainingError(ValueError):
    """Training failed with these rows and arguments; the message suggests what to change."""


@dataclass(frozen=True)
class Plan:
    """The settings of a training run.

    Args:
        updates: "inner" (one sweep, one step), "inner-exact" (the same with the full gradient) or "outer" (sweeps until
            convergence, then one step).
        batch_size: rows of a mini-batch; None for full-batch training.
        max_epochs: maximum number of passes over the data.
        min_epochs: number of passes over the data that `max_seconds` does not cut.
        max_seconds: maximum training time.
        tol: stop when the objective per row rises by less than this per epoch.
        damping: weight of the new site in an update of the first epoch.
        damping_decay: factor applied to the damping after each epoch.
        damping_floor: the smallest damping that the decay can reach.
        sweep_tol: relative change of the sites at which sweeps count as converged.
        outer_sweeps: maximum number of sweeps before each step of "outer".
        final_sweeps: maximum number of sweeps after the last step, with fixed hyper-parameters.
        seed: seed of the order of the mini-batches.
    """

    updates: str
    batch_size: int | None
    max_epochs: int
    max_seconds: float | None
    tol: float
    damping: float
    damping_decay: float = 1.0
    damping_floor: float = 0.04
    sweep_tol: float = 1e-4
    outer_sweeps: int = 100
    final_sweeps: int = 0
    seed: int = 0
    min_epochs: int = 1


class Trained(NamedTuple):
    """The result of a training run."""

    theta: Tensor
    state: Any
    posterior: Posterior
    log_z: float
    history: History
    epochs: int
