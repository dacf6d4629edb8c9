"""The command line: `python -m benchmarks NAME` measures, the others show what was measured."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
import torch

from benchmarks import against as other_checkout
from benchmarks import history, page, plot, quality
from benchmarks.problems import Options, Size
from benchmarks.records import append, machine, read
from cavity.report.text import table

BENCHMARKS = (
    *("step", "fit", "predict", "scaling", "quality", "memory", "source", "classes", "ranks"),
    *("busy", "short_limits", "start", "query"),
)
STANDARD = ("step", "fit", "predict", "scaling", "quality")  # without names: the others take long, or need data
SHOWS = ("history", "page", "plot")
FOLDER = Path(__file__).parent
DEFAULT = Options()
FILE = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, exists=True, path_type=Path)
POSITIVE = click.FloatRange(0, min_open=True)


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice([*BENCHMARKS, *SHOWS]))
@click.option("--out", type=FILE, default=FOLDER / "history.jsonl", help="History file to append to.")
@click.option("--device", default=DEFAULT.device, show_default=True, help="cpu or cuda.")
@click.option("--threads", type=click.IntRange(1), help="Threads of torch and of the rivals. Default: all.")
@click.option("--dtype", type=click.Choice(["float64", "float32"]), help="Run one precision only.")
@click.option("--size", nargs=4, type=click.IntRange(1), default=DEFAULT.size, show_default=True, help="C M B D.")
@click.option("--inducing", type=click.IntRange(1), help="M, instead of that of --size.")
@click.option("--batch", type=click.IntRange(1), help="B, instead of that of --size.")
@click.option(
    "--data", type=click.Choice(quality.DATA), default=DEFAULT.data, show_default=True, help="Data set of quality.",
)  # fmt: skip
@click.option(
    "--seconds", type=POSITIVE, multiple=True, default=DEFAULT.seconds, show_default=True,
    help="Training time at which quality scores. Can be repeated.",
)  # fmt: skip
@click.option("--rate", type=POSITIVE, default=DEFAULT.rate, show_default=True, help="The rivals' learning rate.")
@click.option("--own-rate", type=POSITIVE, help="cavity's learning rate, instead of its default.")
@click.option("--lengthscale", type=POSITIVE, help="Initial length-scale in quality, instead of one from the data.")
@click.option(
    "--what", multiple=True,
    help="A competitor of quality, such as gpflow, a fit of busy, a table of short_limits or start, a method of "
    "query, or the rows of memory, csv, full or parquet. Default: all; for memory, parquet.",
)  # fmt: skip
@click.option("--rows", type=click.IntRange(1), help="Rows of memory or query, instead of its own two sizes.")
@click.option("--against", type=DIRECTORY, help="Compare steps with another checkout: its src folder. Appends nothing.")
@click.option("--picture", type=FILE, help="PNG, SVG or PDF file for plot. Default: speed.png beside the history.")
def main(
    names: tuple[str, ...],
    out: Path,
    device: str,
    threads: int | None,
    dtype: str | None,
    size: tuple[int, int, int, int],
    inducing: int | None,
    batch: int | None,
    data: str,
    seconds: tuple[float, ...],
    rate: float,
    own_rate: float | None,
    lengthscale: float | None,
    what: tuple[str, ...],
    rows: int | None,
    against: Path | None,
    picture: Path | None,
) -> None:
    """Run benchmarks and append the results to the history.

    NAME is step, fit, predict, scaling or quality, memory, source, classes, ranks, busy, short_limits, start or
    query. The
    name history prints the latest and the best results, plot draws them, and page writes them into the README.md beside
    the history. Without a name: the first five, plot and page.

    Examples: python -m benchmarks step --threads 2, or python -m benchmarks step --against ../main/src
    """
    if threads is not None:
        torch.set_num_threads(threads)
    shape = Size(*size)
    shape = shape._replace(M=inducing or shape.M, B=batch or shape.B)
    options = Options(shape, device, dtype, data, seconds, rate, own_rate, lengthscale, what, rows)
    try:
        if against is not None:
            if names != ("step",):
                raise click.UsageError("--against works with the benchmark step only.")
            found = other_checkout.compare(against, options, torch.get_num_threads())
            click.echo(table(other_checkout.HEADER, [comparison.row() for comparison in found]))
            return
        for name in names or (*STANDARD, "plot", "page"):
            if name == "history":
                records = read(out)
                click.echo(table(history.HEADER, history.summary(records)) if records else "The history is empty.")
            elif name == "plot":
                drawn = picture or out.with_name("speed.png")
                over_commits = drawn.with_stem("trends")
                plot.draw(read(out), drawn)
                click.echo(f"Figure: {drawn}")
                if plot.draw_trends(read(out), over_commits):
                    click.echo(f"Figure: {over_commits}")
            elif name == "page":
                page.write(read(out), out.with_name("README.md"))
            else:
                _measure(name, options, out)
    except (ImportError, RuntimeError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _measure(name: str, options: Options, out: Path) -> None:
    where, records = machine(options.device), []
    for record in importlib.import_module(f"benchmarks.{name}").measure(options):
        click.echo(history.line(record))
        if "skipped" not in record:
            append(out, record | where)
            records.append(record)
    if name == "quality" and records:
        click.echo("\n" + table(*quality.reached(records)))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
