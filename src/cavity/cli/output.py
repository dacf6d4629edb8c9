"""What commands print and how they end: notes on stderr, results on stdout, one line for an error, exit codes."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from cavity.training.checkpoint import CheckpointError

ERRORS = (ValueError, TypeError, OSError, ImportError, CheckpointError, MemoryError, torch.OutOfMemoryError)
INTERRUPTED = 130


class Commands(click.Group):
    """Commands whose errors are one line each, and that end with 130 when they are interrupted."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever read the output has enough of it
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except ERRORS as error:
            raise click.ClickException(_one_line(error)) from error


class Output:
    """Where a command says things.

    Args:
        as_json: the result is one JSON object on stdout, and nothing else is there.
        quiet: no notes, and no result but JSON.
    """

    def __init__(self, as_json: bool, quiet: bool = False) -> None:
        self.as_json, self.quiet, self.is_first = as_json, quiet, is_first()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Something to know, on stderr; JSON has it too."""
        self.notes.append(text)
        self.hint(text)

    def hint(self, text: str) -> None:
        """What is going on, for those who wait."""
        if self.is_first and not self.quiet:
            click.echo(text, err=True)

    def tell(self, text: str = "") -> None:
        """A line of the result for people."""
        if self.is_first and not (self.quiet or self.as_json):
            click.echo(text)

    def result(self, **found: Any) -> None:
        """The result for machines."""
        if self.is_first and self.as_json:
            click.echo(json.dumps(_finite(found | {"notes": self.notes}), ensure_ascii=False, allow_nan=False))


def is_first() -> bool:
    """Whether this process is the one that prints and writes, of those that torchrun has started."""
    return int(os.environ.get("RANK", "0")) == 0 or int(os.environ.get("WORLD_SIZE", "1")) < 2


def check_place(path: Path) -> None:
    """Refuse a file that cannot be written, before hours are spent on what goes into it."""
    folder = path.parent
    if path.is_dir():
        raise ValueError(f"-o {path} is a folder; the name of a file is needed")
    if not folder.is_dir():
        raise ValueError(f"-o {path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"-o {path}: the folder {folder} cannot be written to")


def names(text: str | None) -> list[str]:
    """Names between commas.

    >>> names("age, height")
    ['age', 'height']
    """
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def plural(count: int, one: str, more: str | None = None) -> str:
    """A number with its noun.

    >>> plural(1, "row"), plural(1500, "row"), plural(2, "class", "classes")
    ('1 row', '1,500 rows', '2 classes')
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _finite(value: Any) -> Any:
    """As JSON has it: no NaN, no infinity."""
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, np.generic):
        return _finite(value.item())
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
