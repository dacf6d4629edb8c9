"""Progress of long work, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

Record = dict[str, Any]

NOW_AND_THEN = 30.0  # seconds between lines about progress, at most


@contextmanager
def progress(
    title: str, max_epochs: int, verbose: int, describe: Callable[[Record], str]
) -> Iterator[Callable[[Record], None] | None]:
    """On a terminal a bar that moves with the records, elsewhere a line now and then; nothing where `verbose` is 0.

    `describe` returns the event of a record in words.
    """
    if not verbose:
        yield None
        return
    shown = (_Bar if is_live() else _Lines)(title, max_epochs, verbose, describe)
    try:
        yield shown.report
    finally:
        shown.close()


def is_live() -> bool:
    """Whether a line on stderr can be written over."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class _Bar:
    """A bar with the time left."""

    def __init__(self, title: str, max_epochs: int, verbose: int, describe: Callable[[Record], str]) -> None:
        self._bar, self._verbose, self._describe = tqdm(total=max_epochs, desc=title, unit="epoch"), verbose, describe
        self._started = time.monotonic()

    def report(self, record: Record) -> None:
        if not self._bar.n:
            self._bar.initial = record["epoch"] - 1  # what was done before a checkpoint tells nothing of the pace
        if self._verbose > 1:
            self._bar.write(_line(record), file=sys.stderr)
        elif record["event"] is not None:
            self._bar.write(_event(record, self._describe, time.monotonic() - self._started), file=sys.stderr)
        self._bar.update(record["epoch"] - self._bar.n)
        if record["objective"] is not None:
            self._bar.set_postfix(objective=f"{record['objective']:.1f}", refresh=False)

    def close(self) -> None:
        self._bar.total = self._bar.n  # it may settle before its last epoch
        self._bar.refresh()
        self._bar.close()


class _Lines:
    """A line for each tenth of the epochs, and where these take long for each half minute; none is written over."""

    def __init__(self, title: str, max_epochs: int, verbose: int, describe: Callable[[Record], str]) -> None:
        self._title, self._max, self._verbose, self._describe = title, max_epochs, verbose, describe
        self._started = self._last = time.monotonic()
        self._first: int | None = None  # epoch
        self._tenth, self._unsaid = 0, ""

    def report(self, record: Record) -> None:
        now, epoch = time.monotonic(), record["epoch"]
        self._first = epoch - 1 if self._first is None else self._first
        if self._verbose > 1 or record["event"] is not None:
            self._say(_line(record) if self._verbose > 1 else _event(record, self._describe, now - self._started), now)
            return
        self._unsaid = f"{self._title}: {self._where(record, now - self._started)}"
        tenth = 10 * epoch // max(self._max, 1)
        if tenth > self._tenth or now - self._last >= NOW_AND_THEN:
            self._tenth = tenth
            self._say(self._unsaid, now)

    def close(self) -> None:
        if self._unsaid:  # it may settle before its last epoch
            self._say(self._unsaid, time.monotonic())

    def _where(self, record: Record, seconds: float) -> str:
        epoch, first = record["epoch"], self._first or 0
        left = seconds / max(epoch - first, 1) * max(self._max - epoch, 0)
        objective = "" if record["objective"] is None else f", objective={record['objective']:.1f}"
        return f"epoch {epoch} of {self._max}{objective}, {clock(seconds)} gone, {clock(left)} left at most"

    def _say(self, text: str, now: float) -> None:
        print(text, file=sys.stderr, flush=True)
        self._last, self._unsaid = now, ""


def _event(record: Record, describe: Callable[[Record], str], seconds: float) -> str:
    """What happened; of further fits how long they may take, when this one took so many seconds."""
    folds = record.get("folds")
    longer = f", about {clock((folds - 1) * seconds)} more" if folds else ""  # each on a fold less than all rows
    return f"epoch {record['epoch']}: {describe(record)}{longer}"


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def _line(record: Record) -> str:
    return "  ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items())
