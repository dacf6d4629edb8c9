"""L-BFGS on the objective at the best q: the scheme "outer" with line searches, or everything at once for plain VI."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits
from torch import Tensor

from cavity.numerics.linalg import FactorisationError
from cavity.training.loop import Trainer
from cavity.training.plan import Trained

LEAST_SCALE = 0.05  # of the damping, before giving up


@dataclass(frozen=True)
class LBFGS:
    """How to run it: θ is `unit` times the variables it sees; `memory` is the number of past steps it learns from."""

    unit: Float[Tensor, "P"]
    memory: int = 20


class _OutOfTime(Exception):
    """`max_seconds` have passed."""


def train_lbfgs(trainer: Trainer, settings: LBFGS) -> Trained:
    """Maximise by scipy's L-BFGS-B, every evaluation from the best state so far.

    An epoch is one iteration; the line search may take more than one evaluation, each with its record.
    """
    theta, state = trainer.start()
    unit = settings.unit.cpu().numpy()
    best = (np.inf, theta, state)
    iterations = 0

    def negative(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal best
        epoch = min(iterations + 1, trainer.plan.max_epochs)
        point = torch.as_tensor(unit * x, dtype=theta.dtype, device=theta.device)
        try:
            state, objective, gradient = trainer.evaluate(point, best[2], trainer.data.full, 0)
        except FactorisationError as error:
            trainer.note(epoch, None, 0.0, f"rejected a step: {error}")
            if np.isinf(best[0]) and trainer.scale > LEAST_SCALE:  # at the start there is no step to take back
                trainer.scale *= 0.5
                return negative(x)
            # a wall, not a cliff: the line search steps back from it
            return best[0] + 1e3 * (1.0 + abs(best[0])), np.zeros_like(x)
        trainer.note(epoch, float(objective), 0.0)
        if -float(objective) < best[0]:
            best = (-float(objective), point, state)
        trainer.look(*best[1:])
        if trainer.clock.is_over():
            raise _OutOfTime
        return -float(objective), -unit * gradient.cpu().numpy()

    def count(_: NDArray[np.float64]) -> None:
        nonlocal iterations
        iterations += 1

    options = {"maxiter": trainer.plan.max_epochs, "ftol": trainer.plan.tol * 1e-2, "maxcor": settings.memory}
    # numpy's threads, waiting for work, would take the processors from torch's
    with contextlib.suppress(_OutOfTime), threadpool_limits(1, user_api="blas"):
        minimize(negative, theta.cpu().numpy() / unit, jac=True, method="L-BFGS-B", callback=count, options=options)
    if not np.isfinite(best[0]):
        raise FactorisationError(f"no step worked: {trainer.history.last_event()}")
    return trainer.finish(best[1], best[2], max(iterations, 1))
