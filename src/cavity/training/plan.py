"""What training is asked to do, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from cavity.gp.gaussian import Posterior
from cavity.training.history import History


class TrainingError(ValueError):
    """Training cannot go on with these rows and arguments; the message says what to try."""


@dataclass(frozen=True)
class Plan:
    """How to train.

    Args:
        updates: "inner" (one sweep, one step), "inner-exact" (the same with the full gradient) or "outer" (sweeps until
            convergence, then one step).
        batch_size: None for all rows at once.
        max_epochs: passes over the data, at most.
        max_seconds: time, at most.
        tol: stop when the objective per row rises by less than this an epoch.
        damping: share of the new site in an update, first of all; times `damping_decay` every epoch, but at least
            `damping_floor`.
        sweep_tol: relative change of the sites at which a fixed point is reached.
        outer_sweeps: most sweeps before each step of "outer".
        final_sweeps: most sweeps at the end, hyper-parameters fixed.
        seed: of the order of the batches.
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


class Trained(NamedTuple):
    """What training leaves."""

    theta: Tensor
    state: Any
    posterior: Posterior
    log_z: float
    history: History
    epochs: int
