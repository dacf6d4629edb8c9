"""The command line: `python -m experiments` lists the experiments, `python -m experiments NAME` runs one."""

from __future__ import annotations

import os
from pathlib import Path

import click
import torch

from experiments.experiment import FOLDER, NAMES, read_config, title, write_results
from experiments.runner import missing, run_missing

CLAIM_FAILED = 3
DIRECTORY = click.Path(file_okay=False, path_type=Path)


class Name(click.Choice):
    """The name of an experiment. Hyphens are accepted for underscores."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name of the folder."""
        return super().convert(value.replace("-", "_"), param, ctx)


@click.command()
@click.argument("name", metavar="[NAME]", type=Name(NAMES), required=False)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Fits at a time. Default: that of config.toml, or all cores, or one fit with a GPU.",
)
@click.option("--smoke", is_flag=True, help="Run a small size that takes seconds and needs no data folder.")
@click.option("--only", multiple=True, metavar="NAME=A,B", help="Run some of the fits, such as method=ep,sep.")
@click.option("--show", is_flag=True, help="Write tables and figures of the records; make no fits.")
@click.option("--folder", type=DIRECTORY, default=FOLDER, help="The folder with the experiments.")
@click.option("--out", type=DIRECTORY, help="The folder for results. Default: the experiment's; build/ for --smoke.")
@click.pass_context
def main(
    ctx: click.Context,
    name: str | None,
    jobs: int | None,
    smoke: bool,
    only: tuple[str, ...],
    show: bool,
    folder: Path,
    out: Path | None,
) -> None:
    """Run an experiment and compare its results with the claims of the paper. Without NAME, list the experiments.

    Each fit appends a record to results.jsonl when it ends. Run the same command again to resume a stopped run.

    Exit codes: 0 if all claims hold, 1 on an error, 2 on wrong usage, 3 if a claim does not hold. Claims are judged
    once all fits have records, and never for --smoke.

    Example: python -m experiments uci --jobs 2 --only data_set=wine,glass
    """
    if name is None:
        for known in NAMES:
            click.echo(f"{known:15} {title(known)}")
        return
    out = out or (Path("build/experiments") / name if smoke else folder / name)
    try:
        config = read_config(folder / name, smoke)
        todo = [] if show else missing(name, config, dict(map(_selection, only)), out)
        if todo:
            on_gpu = config.get("device") == "auto" and torch.cuda.is_available()
            n_processes = jobs or config.get("processes") or (1 if on_gpu else os.cpu_count() or 1)
            run_missing(name, todo, out, min(n_processes, len(todo)), config.get("threads"))
        verdicts = write_results(name, config, folder / name, out, judge=not smoke)
        unfinished = missing(name, config, {}, out)
    except (FileNotFoundError, ImportError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        raise click.ClickException("interrupted. Run the same command again to resume.") from None
    for verdict in verdicts:
        click.echo(f"{'holds' if verdict.holds else 'DOES NOT HOLD'}: {verdict.claim} ({verdict.evidence})")
    click.echo(f"Results: {out}")
    if verdicts and unfinished:
        click.echo(f"{len(unfinished)} fits have no record yet, so these verdicts are preliminary.")
    elif not all(verdict.holds for verdict in verdicts):
        ctx.exit(CLAIM_FAILED)


def _selection(text: str) -> tuple[str, set[str]]:
    name, equals, values = text.partition("=")
    if not equals:
        raise ValueError(f"--only must be NAME=VALUES, such as method=ep,sep, got {text!r}")
    return name, set(values.split(","))


if __name__ == "__main__":
    main(prog_name="python -m experiments")
