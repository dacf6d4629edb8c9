"""Arguments and options that several commands share."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path

import click

FILE = click.Path(path_type=Path)

MODEL = click.argument("model", type=FILE)
DATA = click.argument("data", nargs=-1, required=True)
TARGET = click.option("--target", metavar="COL", help="Label column; by default the one that the model was trained on.")
DROP_MISSING = click.option("--drop-missing", is_flag=True, help="Ignore rows with missing values.")
DISTRIBUTED = click.option(
    "--distributed/--no-distributed", default=None,
    help="Share the work among processes that a launcher has started. By default only under torchrun.",
)  # fmt: skip
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for programs.")
QUIET = click.option("--quiet", is_flag=True, help="Print errors only.")


def split_names(text: str | None) -> list[str]:
    """Split names at commas; "" is a name too, as of the column that `DataFrame.to_csv` writes for an index.

    >>> split_names("age, height"), split_names('"a, b",c'), split_names(""), split_names(None)
    (['age', 'height'], ['a, b', 'c'], [''], [])
    """
    if text is None:
        return []
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])] or [""]


def join_names(*names: str) -> str:
    """Join names for an option, quoted for a shell.

    >>> print(join_names("age", "height"), join_names("a, b"))
    age,height '"a, b"'
    """
    return shlex.quote(",".join(f'"{name}"' if "," in name else name for name in names))
