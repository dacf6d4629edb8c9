"""`cavity reproduce`: an experiment of the paper, run, resumed and shown beside the paper's own numbers."""

from __future__ import annotations

import os
from pathlib import Path

import click
import torch

from cavity.reproduce import NAMES, Verdict, missing, read_config, run_missing, write_results

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("name", type=click.Choice(NAMES))
@click.option("--jobs", type=click.IntRange(1), help="Fits at a time; all cores by default, one where a GPU is used.")
@click.option("--smoke", is_flag=True, help="A size that takes seconds and needs no data folder.")
@click.option("--only", multiple=True, metavar="NAME=A,B", help="Some of the fits, such as method=ep,sep.")
@click.option("--show", is_flag=True, help="Tables and figures of what there is; no fits.")
@click.option("--folder", type=FOLDER, default=Path("experiments"), show_default=True, help="Where experiments live.")
@click.option("--out", type=FOLDER, help="Where results go: by default to the experiment; smoke sizes to build/.")
def reproduce(
    name: str, jobs: int | None, smoke: bool, only: tuple[str, ...], show: bool, folder: Path, out: Path | None
) -> None:
    """Run an experiment of the paper and compare with its figures.

    Every fit is appended to results.jsonl as it ends, so a run that was stopped goes on where it was.

    Example: cavity reproduce uci --jobs 2 --only data_set=wine,glass
    """
    out = out or (Path("build/reproduce") / name if smoke else folder / name)
    try:
        config = read_config(folder / name, smoke)
        todo = [] if show else missing(name, config, dict(map(_choice, only)), out)
        if todo:
            run_missing(name, todo, out, min(jobs or _processes(config), len(todo)), config.get("threads"))
        verdicts = write_results(name, config, folder / name, out, judge=not smoke)
    except (FileNotFoundError, ImportError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        raise click.ClickException("stopped; the same command goes on from here") from None
    for verdict in verdicts:
        click.echo(_line(verdict))
    click.echo(f"{out}: results.md, figures and the records")


def _processes(config: dict[str, object]) -> int:
    on_gpu = config.get("device") == "auto" and torch.cuda.is_available()
    return 1 if on_gpu else os.cpu_count() or 1


def _choice(text: str) -> tuple[str, set[str]]:
    name, equals, values = text.partition("=")
    if not equals:
        raise ValueError(f"--only {text}: a name and its values are needed, such as method=ep,sep")
    return name, set(values.split(","))


def _line(verdict: Verdict) -> str:
    return f"{'holds' if verdict.holds else 'DOES NOT HOLD'}: {verdict.claim} ({verdict.figures})"
