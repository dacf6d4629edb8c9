"""The training loop of every method: batch → update → objective → optimizer.

A step fails if a matrix cannot be factorized or the gradient is not finite. Training then retries from the last good θ.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from cavity.data.training_data import Data
from cavity.gp.prior import Prior
from cavity.inference import Batch, Method, Terms
from cavity.numerics.linalg import FactorizationError, JitterLog
from cavity.runtime.distributed import SINGLE_PROCESS, Workers
from cavity.training.checkpoint import Checkpointable, Checkpointer
from cavity.training.cuda_graphs import Recorder, Replay, settled
from cavity.training.fixed_point import fixed_point, leaves, relative_change
from cavity.training.history import Clock, Event, History, Record, Stop, Watch, describe
from cavity.training.optimizers import Adam, Optimizer
from cavity.training.parameters import HyperPrior, ParametricPrior, Q
from cavity.training.plan import FINAL_SWEEPS, Plan, Trained, TrainingError
from cavity.training.step import Inference, rows_of

MAX_FAILURES = 25  # in a row, before training is given up
EXTRA_EPOCHS = 5  # if no step of the planned epochs has worked
PASS_ELEMENTS = 1_000_000  # elements of a block, in a pass that only computes sums
PASS_COST = 0.2  # time of a sweep or another pass without a gradient, relative to an epoch, about
REPLAYS = 32  # recorded steps between two queries of the GPU
LEAST_DAMPING = 0.01  # of sweeps that go in a circle
LEAST_TOL = 1e-10  # the change of the last sweep that counts as converged if tol=0 asks for all sweeps
OPTIMIZER = "optimiser."  # prefix in checkpoints, spelled as in version 0.1.0


@dataclass
class TrainingState:
    """θ, the state of the method, and the position in the run.

    `worked` counts the steps of the current epoch that did not fail; `total` is the sum of their objectives.
    """

    theta: Tensor
    state: Any
    epoch: int = 0
    step: int = 0
    worked: int = 0
    total: float = 0.0
    has_moved: bool = False
    is_done: bool = False
    is_cut: bool = False  # by `max_seconds`

    def count(self, steps: int, total: float) -> None:
        """Count steps that worked, with the sum of their objectives."""
        self.step, self.worked, self.total = self.step + steps, self.worked + steps, self.total + total
        self.has_moved = True

    def next_epoch(self) -> None:
        """Move to the start of the next epoch."""
        self.epoch, self.step, self.worked, self.total = self.epoch + 1, 0, 0, 0.0


class Trainer:
    """One training run; `train` or `infer` returns its result.

    Args:
        model, method, data, plan, hyper_prior, workers: what to train, on which rows, and how.
        report: called with each new record of the history.
        watch: called with q(u) at given times.
        checkpointer: saves checkpoints, and resumes from the last one.
        stop: asks training to end after the current step.
        advance: called with the epochs made so far, and whether these include final passes, to show progress.
    """

    def __init__(
        self,
        model: ParametricPrior,
        method: Method,
        data: Data,
        plan: Plan,
        hyper_prior: HyperPrior,
        workers: Workers = SINGLE_PROCESS,
        report: Callable[[Record], None] | None = None,
        watch: Watch | None = None,
        checkpointer: Checkpointer | None = None,
        stop: Stop | None = None,
        advance: Callable[[float, bool], None] | None = None,
    ) -> None:
        self.model, self.method, self.data, self.plan, self.hyper_prior = model, method, data, plan, hyper_prior
        self.inference, self.workers = Inference(method, workers), workers
        self.history = History(report)
        self.clock = Clock(plan.max_epochs, plan.max_seconds, workers, stop)
        self.last_good: tuple[Tensor, Any]  # the last θ and state that worked
        self.failures, self.failed_epoch, self.scale = 0, -1, 1.0  # failures in a row; `scale` multiplies the damping
        self._checkpointer, self._watch = checkpointer, watch
        self._watch_times = sorted(watch.at, reverse=True) if watch else []
        self._rows_weight = float(data.own_weight.sum())
        self._replay: Replay | None = None
        self.jitter = JitterLog()
        self._advance = advance
        self._passes: float | None = None  # time of epochs and final passes so far, in epochs

    def start(self) -> tuple[Tensor, Any]:
        """Return the initial θ and a state without data, and start the clock."""
        theta = self.model.start()

        def empty() -> Any:
            return self.method.init(self.model.prior(theta), self.data.own_weight, len(self.data))

        if theta.is_cuda:  # a step that is thrown away loads CUDA's libraries, which takes seconds
            with contextlib.suppress(FactorizationError):
                batch = next(iter(self.data.in_order(self.plan.batch_size)))
                self.evaluate_unchecked(theta, empty(), batch, self.plan.damping)
            torch.cuda.synchronize()
        self.last_good = theta, empty()
        self.clock.restart(0.0)
        return self.last_good

    def train(self, optimizer: Optimizer) -> Trained:
        """Maximize the objective until it settles, or the epochs or seconds are used up, at least for an epoch."""
        run = self.resume(TrainingState(*self.start()), optimizer)
        while not run.is_done:
            objective = self.epoch(run, optimizer)
            if self.clock.is_stopped():
                break  # a checkpoint resumes in the middle of the epoch
            run.next_epoch()
            if objective is not None:
                self.note(run.epoch, objective, optimizer.learning_rate())
            has_settled = self.history.has_settled(self.plan.tol * self._rows_weight)
            is_complete = has_settled or run.epoch >= self.plan.max_epochs
            run.is_cut = not is_complete and run.epoch >= self.plan.min_epochs and self.clock.is_out_of_time()
            run.is_done = is_complete or run.is_cut
        for _ in range(EXTRA_EPOCHS):
            if not run.has_moved and not self.clock.is_stopped():
                run.epoch -= 1
                self.epoch(run, optimizer)
                run.next_epoch()
        self._replay = None  # frees its memory
        if not run.has_moved:
            raise FactorizationError(f"no step worked: {describe(self.history.records[-1])}")
        self.save_checkpoint(run, optimizer)
        if run.is_cut:
            self.note_time_limit(run.epoch)
        try:
            return self.finish(run.theta, run.state, run.epoch)
        except FactorizationError as error:  # the last step went too far
            self.note(run.epoch, None, optimizer.learning_rate(), Event.STEP_REJECTED, reason=str(error))
            return self.finish(*self.last_good, run.epoch)

    def epoch(self, run: TrainingState, optimizer: Optimizer) -> float | None:
        """Make the remaining steps of the current epoch; return the mean objective of the steps that worked."""
        size, n_steps = self.plan.batch_size, self._n_steps()
        if size is None:
            draws: Iterator[Any] = iter([self.all_rows()][run.step :])
        else:
            draws = self.data.draws(size, self.plan.seed, run.epoch, run.step)
        can_record = self.workers.size == 1 and self.plan.updates != "outer" and isinstance(optimizer, Adam)
        ahead: list[Any] = []  # the draws of the next steps
        is_over = self.clock.is_over if run.epoch >= self.plan.min_epochs else self.clock.is_stopped
        while run.step < n_steps and not (run.worked and is_over()):
            first, can_replay = run.step, can_record and run.theta.is_cuda and not self.failures
            ahead.extend(islice(draws, max((REPLAYS if can_replay else 1) - len(ahead), 0)))
            try:
                if run.step == 0 and run.epoch > 0:
                    run.state = self._refreshed(run.theta, run.state)
                if not (can_replay and self._replay_steps(run, ahead, optimizer)):
                    theta, batch = run.theta, self.data.batch(ahead[0])
                    run.state, objective, gradient = self.evaluate(theta, run.state, batch, run.epoch)
                    self.accept(theta, run.state)
                    run.theta = optimizer.step(theta, gradient, self._progress(run.epoch, run.step))
                    run.count(1, float(objective))
            except FactorizationError as error:
                run.theta, run.state = self._recover(run.epoch, optimizer, error)
                run.step += 1
            else:
                self.failures, self.scale = 0, 1.0
                optimizer.recover(run.step - first)
                self.show(*self.last_good)
                self.save_checkpoint(run, optimizer, only_if_due=True)
            del ahead[: run.step - first]
            if self._advance is not None and n_steps > 1:
                self._advance(run.epoch + run.step / n_steps, False)
        return run.total / run.worked if run.worked else None

    def evaluate(self, theta: Tensor, state: Any, batch: Batch, epoch: int) -> tuple[Any, Tensor, Tensor]:
        """Update the state at θ, then return it with the objective and its gradient (the order of the paper)."""
        prior = self.model.prior(theta)
        if self.plan.updates == "outer":
            state = self.converge(prior, self._state(theta, state), self.plan.outer_sweeps)
        found = self.evaluate_unchecked(theta, state, batch, self._damping(epoch) * self.scale, prior)
        if not math.isfinite(float(found[1] + found[2].sum())):
            raise FactorizationError("the objective or its gradient is not finite")
        return found

    def evaluate_unchecked(
        self, theta: Tensor, state: Any, batch: Batch, damping: float | Tensor, prior: Prior | None = None
    ) -> tuple[Any, Tensor, Tensor]:
        """Do the same without checking for finite values; do not update a state that has converged."""
        prior = self.model.prior(theta) if prior is None else prior
        f, state, natural = rows_of(prior, batch, is_step=True), self._state(theta, state), None
        if self.plan.updates != "outer":
            state, natural = self.inference.update(prior, f, state, batch, damping, None)
        terms = Terms(exact=self.plan.updates == "inner-exact")
        found = self.inference.objectives(prior, f, state, batch, natural, terms)
        log_z, gradient = self.inference.gradient(self.model, prior, found)
        gradient = self.hyper_prior.add_gradient(theta, gradient)
        return state, log_z + self.hyper_prior.log_density(theta), gradient

    def _replay_steps(self, run: TrainingState, draws: list[Any], optimizer: Any) -> int:
        """Make recorded steps on a GPU on these draws; return how many worked."""
        if self._replay is None:
            self._replay = Replay(self.evaluate_unchecked, self.data, optimizer, Recorder())
        rates = [optimizer.rate(self._progress(run.epoch, run.step + i)) for i in range(len(draws))]
        found = self._replay.run(run.theta, run.state, self.last_good[0], draws, rates, self._damping(run.epoch))
        if found.steps:
            run.theta, run.state = found.theta, found.state
            self.accept(found.before, found.state)
            run.count(found.steps, found.total)
        return found.steps

    def accept(self, theta: Tensor, state: Any) -> None:
        """Remember θ and the state as the last that worked."""
        self.last_good = theta, state

    def _recover(self, epoch: int, optimizer: Optimizer, error: FactorizationError) -> tuple[Tensor, Any]:
        """Return the last θ and state that worked; the next steps are smaller.

        In mini-batches, running sums may only have drifted from their sites. Then it is enough to recompute them: the
        steps stay as large after the first failure of an epoch, unless another one follows at once.
        """
        self.failures += 1
        may_have_drifted = self.method.keeps_rows and self.plan.batch_size is not None
        if not may_have_drifted or self.failures > 1 or epoch == self.failed_epoch:
            self.halve_damping()
            optimizer.shrink()
        self.failed_epoch = epoch
        self.note(epoch, None, optimizer.learning_rate(), Event.STEP_REJECTED, reason=str(error))
        if self.failures >= MAX_FAILURES:
            raise self.failure(error) from error
        theta, state = self.last_good
        return theta, self._refreshed(theta, state)

    def halve_damping(self) -> None:
        """Halve the damping until the next step that works."""
        self.scale *= 0.5

    def failure(self, error: Exception) -> TrainingError:
        """Return the exception to raise if training cannot recover from `error`."""
        return TrainingError(
            f"Training failed: {error}. Try scaling='standard', a kernel of moderate lengthscale and variance, "
            "a larger noise, a smaller learning_rate or damping, or a smaller n_inducing."
        )

    def infer(self) -> Trained:
        """Sweep to the fixed point, if no hyper-parameter is learned."""
        theta, state = self.start()
        prior, n = self.model.prior(theta), self.plan.max_epochs

        def note(sweeps: int, change: float) -> None:
            self.note(sweeps, None, 0.0, change=change)

        state = self.converge(prior, state, n, note, FINAL_SWEEPS)
        last, tol = self.history.records[-1], self.plan.sweep_tol
        if not last["change"] < (tol or LEAST_TOL) and not self.clock.is_stopped():
            if last["epoch"] < n:
                self.note_time_limit(last["epoch"])
            fields = {"sweeps": last["epoch"], "change": last["change"], "tol": tol}
            self.note(last["epoch"], None, 0.0, Event.NOT_CONVERGED, method=type(self.method).__name__, **fields)
        return self.finish(theta, state, last["epoch"])

    def finish(self, theta: Tensor, state: Any, epochs: int) -> Trained:
        """Make the final sweeps of the plan, and compute q(u) and log Z at the last θ."""
        theta = theta.detach()
        if self.clock.is_stopped() and self.history.last_event() != Event.STOPPED:
            self.note(epochs, None, 0.0, Event.STOPPED)
        prior, self._passes = self.model.prior(theta), float(epochs)
        if self.plan.final_sweeps:
            state = self.converge(prior, state, self.plan.final_sweeps, min_sweeps=FINAL_SWEEPS - epochs)
        state = self.inference.refresh(prior, self._state(theta, state), self._pass())
        posterior = self.method.posterior(prior, state)
        log_z, left_out, n_factors = self.inference.log_z(prior, state, self._pass())
        if not math.isfinite(log_z):
            raise FactorizationError("log Z is not finite")
        if left_out:
            self.note(epochs, None, 0.0, Event.FACTORS_LEFT_OUT, factors=left_out, of=n_factors)
        if self.jitter.matrices:
            self.note(epochs, None, 0.0)
        return Trained(theta, state, posterior, log_z, self.history, epochs)

    def converge(
        self,
        prior: Prior,
        state: Any,
        max_sweeps: int,
        note: Callable[[int, float], None] | None = None,
        min_sweeps: int = 1,
    ) -> Any:
        """Sweep at fixed hyper-parameters until q changes by less than the tolerance, or time is up."""
        f = rows_of(prior, self.all_rows()) if self.plan.batch_size is None else None
        mixes = self.method.mixes and self.plan.batch_size is None
        workers = self.workers if self.method.keeps_rows else SINGLE_PROCESS  # other states are the same everywhere
        damping, natural = self._damping(0) * self.scale, None

        def relax() -> None:
            nonlocal damping
            damping = max(0.5 * damping, min(LEAST_DAMPING, damping))

        def sweep(state: Any) -> Any:
            nonlocal natural
            if mixes:
                natural = None  # a mixed state has another product of sites than the sweep before it gave
            for batch in self.data.in_order(self.plan.batch_size):
                of_batch = rows_of(prior, batch) if f is None else f
                state, natural = self.inference.update(prior, of_batch, state, batch, damping, natural)
            self._count_pass(1.0)
            return state

        change, tol = partial(relative_change, workers=workers), self.plan.sweep_tol
        is_over = self.clock.is_over
        return fixed_point(sweep, change, state, max_sweeps, tol, mixes, is_over, note, workers, relax, min_sweeps)

    def _refreshed(self, theta: Tensor, state: Any) -> Any:
        """Return the state with its sums recomputed; in full-batch training every update does that itself."""
        if self.plan.batch_size is None:
            return state
        return self.inference.refresh(self.model.prior(theta), state, self._pass())

    def all_rows(self) -> Batch:
        """Return the only batch of full-batch training."""
        return next(self.data.in_order(None))

    def _pass(self) -> Iterator[Batch]:
        """Iterate over all rows once, in larger batches than the steps: the state does not change in between."""
        size, Z = self.plan.batch_size, self.model.values["Z"]
        if size is not None:
            size = max(size, PASS_ELEMENTS // (self.model.n_classes * Z.shape[-2]))
        steps = 1 if size is None else self.data.steps(size)
        for batch in self.data.in_order(size):
            yield batch
            self._count_pass(1.0 / steps)

    def _count_pass(self, part: float) -> None:
        """Show that a part of a final pass is done."""
        if self._passes is not None:
            self._passes += PASS_COST * part
            if self._advance is not None:
                self._advance(self._passes, True)

    def _state(self, theta: Tensor, state: Any) -> Any:
        """Return the state, which is a part of θ if q is learned by the optimizer."""
        return self.model.split(theta.detach()).get(Q, state)

    def _n_steps(self) -> int:
        return 1 if self.plan.batch_size is None else self.data.steps(self.plan.batch_size)

    def _progress(self, epoch: int, step: int) -> float:
        return self.clock.progress(epoch + step / self._n_steps())

    def _damping(self, epoch: int) -> float:
        return max(self.plan.damping * self.plan.damping_decay**epoch, min(self.plan.damping_floor, self.plan.damping))

    def note(self, epoch: int, objective: float | None, rate: float, event: Event | None = None, **fields: Any) -> None:
        """Add a record to the history; the objective is None if it was not evaluated."""
        if self._advance is not None and event is None:
            self._advance(epoch, False)
        if event is None and self.jitter.matrices:
            event, fields = Event.JITTER_ADDED, fields | self.jitter.take()
        record = {"epoch": epoch, "objective": objective, "seconds": self.clock.seconds(), "rate": rate}
        self.history.add(**record, damping=self._damping(epoch) * self.scale, event=event, **fields)

    def note_time_limit(self, epoch: int) -> None:
        """Record that `max_seconds` has cut training short."""
        self.note(epoch, None, 0.0, Event.TIME_LIMIT, max_epochs=self.plan.max_epochs)

    def show(self, theta: Tensor, state: Any) -> None:
        """Call the watch with q(u) if it is time; skip it if q(u) cannot be computed."""
        times = self._watch_times
        if self._watch is None or not times or (seconds := self.clock.synchronized_seconds()) < times[-1]:
            return
        while times and times[-1] <= seconds:
            times.pop()
        with self.clock.paused():
            try:
                prior, state = self.model.prior(theta), self._state(theta, state)
                if self.plan.batch_size is None:  # its steps need no sums of the sites, so they are not kept
                    state = self.inference.refresh(prior, state, self._pass())
                posterior = self.method.posterior(prior, state)
            except FactorizationError:
                return
            self._watch.look(posterior, seconds)

    def save_checkpoint(self, run: TrainingState, optimizer: Checkpointable, only_if_due: bool = False) -> None:
        """Save everything that the next step depends on, if there is a checkpointer.

        The names are those of version 0.1.0, so that its checkpoints can be resumed.
        """
        if self._checkpointer is None or (only_if_due and not self._checkpointer.is_due()):
            return
        tensors = {"theta": run.theta, "good": self.last_good[0]}
        tensors |= {f"state.{i}": x for i, x in enumerate(leaves(settled(run.state)))}
        tensors |= {OPTIMIZER + name: x for name, x in optimizer.state_dict().items()}
        if self.method.keeps_rows:
            tensors["rows"] = self.data.row_ids
        values = {
            "course": {name: value for name, value in vars(run).items() if name not in ("theta", "state")},
            "trainer": {"failures": self.failures, "scale": self.scale, "renewed": self.failed_epoch},
            "seconds": self.clock.seconds(),
            "history": self.history.records,
        }
        self._checkpointer.save(tensors, values)

    def resume(self, run: TrainingState, optimizer: Checkpointable) -> TrainingState:
        """Return the state of the last checkpoint, in the tensors of the initial state; `run` if there is none."""
        if self._checkpointer is None:
            return run
        found = self._checkpointer.resume(self.data.row_ids if self.method.keeps_rows else None)
        if found is None:
            return run
        tensors, values = {name: x.to(run.theta.device) for name, x in found[0].items()}, found[1]
        for i, x in enumerate(leaves(run.state)):
            x.copy_(tensors[f"state.{i}"])
        saved = {name.removeprefix(OPTIMIZER): x for name, x in tensors.items() if name.startswith(OPTIMIZER)}
        optimizer.load_state_dict(saved)
        trainer = values["trainer"]
        self.failures, self.scale, self.failed_epoch = trainer["failures"], trainer["scale"], trainer["renewed"]
        self.last_good = tensors["good"], run.state
        self.clock.restart(values["seconds"])
        self.history.records[:] = values["history"]
        for reason in values["skipped"]:
            self.history.note(Event.CHECKPOINT_SKIPPED, reason=reason)
        return TrainingState(tensors["theta"], run.state, **values["course"])
