"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.Path(path_type=Path)

MODEL = click.argument("model", type=FILE)
DATA = click.argument("data", nargs=-1, required=True)
TARGET = click.option(
    "--target", metavar="COL", help="Column of labels; by default the one that the model was made for."
)
DROP_MISSING = click.option("--drop-missing", is_flag=True, help="Leave out rows with missing values.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
QUIET = click.option("--quiet", is_flag=True, help="Print errors only.")
