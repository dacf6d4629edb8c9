"""What happened during training: one record an epoch, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]

WINDOW = 10


@dataclass
class Clock:
    """How much of the training has passed, by epochs or by seconds, whichever is further on."""

    max_epochs: int
    max_seconds: float | None
    started: float = field(default_factory=time.perf_counter)

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def progress(self, epochs: float) -> float:
        """From 0 to 1."""
        by_time = 0.0 if self.max_seconds is None else self.seconds() / self.max_seconds
        return max(epochs / max(self.max_epochs, 1), by_time)

    def is_over(self) -> bool:
        """Whether `max_seconds` have passed."""
        return self.max_seconds is not None and self.seconds() >= self.max_seconds


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
