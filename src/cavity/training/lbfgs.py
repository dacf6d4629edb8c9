"""L-BFGS on the objective at the converged q: scheme "outer" with line searches, or θ and q together for plain VI."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from cavity.numerics.linalg import FactorizationError
from cavity.runtime.threads import one_blas_thread
from cavity.training.history import Event, describe
from cavity.training.loop import Trainer, TrainingState
from cavity.training.plan import Trained

LEAST_SCALE = 0.05  # of the damping, before the first evaluation is given up

Evaluation = tuple[float, NDArray[np.float64]]  # the negative objective and its gradient


@dataclass(frozen=True)
class LBFGS:
    """The settings: θ is `unit` times the variables of L-BFGS; `memory` is the number of past steps it uses."""

    unit: Float[Tensor, "P"]
    memory: int = 20


class _OutOfTime(Exception):
    """`max_seconds` have passed."""


class _Evaluations:
    """All evaluations so far. A resumed run gives them to L-BFGS again, which then reaches the same point."""

    def __init__(self) -> None:
        self.done: list[Evaluation] = []
        self.best = np.inf

    def state_dict(self) -> dict[str, Tensor]:
        values, gradients = zip(*self.done, strict=True)
        return {"values": torch.tensor(values, dtype=torch.float64), "gradients": torch.from_numpy(np.stack(gradients)),
                "best": torch.tensor(self.best, dtype=torch.float64)}  # fmt: skip

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        values, gradients = state["values"].tolist(), state["gradients"].cpu().numpy()
        self.done, self.best = list(zip(values, gradients, strict=True)), float(state["best"])


def train_lbfgs(trainer: Trainer, settings: LBFGS) -> Trained:
    """Maximize the objective with SciPy's L-BFGS-B; each evaluation starts from the best state so far.

    An epoch is one iteration. Its line search can take several evaluations, each with a record.
    """
    from scipy.optimize import minimize  # slow to import

    run, evaluations = TrainingState(*trainer.start()), _Evaluations()
    start, unit = run.theta.cpu().numpy(), settings.unit.cpu().numpy()
    run = trainer.resume(run, evaluations)
    iterations = calls = 0

    def negative(x: NDArray[np.float64]) -> Evaluation:
        nonlocal calls
        calls += 1
        if calls > len(evaluations.done):
            evaluations.done.append(evaluate(x))
            if run.has_moved:
                trainer.save_checkpoint(run, evaluations, only_if_due=True)
            if trainer.clock.is_over():
                raise _OutOfTime
        return evaluations.done[calls - 1]

    def evaluate(x: NDArray[np.float64]) -> Evaluation:
        epoch = min(iterations + 1, trainer.plan.max_epochs)
        theta = torch.as_tensor(unit * x, dtype=run.theta.dtype, device=run.theta.device)
        try:
            state, objective, gradient = trainer.evaluate(theta, run.state, trainer.all_rows(), 0)
        except FactorizationError as error:
            trainer.note(epoch, None, 0.0, Event.EVALUATION_REJECTED, reason=str(error))
            if not run.has_moved and trainer.scale > LEAST_SCALE:  # at the start there is no step to take back
                trainer.halve_damping()
                return evaluate(x)
            # a wall, not a cliff: the line search steps back from it
            return evaluations.best + 1e3 * (1.0 + abs(evaluations.best)), np.zeros_like(x)
        trainer.note(epoch, float(objective), 0.0)
        if -float(objective) < evaluations.best:
            evaluations.best = -float(objective)
            run.theta, run.state, run.has_moved = theta, state, True
            trainer.accept(theta, state)
        trainer.show(run.theta, run.state)
        return -float(objective), -unit * gradient.cpu().numpy()

    def count(_: NDArray[np.float64]) -> None:
        nonlocal iterations
        iterations += 1

    options = {"maxiter": trainer.plan.max_epochs, "ftol": trainer.plan.tol * 1e-2, "maxcor": settings.memory}
    with one_blas_thread():
        try:
            minimize(negative, start / unit, jac=True, method="L-BFGS-B", callback=count, options=options)
        except _OutOfTime:
            run.is_cut = not trainer.clock.is_stopped()
    if not run.has_moved:
        raise FactorizationError(f"no step worked: {describe(trainer.history.records[-1])}")
    trainer.save_checkpoint(run, evaluations)
    if run.is_cut:
        trainer.note_time_limit(max(iterations, 1))
    return trainer.finish(run.theta, run.state, max(iterations, 1))
