"""The training history: records, events, the clock and the stopping rule."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cavity.runtime.distributed import SINGLE_PROCESS, Workers

Record = dict[str, Any]  # "epoch", "objective", "seconds", "rate", "damping", "event", and the fields of the event

WINDOW = 10  # epochs that are averaged to decide whether the objective has settled


class Event(StrEnum):
    """What can happen during training besides an ordinary epoch, and a sentence with the fields of its record."""

    sentence: str

    STEP_REJECTED = "step_rejected", "step rejected: {reason}"
    EVALUATION_REJECTED = "evaluation_rejected", "evaluation rejected: {reason}"  # in a line search of L-BFGS
    STOPPED = "stopped", "stopped"
    TIME_LIMIT = "time_limit", "cut short by max_seconds: {epoch} of {max_epochs} epochs"
    DTYPE_TOO_COARSE = "dtype_too_coarse", "{dtype} is too coarse for these rows: distances are computed in float64"
    CONSTANT_FEATURES = "constant_features", "constant in all rows and without effect: {features}"
    CALIBRATION_STARTED = "calibration_started", "calibration by {folds} more fits"
    CALIBRATION_FAILED = "calibration_failed", "not calibrated: {reason}"
    CALIBRATION_STOPPED = "calibration_stopped", "not calibrated: stopped"
    CANDIDATE = (
        "candidate",
        "scaling={scaling!r}, {kernel}: leave-one-out NLL {nll:.4f} on {rows} rows",
    )
    SHRUNK = (
        "shrunk",
        "no better than class frequencies on held-out rows: probabilities shrunk {weight:.0%} towards them",
    )
    HYPERPARAMETERS_KEPT = "hyperparameters_kept", "hyper-parameters not updated in {batches} batches (last: {reason})"
    NOT_CONVERGED = (
        "not_converged",
        "{method} has not converged: the last of {sweeps} sweeps changed q by {change:.1e}, more than tol={tol:.1e}. "
        "Raise max_epochs or tol, or lower damping",
    )
    FACTORS_LEFT_OUT = (
        "factors_left_out",
        "{factors} of {of} factors are left out of log Z, because their cavities are improper. Lower damping, or use "
        "more noise",
    )
    JITTER_ADDED = (
        "jitter_added",
        "{matrices} covariance matrices were nearly singular: up to {jitter:.0e} of their mean diagonal was added. Use "
        "fewer inducing points or more noise",
    )
    ROWS_LEFT_OUT = "rows_left_out", "{rows} rows not learned from: {reason}"
    CHECKPOINT_SKIPPED = "checkpoint_skipped", "damaged checkpoint skipped: {reason}"

    def __new__(cls, value: str, sentence: str = "") -> Event:
        event = str.__new__(cls, value)
        event._value_, event.sentence = value, sentence
        return event


NUMERICAL_EVENTS = (Event.NOT_CONVERGED, Event.FACTORS_LEFT_OUT, Event.JITTER_ADDED)  # of which the user is warned


def describe(record: Record) -> str:
    """Describe the event of a record in words.

    Returns an unknown event unchanged: model files of version 0.1.0 hold sentences.

    >>> describe({"epoch": 3, "event": Event.CALIBRATION_STARTED, "folds": 5})
    'calibration by 5 more fits'
    >>> describe({"epoch": 3, "event": "went back: log Z is not finite"})
    'went back: log Z is not finite'
    """
    event: Any = record.get("event")
    try:
        return Event(event).sentence.format_map(defaultdict(lambda: "unknown", record))
    except ValueError:
        return "" if event is None else str(event)


class History:
    """The records of a training run.

    Args:
        report: called with each new record.
    """

    def __init__(self, report: Callable[[Record], None] | None = None) -> None:
        self.records: list[Record] = []
        self._report = report

    def add(self, **record: Any) -> None:
        """Append a record and report it."""
        self.records.append(record)
        if self._report is not None:
            self._report(record)

    def note(self, event: Event, **fields: Any) -> None:
        """Append a record of an event that happened after the last record, at the same epoch and time."""
        last = self.records[-1] if self.records else {"epoch": 0, "seconds": 0.0}
        kept = {name: last[name] for name in ("epoch", "seconds", "rate", "damping") if name in last}
        self.add(**kept, objective=None, event=event, **fields)

    def last_event(self) -> str | None:
        """Return the last event, or None."""
        return next((record["event"] for record in reversed(self.records) if record["event"] is not None), None)

    def has_settled(self, tol: float) -> bool:
        """Return whether the mean objective of the last ten epochs rose by less than `tol` per epoch."""
        values = [float(record["objective"]) for record in self.records if record["objective"] is not None]
        if len(values) < 2 * WINDOW:
            return False
        rise = sum(values[-WINDOW:]) - sum(values[-2 * WINDOW : -WINDOW])
        return abs(rise) < tol * WINDOW * WINDOW


@runtime_checkable
class Stop(Protocol):
    """Asks training to end after the current step, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Return whether training must end."""


@dataclass
class Clock:
    """Elapsed time and progress of a training run, limited by epochs or by seconds, whichever is reached first."""

    max_epochs: int
    max_seconds: float | None
    workers: Workers = SINGLE_PROCESS
    stop: Stop | None = None
    started: float = field(default_factory=time.perf_counter)

    def seconds(self) -> float:
        """Return the elapsed seconds of this process."""
        return time.perf_counter() - self.started

    def synchronized_seconds(self) -> float:
        """Return the elapsed seconds of the slowest worker; all workers must call it together."""
        return self.workers.max_value(self.seconds())

    def progress(self, epochs: float) -> float:
        """Return the completed part of training, from 0 to 1, after this number of epochs."""
        by_time = 0.0 if self.max_seconds is None else self.synchronized_seconds() / self.max_seconds
        return max(epochs / max(self.max_epochs, 1), by_time)

    def is_over(self) -> bool:
        """Return whether `max_seconds` have passed or training was asked to stop."""
        return self.is_out_of_time() or self.is_stopped()

    def is_out_of_time(self) -> bool:
        """Return whether `max_seconds` have passed."""
        return self.max_seconds is not None and self.synchronized_seconds() >= self.max_seconds

    def is_stopped(self) -> bool:
        """Return whether any worker was asked to stop."""
        return self.stop is not None and self.workers.max_value(float(self.stop.is_set())) > 0.0

    def restart(self, elapsed: float) -> None:
        """Restart with this many seconds already elapsed, as after a checkpoint."""
        self.started = time.perf_counter() - elapsed

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time spent in this context."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.started += time.perf_counter() - began


class Watch(NamedTuple):
    """Calls a function with the model at given times of training; the clock is paused meanwhile.

    If no hyper-parameter is learned, the function is never called.

    Attributes:
        at: seconds of training after which to call `look`, once each.
        look: called with the current model and the elapsed seconds; from `GPClassifier.fit`, the model is a fitted
            classifier.

    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> errors = []
    >>> watch = Watch([0.01], lambda model, seconds: errors.append(1 - model.score(X, y)))
    >>> model = GPClassifier(max_epochs=50, random_state=0).fit(X, y, watch=watch)
    >>> len(errors)
    1
    """

    at: Sequence[float]
    look: Callable[[Any, float], None]
