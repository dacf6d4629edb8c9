"""Progress of a whole fit on stderr: a bar on a terminal, a line now and then elsewhere.

A fit has phases: trials of scalings, the fit itself with its final passes, and the fits of calibration. Work is counted
in epochs of the fit itself.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SECONDS_BETWEEN_LINES = 30.0  # at most, if stderr is not a terminal
SECONDS_BETWEEN_DRAWS = 0.1  # of a bar

TrainingRecord = dict[str, Any]

_command_started: float | None = None


@contextmanager
def command_clock() -> Iterator[None]:
    """Count the elapsed time of all progress from here on, as for a command that reads a file first."""
    global _command_started
    _command_started = time.monotonic()
    try:
        yield
    finally:
        _command_started = None


@dataclass
class Phase:
    """A part of a fit: its name, how many epochs it takes at most, and the time of one relative to the fit itself."""

    name: str  # "search", "trial", "fit" or "fold"
    epochs: float
    cost: float = 1.0


@contextmanager
def show_progress(
    title: str,
    max_epochs: int,
    verbose: int,
    describe: Callable[[TrainingRecord], str],
    *,
    search: float = 0.0,
    trials: float = 0.0,
    final: float = 0.0,
    folds: int = 0,
    max_seconds: float | None = None,
) -> Iterator[Progress | None]:
    """Yield what displays the records of training and how far the whole fit is; None if `verbose` is 0.

    Args:
        title: what is trained, such as "cavity ep".
        max_epochs: of a training run.
        verbose: 1 shows progress and events, 2 prints every record.
        describe: makes a sentence of the event of a record.
        search: steps of the search for kernel and scaling before the fit; 0 for none.
        trials: epochs of the two trials of scalings; 0 for none.
        final: time of the passes over the rows after the last epoch, at most, in epochs.
        folds: further fits for calibration, each with one fold of the rows less.
        max_seconds: maximum time of the whole fit.
    """
    if not verbose:
        yield None
        return
    phases = [Phase("search", search)] if search else []
    phases += [Phase("trial", trials + final) for _ in range(2 if trials else 0)]
    phases.append(Phase("fit", max_epochs + final))
    phases += [Phase("fold", max_epochs + final, 1.0 - 1.0 / folds) for _ in range(folds)]
    display = Progress(title, max_epochs, verbose, describe, phases, max_seconds)
    try:
        yield display
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


class Progress:
    """A bar if stderr is live, otherwise a line for each tenth of the whole fit or every half minute.

    Call it with each record of the main training.
    """

    def __init__(
        self,
        title: str,
        max_epochs: int,
        verbose: int,
        describe: Callable[[TrainingRecord], str],
        phases: list[Phase],
        max_seconds: float | None = None,
    ) -> None:
        from tqdm import tqdm

        self._title, self._max_epochs, self._verbose, self._describe = title, max_epochs, verbose, describe
        self._phases, self._now, self._epochs, self._is_final = phases, 0, 0.0, False
        self._max_seconds, self._objective = max_seconds, ""
        self._started = self._last_line = self._last_draw = time.monotonic()
        self._done, self._first = 0.0, 0.0  # parts of the whole fit: by now, and before this run of a resumed one
        self._has_begun, self._tenth, self._pending = False, 0, ""
        self._bar = None
        if is_live():
            self._bar = tqdm(total=1.0, desc=title, bar_format="{percentage:3.0f}%|{bar:20}| {desc}")

    def __call__(self, record: TrainingRecord) -> None:
        epoch, elapsed = record["epoch"], time.monotonic() - self._started
        if record["objective"] is not None:
            self._objective = f", objective={record['objective']:.1f}"
        if self._verbose > 1:
            self._write("  ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items()))
        elif record["event"] is not None:
            # each of the further fits of calibration has one fold of the rows less than the fit so far
            more = f", about {clock((record['folds'] - 1) * elapsed)} more" if "folds" in record else ""
            self._write(f"epoch {epoch}: {self._describe(record)}{more}" if epoch else self._describe(record))
        if record["event"] is None:
            self.advance(epoch)

    def begin(self, name: str) -> None:
        """Start the next phase of this name. A phase that has ended early makes the whole shorter."""
        if not self._has_begun or name not in [phase.name for phase in self._phases[self._now + 1 :]]:
            self._has_begun = True
            return
        last = self._phases[self._now]
        self._phases[self._now] = Phase(last.name, self._epochs, last.cost)
        self._now += 1
        while self._phases[self._now].name != name:
            self._now += 1
        if last.name == "fit":  # the fits of calibration will need about as many epochs
            for phase in self._phases[self._now :]:
                phase.epochs = self._epochs
        self._epochs, self._is_final = 0.0, False
        if name != "fit":
            self._move()

    def advance(self, epochs: float, is_final: bool = False) -> None:
        """Show that the phase has made this many epochs; those after the last are its final passes."""
        if not self._done and not self._first and self._phases[self._now].name == "fit":
            self._first = self._part(max(math.ceil(epochs) - 1.0, 0.0))  # a resumed fit does not start at 0
        self._epochs, self._is_final = max(self._epochs, epochs), is_final
        self._move()

    def _part(self, epochs: float) -> float:
        """Return the completed part of the whole fit, when the phase has made this many epochs."""
        costs = [phase.epochs * phase.cost for phase in self._phases]
        here = min(epochs, self._phases[self._now].epochs) * self._phases[self._now].cost
        return (sum(costs[: self._now]) + here) / max(sum(costs), 1e-9)

    def _move(self) -> None:
        now = time.monotonic()
        elapsed, done = now - self._started, self._part(self._epochs)
        if self._max_seconds is not None:
            done = max(done, min(elapsed / self._max_seconds, 1.0))
        self._done = max(self._done, done)
        if self._bar is None and self._verbose > 1:
            return
        self._pending = f"{self._title}: {self._status(now)}"
        tenth = math.floor(10 * self._done + 1e-9)
        if self._bar is not None:
            if now - self._last_draw >= SECONDS_BETWEEN_DRAWS:
                self._draw(now)
        elif tenth > self._tenth or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._tenth = tenth
            self._write(self._pending)

    def _status(self, now: float) -> str:
        """Return the phase, the elapsed time and the remaining time of the whole."""
        phase, fits = self._phases[self._now], [i for i, p in enumerate(self._phases) if p.name == "fold"]
        epoch = min(math.ceil(self._epochs), self._max_epochs)
        what = f"epoch {epoch} of {self._max_epochs}{self._objective}"
        if phase.name == "fold":
            what = f"calibration fit {fits.index(self._now) + 1} of {len(fits)}"
        elif phase.name == "search":
            what = "search for kernel and scaling"
        elif phase.name == "trial":
            what = f"trial of scaling {self._now + 1} of 2"
        elif self._is_final:
            what = "final passes"
        started = self._started if _command_started is None else _command_started
        moved = self._done - self._first
        if moved <= 0.0:
            return f"{what}, {clock(now - started)} elapsed"
        remaining = (now - self._started) * (1.0 - self._done) / moved
        if self._max_seconds is not None:
            remaining = min(remaining, max(self._max_seconds - (now - self._started), 0.0))
        bound = "at most" if phase.name == "fit" else "about"
        return f"{what}, {clock(now - started)} elapsed, {bound} {clock(remaining)} remaining"

    def _draw(self, now: float) -> None:
        if self._bar is not None:
            self._last_draw, self._bar.n = now, self._done
            self._bar.set_description_str(self._pending or self._title, refresh=False)
            self._bar.refresh()

    def _write(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
            return
        print(text, file=sys.stderr, flush=True)
        self._last_line, self._pending = time.monotonic(), ""

    def close(self) -> None:
        """Show the last state; a bar ends full, because training may converge before its last epoch."""
        if self._bar is not None:
            self._done = 1.0
            started = self._started if _command_started is None else _command_started
            self._pending = f"{self._title}: {clock(time.monotonic() - started)} elapsed{self._objective}"
            self._draw(time.monotonic())
            self._bar.close()
        elif self._pending:
            self._write(self._pending)
