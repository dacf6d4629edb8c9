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

from cavity.numerics.linalg import FactorizationError
from cavity.training.course import Course
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


class _Past:
    """All values and gradients so far: given them again, L-BFGS comes to where it was."""

    def __init__(self) -> None:
        self.found: list[tuple[float, NDArray[np.float64]]] = []
        self.best = np.inf

    def kept(self) -> dict[str, Tensor]:
        values, gradients = zip(*self.found, strict=True)
        return {"values": torch.tensor(values, dtype=torch.float64), "gradients": torch.from_numpy(np.stack(gradients)),
                "best": torch.tensor(self.best, dtype=torch.float64)}  # fmt: skip

    def restore(self, kept: dict[str, Tensor]) -> None:
        values, gradients = kept["values"].tolist(), kept["gradients"].cpu().numpy()
        self.found, self.best = list(zip(values, gradients, strict=True)), float(kept["best"])


def train_lbfgs(trainer: Trainer, settings: LBFGS) -> Trained:
    """Maximize by scipy's L-BFGS-B, every evaluation from the best state so far.

    An epoch is one iteration; the line search may take more than one evaluation, each with its record.
    """
    course, past = Course(*trainer.start()), _Past()
    start, unit = course.theta.cpu().numpy(), settings.unit.cpu().numpy()
    if trainer.keeper is not None:
        trainer.keeper.resume(trainer, course, past)
    iterations = asked = 0

    def negative(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        nonlocal asked
        asked += 1
        if asked > len(past.found):
            past.found.append(evaluated(x))
            if trainer.keeper is not None and course.has_moved and trainer.keeper.is_due(trainer.workers):
                trainer.keeper.save(trainer, course, past)
            if trainer.clock.is_over():
                raise _OutOfTime
        return past.found[asked - 1]

    def evaluated(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        epoch = min(iterations + 1, trainer.plan.max_epochs)
        point = torch.as_tensor(unit * x, dtype=course.theta.dtype, device=course.theta.device)
        try:
            state, objective, gradient = trainer.evaluate(point, course.state, trainer.all_rows(), 0)
        except FactorizationError as error:
            trainer.note(epoch, None, 0.0, f"rejected a step: {error}")
            if not course.has_moved and trainer.scale > LEAST_SCALE:  # at the start there is no step to take back
                trainer.scale *= 0.5
                return evaluated(x)
            # a wall, not a cliff: the line search steps back from it
            return past.best + 1e3 * (1.0 + abs(past.best)), np.zeros_like(x)
        trainer.note(epoch, float(objective), 0.0)
        if -float(objective) < past.best:
            past.best, course.theta, course.state, course.has_moved = -float(objective), point, state, True
            trainer.good = point, state
        trainer.look(course.theta, course.state)
        return -float(objective), -unit * gradient.cpu().numpy()

    def count(_: NDArray[np.float64]) -> None:
        nonlocal iterations
        iterations += 1

    options = {"maxiter": trainer.plan.max_epochs, "ftol": trainer.plan.tol * 1e-2, "maxcor": settings.memory}
    # numpy's threads, waiting for work, would take the processors from torch's
    with contextlib.suppress(_OutOfTime), threadpool_limits(1, user_api="blas"):
        minimize(negative, start / unit, jac=True, method="L-BFGS-B", callback=count, options=options)
    if not course.has_moved:
        raise FactorizationError(f"no step worked: {trainer.history.last_event()}")
    if trainer.keeper is not None:
        trainer.keeper.save(trainer, course, past)
    return trainer.finish(course.theta, course.state, max(iterations, 1))
