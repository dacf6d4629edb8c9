"""Progress of training on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SECONDS_BETWEEN_LINES = 30.0  # at most, where output is not a terminal

TrainingRecord = dict[str, Any]
Describe = Callable[[TrainingRecord], str]


@contextmanager
def show_progress(
    title: str, max_epochs: int, verbose: int, describe: Describe
) -> Iterator[Callable[[TrainingRecord], None] | None]:
    """Yield a function that displays the records of training; None if `verbose` is 0.

    Args:
        title: what is trained, such as "cavity ep".
        max_epochs: total of the bar.
        verbose: 1 shows progress and events, 2 prints every record.
        describe: makes a sentence of the event of a record.
    """
    if not verbose:
        yield None
        return
    display = (_Bar if is_live() else _Lines)(title, max_epochs, verbose, describe)
    try:
        yield display.add
    finally:
        display.close()


def is_live() -> bool:
    """Return whether stderr can overwrite a line: a terminal or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def clock(seconds: float) -> str:
    """Format seconds as m:ss or h:mm:ss.

    >>> clock(72), clock(3723)
    ('1:12', '1:02:03')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


class _Display:
    """Common to both displays: the pace, and the text of a record."""

    def __init__(self, title: str, max_epochs: int, verbose: int, describe: Describe) -> None:
        self._title, self._max_epochs, self._verbose, self._describe = title, max_epochs, verbose, describe
        self._started = time.monotonic()
        self._first_epoch: int | None = (
            None  # a resumed fit does not start at 0: what came before tells nothing of pace
        )

    def add(self, record: TrainingRecord) -> None:
        if self._first_epoch is None:
            self._first_epoch = record["epoch"] - 1
        if self._verbose > 1:
            self._write("  ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items()))
        elif record["event"] is not None:
            self._write(f"epoch {record['epoch']}: {self._describe(record)}{self._extra_time(record)}")
        self._advance(record)

    def _extra_time(self, record: TrainingRecord) -> str:
        """How long further fits may take; each has one fold of the rows less than the fit so far."""
        if "folds" not in record:
            return ""
        return f", about {clock((record['folds'] - 1) * (time.monotonic() - self._started))} more"

    def _write(self, text: str) -> None:
        raise NotImplementedError

    def _advance(self, record: TrainingRecord) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class _Bar(_Display):
    """A progress bar with the remaining time."""

    def __init__(self, title: str, max_epochs: int, verbose: int, describe: Describe) -> None:
        from tqdm import tqdm

        super().__init__(title, max_epochs, verbose, describe)
        self._bar = tqdm(total=max_epochs, desc=title, unit="epoch")

    def _write(self, text: str) -> None:
        self._bar.write(text, file=sys.stderr)

    def _advance(self, record: TrainingRecord) -> None:
        if not self._bar.n:
            self._bar.initial = self._first_epoch
        self._bar.update(record["epoch"] - self._bar.n)
        if record["objective"] is not None:
            self._bar.set_postfix(objective=f"{record['objective']:.1f}", refresh=False)

    def close(self) -> None:
        self._bar.total = self._bar.n  # training may converge before its last epoch
        self._bar.refresh()
        self._bar.close()


class _Lines(_Display):
    """A line for each tenth of the epochs, or every half minute where these take longer."""

    def __init__(self, title: str, max_epochs: int, verbose: int, describe: Describe) -> None:
        super().__init__(title, max_epochs, verbose, describe)
        self._last_line, self._tenth, self._pending = self._started, 0, ""

    def _write(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        self._last_line, self._pending = time.monotonic(), ""

    def _advance(self, record: TrainingRecord) -> None:
        if self._verbose > 1 or record["event"] is not None:
            return
        self._pending = f"{self._title}: {self._status(record)}"
        tenth = 10 * record["epoch"] // max(self._max_epochs, 1)
        if tenth > self._tenth or time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._tenth = tenth
            self._write(self._pending)

    def close(self) -> None:
        if self._pending:  # training may converge before its last epoch
            self._write(self._pending)

    def _status(self, record: TrainingRecord) -> str:
        epoch, elapsed = record["epoch"], time.monotonic() - self._started
        remaining = elapsed / max(epoch - (self._first_epoch or 0), 1) * max(self._max_epochs - epoch, 0)
        objective = "" if record["objective"] is None else f", objective={record['objective']:.1f}"
        return (
            f"epoch {epoch} of {self._max_epochs}{objective}, {clock(elapsed)} elapsed, "
            f"at most {clock(remaining)} remaining"
        )
