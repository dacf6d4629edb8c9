"""What happened during training: one record an epoch, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cavity.runtime.distributed import SINGLE_PROCESS, Workers

Record = dict[str, Any]

WINDOW = 10
STOPPED = "stopped"


@runtime_checkable
class Stop(Protocol):
    """What asks training to end after the step at hand, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether it asks."""


@dataclass
class Clock:
    """How much of the training has passed, by epochs or by seconds, whichever is further on."""

    max_epochs: int
    max_seconds: float | None
    workers: Workers = SINGLE_PROCESS
    stop: Stop | None = None
    started: float = field(default_factory=time.perf_counter)

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def agreed(self) -> float:
        """The same on all workers, which ask at the same time."""
        return self.workers.largest(self.seconds())

    def progress(self, epochs: float) -> float:
        """From 0 to 1."""
        by_time = 0.0 if self.max_seconds is None else self.agreed() / self.max_seconds
        return max(epochs / max(self.max_epochs, 1), by_time)

    def is_over(self) -> bool:
        """Whether `max_seconds` have passed, or training is asked to stop."""
        return self.is_late() or self.is_stopped()

    def is_late(self) -> bool:
        """Whether `max_seconds` have passed."""
        return self.max_seconds is not None and self.agreed() >= self.max_seconds

    def is_stopped(self) -> bool:
        """Whether training is asked to stop, on any rank."""
        return self.stop is not None and self.workers.largest(float(self.stop.is_set())) > 0.0

    def go_on_from(self, seconds: float) -> None:
        """So many have passed already."""
        self.started = time.perf_counter() - seconds

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time that does not count."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.started += time.perf_counter() - began


class Watch(NamedTuple):
    """Looks at a model while it trains; the clock stands still meanwhile.

    With no hyper-parameter to learn there is nothing to look at.

    Attributes:
        at: seconds of training after which to look, each once.
        look: called with what there is by then and the seconds; for `GPClassifier.fit` a fitted classifier.

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


class History:
    """The records, handed to `report` as they come."""

    def __init__(self, report: Callable[[Record], None] | None = None) -> None:
        self.records: list[Record] = []
        self._report = report

    def add(self, **record: Any) -> None:
        """Keep one record."""
        self.records.append(record)
        if self._report is not None:
            self._report(record)

    def note(self, event: str) -> None:
        """Something went wrong after the last record."""
        last = self.records[-1] if self.records else {"epoch": 0, "seconds": 0.0}
        self.add(**(last | {"objective": None, "event": event}))

    def last_event(self) -> str | None:
        """What went wrong last, if anything did."""
        return next((record["event"] for record in reversed(self.records) if record["event"] is not None), None)

    def has_settled(self, tol: float) -> bool:
        """Whether the objective rose by less than `tol` an epoch, comparing the last ten epochs with those before."""
        values = [record["objective"] for record in self.records if record["objective"] is not None]
        if len(values) < 2 * WINDOW:
            return False
        rise = sum(values[-WINDOW:]) - sum(values[-2 * WINDOW : -WINDOW])
        return abs(rise) < tol * WINDOW * WINDOW
