"""Progress of training on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SECONDS_BETWEEN_LINES = 30.0  # at most, if stderr is not a terminal

TrainingRecord = dict[str, Any]


@contextmanager
def show_progress(
    title: str, max_epochs: int, verbose: int, describe: Callable[[TrainingRecord], str]
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
    display = _Display(title, max_epochs, verbose, describe)
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
    """A bar if stderr is live, otherwise a line for each tenth of the epochs or every half minute."""

    def __init__(self, title: str, max_epochs: int, verbose: int, describe: Callable[[TrainingRecord], str]) -> None:
        from tqdm import tqdm

        self._title, self._max_epochs, self._verbose, self._describe = title, max_epochs, verbose, describe
        self._bar = tqdm(total=max_epochs, desc=title, unit="epoch") if is_live() else None
        self._started = self._last_line = time.monotonic()
        self._first_epoch: int | None = None  # of this run: a resumed fit does not start at 0
        self._tenth, self._pending = 0, ""

    def add(self, record: TrainingRecord) -> None:
        epoch, elapsed = record["epoch"], time.monotonic() - self._started
        self._first_epoch = epoch - 1 if self._first_epoch is None else self._first_epoch
        if self._verbose > 1:
            self._write("  ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items()))
        elif record["event"] is not None:
            # each of the further fits of calibration has one fold of the rows less than the fit so far
            more = f", about {clock((record['folds'] - 1) * elapsed)} more" if "folds" in record else ""
            self._write(f"epoch {epoch}: {self._describe(record)}{more}")
        if self._bar is not None:
            self._advance_bar(self._bar, record)
        elif self._verbose == 1 and record["event"] is None:
            remaining = elapsed / max(epoch - self._first_epoch, 1) * max(self._max_epochs - epoch, 0)
            objective = "" if record["objective"] is None else f", objective={record['objective']:.1f}"
            self._pending = (
                f"{self._title}: epoch {epoch} of {self._max_epochs}{objective}, {clock(elapsed)} elapsed, "
                f"at most {clock(remaining)} remaining"
            )
            tenth = 10 * epoch // max(self._max_epochs, 1)
            if tenth > self._tenth or time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
                self._tenth = tenth
                self._write(self._pending)

    def _advance_bar(self, bar: Any, record: TrainingRecord) -> None:
        if not bar.n:
            bar.initial = self._first_epoch
        bar.update(record["epoch"] - bar.n)
        if record["objective"] is not None:
            bar.set_postfix(objective=f"{record['objective']:.1f}", refresh=False)

    def _write(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
            return
        print(text, file=sys.stderr, flush=True)
        self._last_line, self._pending = time.monotonic(), ""

    def close(self) -> None:
        if self._bar is not None:
            self._bar.total = self._bar.n  # training may converge before its last epoch
            self._bar.refresh()
            self._bar.close()
        elif self._pending:
            self._write(self._pending)
