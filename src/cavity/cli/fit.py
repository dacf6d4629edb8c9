"""`cavity fit`: from a file of labeled rows to a model in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cavity.cli.files import find
from cavity.cli.learning import Asked, learn
from cavity.cli.options import DATA, DROP_MISSING, FILE, JSON, QUIET
from cavity.cli.output import Output, check_place, names
from cavity.inference import METHODS
from cavity.kernels import Linear, Matern12, Matern32, Matern52

KERNELS: dict[str, Any] = {
    "rbf": lambda: None,  # the classifier's own, which starts at other values than RBF()
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "linear": Linear,
}
SCALINGS = {"standard": "standard", "quantile": "quantile", "auto": "auto", "none": None}
POSITIVE = click.FloatRange(0.0, min_open=True)
SHARE = click.FloatRange(0.0, 1.0, max_open=True)


class Count(click.ParamType):
    """A whole number, or a share of the rows, or one of some words.

    Args:
        words: what else it may be, and what that means to the classifier.
        shares: whether a fraction will do.
    """

    name = "number"

    def __init__(self, words: dict[str, Any], shares: bool = False) -> None:
        self._words, self._shares = words, shares

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """From text."""
        if not isinstance(value, str) or value in self._words:
            return self._words.get(value, value) if isinstance(value, str) else value
        try:
            return float(value) if self._shares and "." in value else int(value)
        except ValueError:
            also = [*(["a share such as 0.1"] if self._shares else []), *self._words]
            self.fail(f"{value!r} cannot be used; {' or '.join(['a whole number', *also])} is needed", param, ctx)


@click.command()
@DATA
@click.option("--target", required=True, metavar="COL", help="Column of labels: text, whole numbers or true/false.")
@click.option(
    "-o", "--out", type=FILE, required=True, metavar="MODEL", help="File for the model; replaced if it is there."
)
@click.option("--features", metavar="A,B", help="Columns to learn from; by default all that hold numbers.")
@click.option("--drop", metavar="A,B", help="Columns to leave out.")
@DROP_MISSING
@click.option(
    "--holdout", type=SHARE, metavar="SHARE",
    help="Share of the rows to score by and not to learn from.  [default: 0.2]",
)  # fmt: skip
@click.option("--method", type=click.Choice(["auto", *METHODS]), default="auto", show_default=True)
@click.option(
    "--inducing", type=Count({}, shares=True), default=100, show_default=True,
    help="Inducing points of each class, or a share of the rows: more are slower and finer.",
)  # fmt: skip
@click.option("--kernel", type=click.Choice(list(KERNELS)), default="rbf", show_default=True)
@click.option(
    "--scaling", type=click.Choice(list(SCALINGS)), default="standard", show_default=True, help="Of the features."
)
@click.option("--class-weight", type=click.Choice(["balanced"]), help="balanced: rare labels count for more.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of everything drawn.")
@click.option("--seconds", type=POSITIVE, help="Training time, at most.")
@click.option("--epochs", type=click.IntRange(1), help="Passes over the rows, at most.")
@click.option(
    "--batch-size", type=Count({"auto": "auto", "all": None}), default="auto", show_default=True,
    help="Rows of a mini-batch, or all.",
)  # fmt: skip
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, …")
@click.option("--checkpoint", type=FILE, metavar="FOLDER", help="Keep training there on its way.")
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint, if there is one.")
@JSON
@QUIET
def fit(
    data: tuple[str, ...],
    target: str,
    out: Path,
    features: str | None,
    drop: str | None,
    drop_missing: bool,
    holdout: float | None,
    as_json: bool,
    quiet: bool,
    resume: bool,
    **settings: Any,
) -> None:
    """Learn to tell the labels of DATA (CSV or Parquet; a folder or several files too) and keep the model in a file.

    All columns that hold numbers are used. Some rows are held out and scored at the end. Ctrl-C stops training and
    keeps the best model so far; a second one leaves at once.

    \b
    Examples:
      cavity fit digits-train.csv --target digit -o digits.cavity
      cavity fit flights/ --target delay -o flights.cavity --drop id --seconds 600
    """
    if resume and settings["checkpoint"] is None:
        raise click.UsageError("--resume needs the folder of the checkpoints: --checkpoint FOLDER")
    check_place(out)
    output = Output(as_json, quiet)
    chosen = None if features is None else names(features)
    asked = Asked(target, chosen, names(drop), drop_missing, holdout, settings["seed"], resume)
    learn(find(data), asked, _params(settings, quiet), out, output)


def _params(settings: dict[str, Any], quiet: bool) -> dict[str, Any]:
    """What the options are called by the classifier."""
    return {
        "method": settings["method"],
        "kernel": KERNELS[settings["kernel"]](),
        "n_inducing": settings["inducing"],
        "scaling": SCALINGS[settings["scaling"]],
        "class_weight": settings["class_weight"],
        "max_seconds": settings["seconds"],
        "max_epochs": "auto" if settings["epochs"] is None else settings["epochs"],
        "batch_size": settings["batch_size"],
        "device": settings["device"],
        "checkpoint": settings["checkpoint"],
        "random_state": settings["seed"],
        "verbose": 0 if quiet else 1,
    }
