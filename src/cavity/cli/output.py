"""What commands print and how they end: notes on stderr, results on stdout, one line for an error, exit codes."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from cavity.runtime.launcher import is_main_process

INTERRUPTED = 130
PROBE_BYTES = 2**16  # written to see whether a disk is full
MAX_NAMES = 100
BAR_DELAY = 2.0  # seconds: shorter work needs no progress bar


class Commands(click.Group):
    """A group that imports a command when it runs, prints an error as one line, and exits with 130 on Ctrl-C.

    `summaries` has one line of help for each command; `cavity.cli.NAME` defines the command NAME.
    """

    def __init__(self, *args: Any, summaries: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._summaries = summaries or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._summaries})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._summaries:
            return getattr(import_module(f"cavity.cli.{cmd_name}"), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(self._summaries.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of the output has closed it
        except (KeyboardInterrupt, Exception) as error:
            reason: BaseException | None = error  # imports may turn an interrupt into another error
            while reason is not None and not isinstance(reason, KeyboardInterrupt):
                reason = reason.__cause__ or reason.__context__
            if reason is not None or not isinstance(error, Exception):
                click.echo(str(reason) or "stopped", err=True)
                raise click.exceptions.Exit(INTERRUPTED) from None
            expected: tuple[type[Exception], ...] = (ValueError, TypeError, OSError, ImportError, MemoryError)
            if isinstance(error, RuntimeError) and "torch" in sys.modules:
                from torch import OutOfMemoryError

                from cavity.training.checkpoint import CheckpointError

                expected = (CheckpointError, OutOfMemoryError)
            if not isinstance(error, expected):  # click's own exceptions and bugs
                raise
            if isinstance(error, OSError) and error.strerror and error.filename:
                message = f"{error.filename}: {error.strerror}"
            else:
                message = " ".join(str(error).split()) or type(error).__name__
            raise click.ClickException(message) from error


class Output:
    """Prints for people, or one JSON object with `as_json`; `quiet` leaves out notes, and results but JSON."""

    def __init__(self, as_json: bool, quiet: bool = False, distributed: bool | None = None) -> None:
        self.as_json, self.quiet = as_json, quiet
        self.distributed: bool | str = "auto" if distributed is None else distributed  # as for `GPClassifier`
        self.is_main = is_main_process(self.distributed)
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Print something to know on stderr; JSON contains it too."""
        self.notes.append(text)
        self.status(text)

    def status(self, text: str) -> None:
        """Print on stderr what the command is doing."""
        if self.is_main and not self.quiet:
            click.echo(text, err=True)

    def print(self, text: str = "") -> None:
        """Print a line of the result for people."""
        if self.is_main and not (self.quiet or self.as_json):
            click.echo(text)

    def result(self, **values: Any) -> None:
        """Print the result for programs."""
        if self.is_main and self.as_json:
            from cavity.data.labels import plain

            text = json.dumps(values | {"notes": self.notes}, default=plain)
            found = json.loads(text, parse_constant=lambda constant: None)  # JSON has no NaN and no infinity
            click.echo(json.dumps(found, ensure_ascii=False))


def check_writable(path: Path) -> None:
    """Raise ValueError for a file that cannot be written, before time is spent on its contents."""
    if path.is_dir():
        raise ValueError(f"-o {path} must be a file, got a folder")
    if not path.parent.is_dir():
        raise ValueError(f"-o {path}: the folder {path.parent} does not exist; create it first")
    try:
        with tempfile.TemporaryFile(dir=path.parent, prefix=".cavity-") as file:
            file.write(bytes(PROBE_BYTES))
    except OSError as error:
        raise ValueError(f"-o {path}: the folder {path.parent} is not writable: {error.strerror}") from None


def save_anywhere(save: Callable[[Path], object], out: Path) -> tuple[Path, Exception | None]:
    """Save to `out`, else to the first folder that works: the current one, the user's, or that of temporary files.

    Returns:
        The file, and the error that `out` gave.
    """
    try:
        save(out)
        return out, None
    except (OSError, ValueError) as error:
        if not isinstance(error, OSError) and isinstance(error.__cause__, ValueError | None):
            raise  # not the disk's fault
        reason = error
    for folder in (Path.cwd(), Path.home(), Path(tempfile.gettempdir())):
        names = (f"{out.stem}-{i}{out.suffix}" if i else out.name for i in range(MAX_NAMES))
        other = next((folder / name for name in names if not (folder / name).exists()), None)
        if other is None or folder.resolve() == out.parent.resolve():
            continue
        with contextlib.suppress(OSError, ValueError):
            save(other)
            return other, reason
    raise reason


@contextmanager
def told_if_written(out: Path) -> Iterator[None]:
    """On Ctrl-C, say whether the file has been written by then."""

    def version() -> tuple[int, int] | None:
        return (out.stat().st_ino, out.stat().st_mtime_ns) if out.exists() else None

    before = version()
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; {out} was {'not ' if version() == before else ''}written") from None


def plural(count: int, one: str, more: str | None = None) -> str:
    """Return a number with its noun.

    >>> plural(1, "row"), plural(1500, "row"), plural(2, "class", "classes")
    ('1 row', '1,500 rows', '2 classes')
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"


@contextmanager
def row_progress(title: str, total: int | None, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts rows done and shows them: a bar on a terminal, elsewhere a line now and then."""
    from tqdm import tqdm

    from cavity.runtime.progress import SECONDS_BETWEEN_LINES, clock, is_live

    done, started = 0, time.monotonic()
    last = started

    def print_lines(count: int) -> None:
        nonlocal done, last
        done, now = done + count, time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last, elapsed = now, now - started
        rows, remaining = f"{done:,} rows", ""
        if total is not None and done:
            rows = f"{done:,} of {total:,} rows"
            remaining = f", {clock(elapsed * max(total - done, 0) / done)} remaining"
        click.echo(f"{title}: {rows}, {clock(elapsed)} elapsed{remaining}", err=True)

    if quiet:
        yield lambda count: None
    elif not is_live():
        yield print_lines
    else:
        with tqdm(total=total, desc=title, unit="row", unit_scale=True, delay=BAR_DELAY, leave=False) as bar:
            yield lambda count: bar.update(count) and None
