"""The one loop: batch → update → gradient → optimizer, for every method.

A step that fails (a matrix that no jitter mends, a gradient that is not finite) goes back to the last θ and state that
worked, halves the damping and the rates, and is written into the history.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from torch import Tensor

from cavity.data.base import Data
from cavity.gp.gaussian import Natural, Posterior
from cavity.gp.prior import Conditional, Prior
from cavity.inference import Batch, Method
from cavity.numerics.linalg import FactorizationError
from cavity.runtime.distributed import SINGLE_PROCESS, Workers
from cavity.training.course import Course, Keeper
from cavity.training.cuda_graphs import Recorder, Replay
from cavity.training.fixed_point import fixed_point, relative_change
from cavity.training.history import STOPPED, Clock, History, Record, Stop, Watch
from cavity.training.optimizers import Adam, Optimizer
from cavity.training.parameters import HyperPrior, Model, Q
from cavity.training.plan import Plan, Trained, TrainingError
from cavity.training.step import Inference

MAX_FAILURES = 25
LAST_TRIES = 5
PASS_ELEMENTS = 1_000_000  # of a block of a pass that only adds up
REPLAYS = 32  # recorded steps before asking the GPU how they went


class Trainer:
    """One run of training; `train` for its result."""

    def __init__(
        self,
        model: Model,
        method: Method,
        data: Data,
        plan: Plan,
        hyper_prior: HyperPrior,
        report: Callable[[Record], None] | None = None,
        watch: Watch | None = None,
        keeper: Keeper | None = None,
        stop: Stop | None = None,
        workers: Workers = SINGLE_PROCESS,
    ) -> None:
        self.model, self.method, self.data, self.plan, self.hyper_prior = model, method, data, plan, hyper_prior
        self.history = History(report)
        self.inference, self.workers, self.keeper = Inference(method, workers), workers, keeper
        self.clock = Clock(plan.max_epochs, plan.max_seconds, self.workers, stop)
        self.failures, self.scale, self.renewed = 0, 1.0, -1
        self._watch, self._due = watch, sorted(watch.at, reverse=True) if watch else []
        self._rows_weight = float(data.own_weight.sum())
        self._replay: Replay | None = None
        self.good: tuple[Tensor, Any]

    def start(self) -> tuple[Tensor, Any]:
        """θ at its start values, and a state with no data in it."""
        theta = self.model.start()
        self.good = theta, self.method.init(self.model.prior(theta), self.data.own_weight, len(self.data))
        return self.good

    def train(self, optimizer: Optimizer) -> Trained:
        """Ascend until the objective settles or the epochs or seconds are used up."""
        course = Course(*self.start())
        if self.keeper is not None:
            self.keeper.resume(self, course, optimizer)
        while not course.is_done:
            objective = self.epoch(course, optimizer)
            if self.clock.is_stopped():
                break  # and a checkpoint goes on from the middle of the epoch
            course.next_epoch()
            if objective is not None:
                self.note(course.epoch, objective, optimizer.size())
            settled = self.history.has_settled(self.plan.tol * self._rows_weight)
            course.is_done = settled or course.epoch >= self.plan.max_epochs or self.clock.is_late()
        for _ in range(LAST_TRIES):  # so few epochs that none has worked: on with smaller steps
            if not course.has_moved and not self.clock.is_over():
                course.epoch -= 1
                self.epoch(course, optimizer)
                course.next_epoch()
        self._replay = None  # and its memory
        if not course.has_moved:
            raise FactorizationError(f"no step worked: {self.history.last_event()}")
        if self.keeper is not None:
            self.keeper.save(self, course, optimizer)
        try:
            return self.finish(course.theta, course.state, course.epoch)
        except FactorizationError as error:  # the last step went too far
            self.note(course.epoch, None, optimizer.size(), f"went back: {error}")
            return self.finish(*self.good, course.epoch)

    def infer(self) -> Trained:
        """No hyper-parameter to learn: sweeps to the fixed point."""
        theta, state = self.start()
        epochs = 0

        def note(sweeps: int, change: float) -> None:
            nonlocal epochs
            epochs = sweeps
            self.note(sweeps, None, 0.0, change=change)

        state = self.converge(self._prior(theta), state, self.plan.max_epochs, note)
        return self.finish(theta, state, epochs)

    def finish(self, theta: Tensor, state: Any, epochs: int) -> Trained:
        """The fixed point at the last θ, if the plan asks for it, and q(u) there."""
        theta = theta.detach()
        if self.clock.is_stopped() and self.history.last_event() != STOPPED:
            self.note(epochs, None, 0.0, STOPPED)
        prior = self._prior(theta)
        if self.plan.final_sweeps:
            state = self.converge(prior, state, self.plan.final_sweeps)
        state = self.inference.refresh(prior, self._state(theta, state), self._pass())
        posterior, log_z = self.method.posterior(prior, state), self.inference.log_z(prior, state, self._pass())
        if not math.isfinite(log_z):
            raise FactorizationError("log Z is not finite")
        return Trained(theta, state, posterior, log_z, self.history, epochs)

    def failure(self, error: Exception) -> TrainingError:
        """What to raise when nothing helps against `error`."""
        return TrainingError(
            f"training cannot go on ({error}). Try scaling='standard', a kernel of moderate lengthscale and variance, "
            "a larger noise, a smaller learning_rate or damping, or a smaller n_inducing."
        )

    def note(self, epoch: int, objective: float | None, rate: float, event: str | None = None, **more: float) -> None:
        """Write one record; the objective is None where it was not evaluated."""
        record = {"epoch": epoch, "objective": objective, "seconds": self.clock.seconds(), "rate": rate}
        self.history.add(**record, damping=self._damping(epoch) * self.scale, event=event, **more)

    def look(self, theta: Tensor, state: Any) -> None:
        """Show q(u) to the watch, if it is time; where it cannot be made, training goes on unseen."""
        if self._watch is None or not self._due or (seconds := self.clock.agreed()) < self._due[-1]:
            return
        while self._due and self._due[-1] <= seconds:
            self._due.pop()
        with self.clock.stopped():
            try:
                posterior = self._seen(theta, state)
            except FactorizationError:
                return
            self._watch.look(posterior, seconds)

    def _seen(self, theta: Tensor, state: Any) -> Posterior:
        prior, state = self._prior(theta), self._state(theta, state)
        if self.plan.batch_size is None:  # its steps need no sums of the sites, so they are not kept
            state = self.inference.refresh(prior, state, self._pass())
        return self.method.posterior(prior, state)

    def converge(
        self, prior: Prior, state: Any, max_sweeps: int, note: Callable[[int, float], None] | None = None
    ) -> Any:
        """Sweep at fixed hyper-parameters until q moves by less than the tolerance."""
        f = prior.conditional(self.all_rows().X) if self.plan.batch_size is None else None
        mixes = self.method.mixes and self.plan.batch_size is None
        workers = self.workers if self.method.keeps_rows else SINGLE_PROCESS  # other states are the same everywhere
        natural: Natural | None = None

        def sweep(state: Any) -> Any:
            nonlocal natural  # a mixed state has another product of sites than the sweep before it gave
            state, natural = self._sweep(prior, f, state, None if mixes else natural)
            return state

        return fixed_point(
            sweep, partial(relative_change, workers=workers), state, max_sweeps, self.plan.sweep_tol, mixes,
            self.clock.is_over, note, workers,
        )  # fmt: skip

    def evaluate(self, theta: Tensor, state: Any, batch: Batch, epoch: int) -> tuple[Any, Tensor, Tensor]:
        """Update the state at θ, then the objective there and its gradient (the paper's order of things)."""
        prior = self._prior(theta)
        if self.plan.updates == "outer":
            state = self.converge(prior, self._state(theta, state), self.plan.outer_sweeps)
        found = self.evaluate_unchecked(theta, state, batch, self._damping(epoch) * self.scale, prior)
        if not math.isfinite(float(found[1] + found[2].sum())):
            raise FactorizationError("the objective or its gradient is not finite")
        return found

    def evaluate_unchecked(
        self, theta: Tensor, state: Any, batch: Batch, damping: float | Tensor, prior: Prior | None = None
    ) -> tuple[Any, Tensor, Tensor]:
        """Do the same whether or not the results are finite; a state that has converged is not updated."""
        prior = self._prior(theta) if prior is None else prior
        f, state, natural = prior.conditional(batch.X), self._state(theta, state), None
        if self.plan.updates != "outer":
            state, natural = self.inference.update(prior, f, state, batch, damping)
        found = self.inference.objective(prior, f, state, batch, natural, self.plan.updates == "inner-exact")
        log_z, gradient = self.inference.gradient(self.model, prior, f, found)
        gradient = self.hyper_prior.add_gradient(theta, gradient)
        return state, log_z + self.hyper_prior.log_density(theta), gradient

    def epoch(self, course: Course, optimizer: Optimizer) -> float | None:
        """The rest of a pass over the rows; the mean objective of the steps that worked."""
        draws, ahead = self._draws(course), deque[Any]()
        n_steps = self._n_steps()
        while course.step < n_steps and not (course.worked and self.clock.is_over()):
            wanted = REPLAYS if self._may_replay(course, optimizer) else 1
            ahead.extend(islice(draws, max(wanted - len(ahead), 0)))
            try:
                if course.step == 0 and course.epoch > 0:
                    course.state = self._refreshed(course.theta, course.state)
                if self._may_replay(course, optimizer) and (steps := self._replayed(course, ahead, optimizer)):
                    for _ in range(steps):
                        ahead.popleft()
                else:
                    self._step(course, ahead[0], optimizer)
                    ahead.popleft()
            except FactorizationError as error:
                course.theta, course.state = self._go_back(course.epoch, optimizer, error)
                course.step += 1
                ahead.popleft()
                continue
            self.look(*self.good)
            if self.keeper is not None and self.keeper.is_due(self.workers):
                self.keeper.save(self, course, optimizer)
        return course.total / course.worked if course.worked else None

    def _step(self, course: Course, draw: Any, optimizer: Optimizer) -> None:
        theta = course.theta
        course.state, objective, gradient = self.evaluate(theta, course.state, self.data.batch(draw), course.epoch)
        self._has_worked(theta, course.state)
        course.theta = optimizer.step(theta, gradient, self._progress(course.epoch, course.step))
        course.count(1, float(objective))

    def _has_worked(self, theta: Tensor, state: Any) -> None:
        self.good, self.failures, self.scale = (theta, state), 0, 1.0

    def _may_replay(self, course: Course, optimizer: Optimizer) -> bool:
        """Whether many steps can be made at once: on a GPU of one's own, where nothing has failed just now."""
        is_recorded = course.theta.is_cuda and isinstance(optimizer, Adam) and self.plan.updates != "outer"
        return is_recorded and self.workers.size == 1 and not self.failures

    def _replayed(self, course: Course, draws: deque[Any], optimizer: Any) -> int:
        """How many of the next steps have been made."""
        if self._replay is None:
            self._replay = Replay(self.evaluate_unchecked, self.data, optimizer, Recorder())
        rates = [optimizer.rate(self._progress(course.epoch, course.step + i)) for i in range(len(draws))]
        damping = self._damping(course.epoch)
        reached = self._replay.run(course.theta, course.state, self.good[0], list(draws), rates, damping)
        if reached.steps:
            course.theta, course.state = reached.theta, reached.state
            self._has_worked(reached.before, reached.state)
            course.count(reached.steps, reached.total)
        return reached.steps

    def _go_back(self, epoch: int, optimizer: Optimizer, error: FactorizationError) -> tuple[Tensor, Any]:
        """The last θ and state that worked, and smaller steps from there.

        Running sums may only have drifted from their sites: then making them anew is cure enough, once an epoch and
        not twice in a row.
        """
        self.failures += 1
        may_have_drifted = self.method.keeps_rows and self.plan.batch_size is not None
        if not may_have_drifted or self.failures > 1 or epoch == self.renewed:
            self.scale *= 0.5
            optimizer.shrink()
        self.renewed = epoch
        self.note(epoch, None, optimizer.size(), f"went back: {error}")
        if self.failures >= MAX_FAILURES:
            raise self.failure(error) from error
        theta, state = self.good
        return theta, self._refreshed(theta, state)

    def _refreshed(self, theta: Tensor, state: Any) -> Any:
        """The state with its sums made anew; in training on all rows every update does that itself."""
        if self.plan.batch_size is None:
            return state
        return self.inference.refresh(self._prior(theta), state, self._pass())

    def all_rows(self) -> Batch:
        """The one batch of training on all rows."""
        return next(self.data.in_order(None))

    def _pass(self) -> Iterator[Batch]:
        """All rows once; where that changes nothing in between, in larger pieces than the steps take."""
        size, Z = self.plan.batch_size, self.model.values["Z"]
        if size is not None:
            size = max(size, PASS_ELEMENTS // (self.model.n_classes * Z.shape[-2]))
        return self.data.in_order(size)

    def _sweep(
        self, prior: Prior, f: Conditional | None, state: Any, natural: Natural | None
    ) -> tuple[Any, Natural | None]:
        """Update the sites of all rows once, batch by batch; `f` is given where there is one batch."""
        damping = self._damping(0) * self.scale
        for batch in self.data.in_order(self.plan.batch_size):
            of_batch = prior.conditional(batch.X) if f is None else f
            state, natural = self.inference.update(prior, of_batch, state, batch, damping, natural)
        return state, natural

    def _state(self, theta: Tensor, state: Any) -> Any:
        """The state, which is part of θ where q is learned with it."""
        return self.model.split(theta.detach()).get(Q, state)

    def _prior(self, theta: Tensor) -> Prior:
        return self.model.prior(theta)

    def _n_steps(self) -> int:
        return 1 if self.plan.batch_size is None else self.data.steps(self.plan.batch_size)

    def _draws(self, course: Course) -> Iterator[Any]:
        """The batches that are left of the epoch."""
        if self.plan.batch_size is None:
            return iter([self.all_rows()][course.step :])
        return self.data.draws(self.plan.batch_size, self.plan.seed, course.epoch, course.step)

    def _progress(self, epoch: int, step: int) -> float:
        return self.clock.progress(epoch + step / self._n_steps())

    def _damping(self, epoch: int) -> float:
        return max(self.plan.damping * self.plan.damping_decay**epoch, min(self.plan.damping_floor, self.plan.damping))
