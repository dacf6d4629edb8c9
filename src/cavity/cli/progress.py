"""How far a command has come through the rows of a file, and how long it will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from tqdm import tqdm

from cavity.cli.files import Data
from cavity.data.row_groups import facts
from cavity.runtime.progress import SECONDS_BETWEEN_LINES, clock, is_live

DELAY = 2.0  # seconds: what is done sooner needs no bar
CHUNK = 2**22  # bytes


@contextmanager
def through_rows(title: str, data: Data, quiet: bool) -> Iterator[Callable[[int], None]]:
    """What is told of rows as they are done; on a terminal it moves a bar, elsewhere it prints a line now and then."""
    if quiet:
        yield lambda n: None
        return
    total = count_rows(data)
    if not is_live():
        yield _Lines(title, total).add
        return
    with tqdm(total=total, desc=title, unit="row", unit_scale=True, delay=DELAY, leave=False, file=sys.stderr) as bar:
        yield lambda n: bar.update(n) and None


def count_rows(data: Data) -> int | None:
    """About how many rows there are; None where only reading them would tell."""
    if not data.is_csv:
        return sum(sum(facts(file).counts) for file in data.files)
    if any(file.path.name.endswith(".gz") for file in data.files):
        return None
    return sum(_count_lines(file.path) - 1 for file in data.files)


def _count_lines(path: object) -> int:
    with open(str(path), "rb") as file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(CHUNK), b""))


class _Lines:
    """A line each half minute."""

    def __init__(self, title: str, total: int | None) -> None:
        self._title, self._total, self._done = title, total, 0
        self._started = self._last = time.monotonic()

    def add(self, count: int) -> None:
        now = time.monotonic()
        self._done += count
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            click.echo(f"{self._title}: {self._where(now - self._started)}", err=True)

    def _where(self, seconds: float) -> str:
        if self._total is None or not self._done:
            return f"{self._done:,} rows, {clock(seconds)} gone"
        left = seconds * max(self._total - self._done, 0) / self._done
        return f"{self._done:,} of {self._total:,} rows, {clock(seconds)} gone, {clock(left)} left"
